"""Cells: groups of dimensions whose feasible tuples are listed in a table.

A dimension alone is a cell with one row per choice. A rule over few enough combinations joins the
cells that it ties together into one, keeping only the rows that satisfy it; so an equality such as
``tp * pp * cp * dp == n_gpus`` is solved by listing, once, and sampled without rejection.
Rules over too many combinations are *wide*: they stay to be checked on whole configurations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from tunerd.core.arrays import BoolArray, Codes, FloatArray, IntArray
from tunerd.core.space.nearest_row import NearestRowIndex
from tunerd.core.space.rules import ConstraintRule

__all__ = ["FeasibleTable", "JoinedTables", "join"]

COMBINATIONS = 1 << 21
"""Combinations that one join may look at, and all joins together twice as many: about 0.1 s, and
room for 16,384 × 100."""
ROWS = 1 << 17
"""Rows that a table may have. A rule that leaves more is loose enough for rejection."""
CHUNK = 1 << 16
"""Combinations looked at together: small enough for a processor's cache."""


@dataclass(frozen=True, eq=False)
class FeasibleTable:
    """Dimensions and their feasible tuples."""

    dimensions: IntArray
    """(k,) ascending."""
    table: Codes
    """(rows, k), in lexicographic order, distinct."""
    sizes: IntArray
    """(k,) choices of each dimension."""
    constraints: tuple[str, ...] = ()
    """Names of the constraints that are settled here."""

    @cached_property
    def _keys(self) -> IntArray:
        return self.keys(self.table)

    @cached_property
    def whole(self) -> bool:
        """Whether every tuple is feasible."""
        return len(self.table) == prod(map(int, self.sizes))

    def keys(self, tuples: Codes) -> IntArray:
        """Number tuples in lexicographic order; fits 63 bits by the way cells are joined."""
        keys = np.zeros(len(tuples), np.int64)
        for column, size in enumerate(self.sizes):
            keys = keys * size + tuples[:, column]
        return keys

    def holds(self, tuples: Codes) -> BoolArray:
        """Return which of (n, k) tuples are in the table; their codes must be in range."""
        if self.whole:
            return np.ones(len(tuples), bool)
        keys = self.keys(tuples)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        matches: BoolArray = self._keys[at] == keys
        return matches

    def sample(self, n: int, rng: np.random.Generator) -> Codes:
        """Return n rows, uniformly."""
        return self.table[rng.integers(len(self.table), size=n)]

    def spread(self, points: FloatArray) -> Codes:
        """Map points of the unit cube, (n, k), onto rows, evenly.

        Column by column, each coordinate picks by quantile among the rows that share what was
        picked so far (Rosenblatt's transformation).
        """
        low = np.zeros(len(points), np.int64)
        high = np.full(len(points), len(self.table))
        for column, (first, end) in enumerate(self._groups):
            at = low + (points[:, column] * (high - low)).astype(np.int64)
            at = np.minimum(at, high - 1)
            low, high = first[at], end[at]
        return self.table[low]

    @cached_property
    def _groups(self) -> list[tuple[IntArray, IntArray]]:
        """For each column and row: where the rows that agree up to this column start and end."""
        groups = []
        starts = np.zeros(len(self.table), bool)
        starts[0] = True
        for column in range(len(self.dimensions)):
            starts[1:] |= self.table[1:, column] != self.table[:-1, column]
            first = np.flatnonzero(starts)
            group = np.cumsum(starts) - 1
            groups.append((first[group], np.append(first[1:], len(self.table))[group]))
        return groups

    @cached_property
    def nearest(self) -> NearestRowIndex:
        """To look for the rows nearest to given tuples."""
        return NearestRowIndex(self.table, self.sizes)


@dataclass(frozen=True)
class JoinedTables:
    """All dimensions in cells, and the rules that are too wide for a table."""

    cells: tuple[FeasibleTable, ...]
    wide: tuple[ConstraintRule, ...]

    @property
    def empty(self) -> FeasibleTable | None:
        """A cell without a row: its constraints cannot be satisfied together."""
        return next((cell for cell in self.cells if not len(cell.table)), None)


def join(sizes: IntArray, rules: Sequence[ConstraintRule]) -> JoinedTables:
    """Settle as many rules as fit into tables, the cheapest first; stops at an empty table."""
    cells = {
        d: FeasibleTable(np.array([d]), np.arange(size, dtype=np.int32)[:, None], np.array([size]))
        for d, size in enumerate(sizes)
    }
    left = list(rules)
    wide: list[ConstraintRule] = []
    budget = 2 * COMBINATIONS
    while left:
        cost, rule = min(((_cost(rule, cells), rule) for rule in left), key=lambda pair: pair[0])
        left.remove(rule)
        affordable = cost <= min(COMBINATIONS, budget)
        joined = _joined(_tied(rule, cells), rule, len(sizes)) if affordable else None
        budget -= cost if affordable else 0
        if joined is None:
            wide.append(rule)
            continue
        for d in joined.dimensions:
            cells[int(d)] = joined
        if not len(joined.table):
            break
    distinct = {id(cell): cell for cell in cells.values()}
    return JoinedTables(tuple(distinct.values()), tuple(wide))


def _tied(rule: ConstraintRule, cells: dict[int, FeasibleTable]) -> list[FeasibleTable]:
    tables = {id(cells[int(d)]): cells[int(d)] for d in rule.dimensions}
    return list(tables.values())


def _cost(rule: ConstraintRule, cells: dict[int, FeasibleTable]) -> int:
    return prod(len(cell.table) for cell in _tied(rule, cells))


def _joined(parts: list[FeasibleTable], rule: ConstraintRule, width: int) -> FeasibleTable | None:
    """Return the cell of all combinations of the parts' rows that keep the rule."""
    dimensions = np.concatenate([part.dimensions for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    if prod(map(int, sizes)) >= 2**62:
        return None
    where = np.zeros(width, np.int64)
    where[dimensions] = np.arange(len(dimensions))
    lengths = [len(part.table) for part in parts]
    kept: list[Codes] = []
    rows = 0
    for start in range(0, prod(lengths), CHUNK):
        tuples = _combinations(parts, start, min(start + CHUNK, prod(lengths)))
        kept.append(tuples[rule.satisfied(tuples, where)])
        rows += len(kept[-1])
        if rows > ROWS:
            return None
    order = np.argsort(dimensions)
    table = np.concatenate(kept)[:, order] if kept else np.zeros((0, len(order)), np.int32)
    names = dict.fromkeys([name for part in parts for name in part.constraints])
    names[rule.constraint] = None
    cell = FeasibleTable(dimensions[order], table, sizes[order], tuple(names))
    return FeasibleTable(
        cell.dimensions, table[np.argsort(cell.keys(table))], cell.sizes, tuple(names)
    )


def _combinations(parts: list[FeasibleTable], start: int, stop: int) -> Codes:
    """Return combinations of rows by number, the last part's rows changing fastest."""
    number = np.arange(start, stop)
    combined = []
    for part in reversed(parts):
        number, row = np.divmod(number, len(part.table))
        combined.append(part.table[row])
    return np.concatenate(combined[::-1], axis=1)
