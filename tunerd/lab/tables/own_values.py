"""Numbers of which nearly every row has one of its own: measured, or drawn by a search."""

from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.profile import ColumnProfile

__all__ = ["DRAWN", "is_drawn", "is_own_valued"]

FEWEST_ROWS = 20
SHARE = 0.8
"""Of the rows, from which on nearly each has a value of its own."""
DRAWN = {"lr", "learning", "dropout", "decay", "momentum", "alpha", "gamma", "eta"}
"""Words of what searches draw from a range."""
_CAME_OUT = {"final", "last", "mean", "reached"}


def is_own_valued(column: ColumnProfile) -> bool:
    """Whether nearly every row has a number of its own."""
    many = column.present >= FEWEST_ROWS and column.distinct >= SHARE * column.present
    return column.numeric and many


def is_drawn(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a name is of what searches draw from a range, or in a section of parameters."""
    section = name.leaf != column.name and name.weight("parameter") >= 1.5
    return section or (not DRAWN.isdisjoint(name.words) and _CAME_OUT.isdisjoint(name.words))
