"""Finding the row of a table that is nearest to a tuple: few columns changed, and those little.

Small tables are compared whole. Large ones are walked down as a trie, in several orders of their
columns: each column keeps its value if some row goes on from there, else takes the nearest value
that one does. The best of the walks changes few columns, if not always the fewest.
"""

from functools import cached_property

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray

__all__ = ["NearestRowIndex"]

COMPARISONS = 1 << 18
"""Pairs of tuple and row that are compared one by one: a few milliseconds."""
WALKS = 4
"""Orders of the columns in which a large table is walked."""


class NearestRowIndex:
    """The rows of a table, to look for near ones."""

    def __init__(self, table: Codes, sizes: IntArray) -> None:
        self.table, self.sizes = table, sizes

    def find(self, tuples: Codes, rng: np.random.Generator) -> Codes:
        """Return for each of (n, k) tuples a near row; equals are chosen between by chance."""
        if len(tuples) * len(self.table) <= COMPARISONS:
            far = self._distance(tuples[:, None, :], self.table[None, :, :])
            far += rng.random(far.shape) * 1e-6
            near: Codes = self.table[far.argmin(axis=1)]
            return near
        walks = np.stack([walk.down(tuples) for walk in self._walks])
        far = self._distance(tuples[None, :, :], walks)
        far += rng.random(far.shape) * 1e-6
        best: Codes = walks[far.argmin(axis=0), np.arange(len(tuples))]
        return best

    def _distance(self, one: Codes, other: Codes) -> FloatArray:
        """Columns that differ, and as a fraction of one how far."""
        far = np.zeros(np.broadcast_shapes(one.shape, other.shape)[:-1])
        for column, size in enumerate(self.sizes):
            steps = np.abs(one[..., column] - other[..., column])
            far += (steps > 0) + steps / (int(size) * len(self.sizes))
        return far

    @cached_property
    def _walks(self) -> "list[_TrieSearch]":
        columns = np.arange(len(self.sizes))
        starts = np.unique(np.linspace(0, len(columns), WALKS, endpoint=False).astype(int))
        return [_TrieSearch(self.table, self.sizes, np.roll(columns, -start)) for start in starts]


class _TrieSearch:
    """A table as a trie over its columns in some order."""

    def __init__(self, table: Codes, sizes: IntArray, order: IntArray) -> None:
        self.order, self.sizes = order, sizes
        self.levels: list[IntArray] = []
        """For each column: its nodes, numbered by parent * size + value, ascending."""
        node = np.zeros(len(table), np.int64)
        for column in order:
            nodes, node = np.unique(node * sizes[column] + table[:, column], return_inverse=True)
            self.levels.append(nodes)

    def down(self, tuples: Codes) -> Codes:
        """Return the row that each tuple is led to."""
        nearest = np.empty_like(tuples)
        node = np.zeros(len(tuples), np.int64)
        for column, nodes in zip(self.order, self.levels, strict=True):
            size = self.sizes[column]
            wanted = node * size + tuples[:, column]
            after = np.searchsorted(nodes, wanted)
            above, below = np.minimum(after, len(nodes) - 1), np.maximum(after - 1, 0)
            # A neighbour below another parent is no way on; one of the two is always below ours.
            up = np.where(nodes[above] // size == node, np.abs(nodes[above] - wanted), 2 * size)
            down = np.where(nodes[below] // size == node, np.abs(nodes[below] - wanted), 2 * size)
            node = np.where(up <= down, above, below)
            nearest[:, column] = nodes[node] % size
        return nearest
