"""Drawing from a large table parameter by parameter: each conditioned on those chosen before it,
with impossible values masked.

A table in lexicographic order is a trie; drawing walks down it. At each node a choice is drawn
with probability ∝ exp(its logit) × rows below it, so that a policy that prefers nothing draws rows
evenly. The cost depends on what is drawn, not on the number of rows.
"""

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray

__all__ = ["TrieSampler", "softmax", "surprise_of"]

ENTRIES = 1 << 22
"""Nodes times choices that a trie may have: 50 MB."""


class TrieSampler:
    """One block of a space, for S policies side by side."""

    def __init__(
        self, dimensions: IntArray, table: Codes, start: IntArray, sizes: IntArray
    ) -> None:
        """``start`` (k,) says where the logits of each dimension begin.

        Raises:
            ValueError: the trie would be too large; see :meth:`fits`.
        """
        if not self.fits(table, sizes):
            raise ValueError(f"a table of {len(table)} rows is too large to be walked")
        self.dimensions = dimensions
        self._start, self._sizes = start, sizes
        self._child: list[IntArray] = []
        """For each column: (nodes, choices) → node of the next column; 0 where impossible."""
        self._weight: list[FloatArray] = []
        """For each column: (nodes, choices) → logarithm of the rows below; −inf for none."""
        node = np.zeros(len(table), np.int64)
        for column, size in enumerate(sizes.tolist()):
            below = _nodes(table, column + 1)
            shape = (int(node[-1]) + 1, size)
            child = np.zeros(shape, np.int32)
            child[node, table[:, column]] = below
            rows = np.zeros(shape)
            np.add.at(rows, (node, table[:, column]), 1.0)
            self._child.append(child)
            self._weight.append(np.log(rows, where=rows > 0, out=np.full(shape, -np.inf)))
            node = below
        self._passed: list[IntArray] = []
        """Nodes that the last draw came through: for each column (S, n)."""

    @staticmethod
    def fits(table: Codes, sizes: IntArray) -> bool:
        """Whether the trie of a table can be afforded."""
        nodes = [1, *(int(_nodes(table, column)[-1]) + 1 for column in range(1, len(sizes)))]
        return int((np.array(nodes) * sizes).sum()) <= ENTRIES

    def draw(self, logits: FloatArray, n: int, rng: np.random.Generator) -> Codes:
        """Draw n rows from each policy: (S, n, k)."""
        count = len(logits)
        codes = np.zeros((count, n, len(self._sizes)), np.int32)
        node = np.zeros((count, n), np.int64)
        self._passed = []
        for column in range(len(self._sizes)):
            self._passed.append(node)
            chances, _ = softmax(self._masked(logits, column, node))
            sums = np.cumsum(chances, axis=2)
            point = rng.random((count, n, 1)) * sums[:, :, -1:]
            codes[:, :, column] = (point >= sums).sum(axis=2)
            node = self._child[column][node, codes[:, :, column]]
        return codes

    def expected(self, logits: FloatArray, codes: Codes, weights: FloatArray) -> FloatArray:
        """Σ weights · E[choices], each choice given those before it in ``codes`` (S, n, k):
        (S, logits)."""
        total = np.zeros_like(logits)
        node = np.zeros(codes.shape[:2], np.int64)
        for column in range(len(self._sizes)):
            chances, _ = softmax(self._masked(logits, column, node))
            total[:, self._place(column)] += (weights[:, :, None] * chances).sum(axis=1)
            node = self._child[column][node, codes[:, :, column]]
        return total

    def entropy_gradient(self, logits: FloatArray) -> FloatArray:
        """Gradient of the entropy of the choices on the last draw's way, its mean: (S, logits)."""
        total = np.zeros_like(logits)
        for column, node in enumerate(self._passed):
            surprise = surprise_of(*softmax(self._masked(logits, column, node)))
            total[:, self._place(column)] += surprise.mean(axis=1)
        return total

    def _place(self, column: int) -> slice:
        return slice(int(self._start[column]), int(self._start[column] + self._sizes[column]))

    def _masked(self, logits: FloatArray, column: int, node: IntArray) -> FloatArray:
        return logits[:, None, self._place(column)] + self._weight[column][node]


def _nodes(table: Codes, columns: int) -> IntArray:
    """Number the rows' first so many columns, (rows,), in order."""
    new = (table[1:, :columns] != table[:-1, :columns]).any(axis=1)
    return np.concatenate([[0], np.cumsum(new)])


def softmax(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities over the last axis, and their logarithms (0 where the probability is 0)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chances = np.exp(shifted)
    total = chances.sum(axis=-1, keepdims=True)
    return chances / total, np.where(np.isfinite(shifted), shifted - np.log(total), 0.0)


def surprise_of(chances: FloatArray, logs: FloatArray) -> FloatArray:
    """−p · (log p + H): what each outcome's logit does to the entropy H of its distribution."""
    entropy = -(chances * logs).sum(axis=-1, keepdims=True)
    surprise: FloatArray = -chances * (logs + entropy)
    return surprise
