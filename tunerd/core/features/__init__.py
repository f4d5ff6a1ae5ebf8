"""From observations and candidates to the rows that models see, and which of them are kept.

:mod:`.map` makes rows from raw values, :mod:`.columns` are the columns, :mod:`.replay` is the
bounded sample of history that a rebuild learns from.
"""

from tunerd.core.features.map import FeatureMap
from tunerd.core.features.rows import Rows

__all__ = ["FeatureMap", "Rows"]
