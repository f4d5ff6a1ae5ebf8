"""From observations and candidates to the rows that models see, and which of them are kept.

:mod:`.feature_map` makes rows from raw values, :mod:`.columns` are the columns, :mod:`.replay` is
the bounded sample of history that a rebuild learns from.
"""

from tunerd.core.features.feature_map import FeatureMap
from tunerd.core.features.rows import FeatureRows

__all__ = ["FeatureMap", "FeatureRows"]
