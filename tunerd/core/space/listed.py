"""A cell of whole configurations that were listed beforehand: nothing else may be tried.

Tuples of many dimensions do not fit into one integer; they are numbered by walking down the table
as a trie instead, which takes one look-up per dimension.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tunerd.core.arrays import Codes, IntArray
from tunerd.core.space.feasible_tables import FeasibleTable

__all__ = ["ListedConfigTable"]


@dataclass(frozen=True, eq=False)
class ListedConfigTable(FeasibleTable):
    """All dimensions, and the tuples that may be tried."""

    @classmethod
    def of(cls, codes: Codes, sizes: IntArray) -> "ListedConfigTable":
        """Build from (n, D) configurations, repeats welcome."""
        return cls(np.arange(len(sizes)), np.unique(codes, axis=0), sizes)

    def keys(self, tuples: Codes) -> IntArray:
        """Number tuples by their row of the table; −1 for those that are not in it."""
        node = np.zeros(len(tuples), np.int64)
        for column, nodes in enumerate(self._levels):
            wanted = node * self.sizes[column] + tuples[:, column]
            at = np.minimum(np.searchsorted(nodes, wanted), len(nodes) - 1)
            node = np.where((node >= 0) & (nodes[at] == wanted), at, -1)
        return node

    @cached_property
    def _levels(self) -> list[IntArray]:
        """For each column its nodes, numbered by parent · size + value, ascending."""
        node = np.zeros(len(self.table), np.int64)
        levels = []
        for column, size in enumerate(self.sizes):
            nodes, node = np.unique(node * size + self.table[:, column], return_inverse=True)
            levels.append(nodes)
        return levels
