"""Studies as the rest of tunerd works with them: checked, compiled and frozen.

:mod:`tunerd.core.study_file` makes one of the file that a person writes.
"""

from tunerd.core.study.mapping import MappingTable
from tunerd.core.study.parts import (
    Constraint,
    DerivedValue,
    Guard,
    Parameter,
    PredictorOptions,
    SearchOptions,
)
from tunerd.core.study.shapes import PluginOptions
from tunerd.core.study.study import Study

__all__ = [
    "Constraint",
    "DerivedValue",
    "Guard",
    "MappingTable",
    "Parameter",
    "PluginOptions",
    "PredictorOptions",
    "SearchOptions",
    "Study",
]
