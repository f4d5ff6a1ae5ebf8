"""Full grids: tables of all combinations of some settings, in which the rest came out.

Who runs each combination of two or more settings varies nothing else: a column of such a table that
follows none of them was measured, whatever it is called.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from tunerd.core.arrays import IntArray
from tunerd.lab.tables.profile import ColumnProfile

__all__ = ["came_out", "full_grid", "goes_its_own_way"]

FEWEST = 6
"""Combinations below which a grid is chance."""
MOST_REPEATS = 10
MOST_VALUES = 64
"""Values of one setting of a grid."""
FULL = 0.9
"""Share of the combinations that must be there: some run is always missing."""
FEW = 12
"""Values that people choose from."""


def full_grid(columns: Sequence[ColumnProfile]) -> tuple[ColumnProfile, ...]:
    """The columns whose combinations are all in the table, equally often; empty when these are not
    two or more, or say little of the rows. Columns that are likelier settings come first."""
    among = [c for c in columns if 2 <= c.distinct <= MOST_VALUES and not (c.codes < 0).any()]
    rows = len(columns[0].codes) if columns else 0
    grid: list[ColumnProfile] = []
    cells = 1
    for column in among:
        if cells * column.distinct <= rows / FULL and _is_balanced([*grid, column], rows):
            grid.append(column)
            cells *= column.distinct
    telling = len(grid) > 1 and cells >= FEWEST and rows <= MOST_REPEATS * cells
    return tuple(grid) if telling else ()


def goes_its_own_way(column: ColumnProfile, grid: Sequence[ColumnProfile]) -> bool:
    """Whether a column of a few values does not follow from a grid: then more was varied than its
    settings, and the grid is one of contexts, or there by chance."""
    few = 1 < column.distinct <= FEW and 3 * column.distinct <= column.present
    return few and column not in grid and not _follows(column, grid)


def _is_balanced(columns: Sequence[ColumnProfile], rows: int) -> bool:
    """Whether nearly all combinations occur, each as often as any other."""
    cells = math.prod(column.distinct for column in columns)
    counts = _counts([column.codes for column in columns])
    return len(counts) >= FULL * cells and rows >= FULL * cells * int(counts.max())


def _counts(codes: Sequence[IntArray]) -> IntArray:
    counts: IntArray = np.unique(np.stack(codes), axis=1, return_counts=True)[1]
    return counts


def came_out(column: ColumnProfile, grid: Sequence[ColumnProfile], few: int = FEW) -> bool:
    """Whether a number was measured in each run of a full grid: it has no value for each value of a
    setting or for each combination of some, and is none of an incomplete grid itself. Up to ``few``
    values that half of the rows share are what people choose from."""
    if not grid or column in grid or column.distinct < 3:
        return False
    if 2 * column.distinct <= column.present and column.distinct <= few:
        return False  # somebody chose from them
    counts = set(column.counts.values())
    if len(counts) == 1 and column.distinct < column.present:
        return False  # each value equally often: somebody planned it
    cells = len(_counts([setting.codes for setting in grid]))
    if cells < len(column.codes) and not _differs_within(column, grid):
        return False  # repeats have the same: it follows from the settings
    return not any(
        _follows(column, some) for size in range(1, len(grid)) for some in combinations(grid, size)
    )


def _differs_within(column: ColumnProfile, grid: Sequence[ColumnProfile]) -> bool:
    """Whether repeats of a combination hardly ever have the same value."""
    settings = [setting.codes for setting in grid]
    pairs = len(_counts([*settings, column.codes]))
    return pairs > len(_counts(settings)) + 0.5 * (len(column.codes) - len(_counts(settings)))


def _follows(column: ColumnProfile, settings: Sequence[ColumnProfile]) -> bool:
    codes = [setting.codes for setting in settings]
    return len(_counts(codes)) == len(_counts([*codes, column.codes]))
