"""Policies over a search space that only ever propose what its tables allow.

A policy has one logit per choice of every dimension (CubicML, arXiv 2409.04585, A.1.1). Within a
block of the space whose feasible tuples are listed, the probability of a tuple is proportional to
exp(sum of its logits): the product policy, conditioned on being feasible. Its gradient and
entropy are exact sums over the table. Dimensions of blocks without a (small) table are drawn
independently and repaired afterwards; what is learned from is then the repaired draw.

Several policies (seeds) stand side by side in a leading axis S.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray

if TYPE_CHECKING:
    from tunerd.core.space import Block, Space

__all__ = ["Policies"]

TABLE_ROWS = 8_192
"""Rows up to which a block is drawn from its table: each step looks at all of them, 0.1 ms per
policy."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A block whose feasible tuples are listed."""

    dimensions: IntArray
    tuples: Codes
    """(T, k)"""
    logits: IntArray
    """(T, k) place of each tuple's choices among all logits."""


class Policies:
    """S policies over one space."""

    def __init__(self, space: "Space", count: int) -> None:
        self._space = space
        self._start = np.concatenate([[0], np.cumsum(space.sizes)[:-1]])
        self._width = len(space.sizes)
        self.logits = np.zeros((count, int(space.sizes.sum())))
        """(S, choices of all dimensions one after the other)."""
        self._tables = [self._listed(block) for block in space.blocks if _is_listed(block)]
        self._set_up_alone([block for block in space.blocks if not _is_listed(block)])
        self._needs_repair = any(
            block.table is None or len(block.dimensions) > 1
            for block in space.blocks
            if not _is_listed(block)
        )

    def _listed(self, block: "Block") -> _Table:
        assert block.table is not None
        return _Table(block.dimensions, block.table, block.table + self._start[block.dimensions])

    def _set_up_alone(self, blocks: list["Block"]) -> None:
        """Dimensions that are drawn by themselves, padded to the largest number of choices."""
        self._alone = np.sort(
            np.concatenate([np.empty(0, np.int64), *(b.dimensions for b in blocks)])
        )
        sizes = self._space.sizes[self._alone]
        choice = np.arange(int(sizes.max(initial=1)))
        self._places = self._start[self._alone][:, None] + np.minimum(choice, sizes[:, None] - 1)
        self._allowed = choice < sizes[:, None]
        for block in blocks:
            if block.table is not None and len(block.dimensions) == 1:
                row = int(np.searchsorted(self._alone, block.dimensions[0]))
                self._allowed[row] = np.isin(choice, block.table[:, 0])

    def draw(self, n: int, rng: np.random.Generator) -> Codes:
        """Draw n feasible configurations from each policy: (S, n, D)."""
        count = len(self.logits)
        codes = np.zeros((count, n, self._width), np.int32)
        for table in self._tables:
            chances, _ = _softmax(self.logits[:, table.logits].sum(axis=2))
            codes[:, :, table.dimensions] = table.tuples[_pick(chances, rng.random((count, n)))]
        if len(self._alone):
            chances, _ = self._chances_alone()
            points = rng.random((count, n, len(self._alone), 1))
            picked = (points > np.cumsum(chances, axis=2)[:, None]).sum(axis=3)
            # A cumulated sum may end just below 1: never pick what is not allowed.
            last = self._allowed.shape[1] - 1 - np.argmax(self._allowed[:, ::-1], axis=1)
            codes[:, :, self._alone] = np.minimum(picked, last)
        if self._needs_repair:
            flat = self._space.repair(codes.reshape(count * n, -1), rng)
            codes = flat.reshape(count, n, -1)
        return codes

    def gradient(self, codes: Codes, advantage: FloatArray) -> FloatArray:
        """Gradient of Σ advantage · log π(configuration) / n in the logits: (S, logits).

        ``codes`` (S, n, D); ``advantage`` (S, n) must sum to 0 over n. Then the expectation in
        ∇ log π = one-hot − expectation cancels, for conditioned policies too, and what remains is
        a weighted count of choices.
        """
        count, n = advantage.shape
        width = self.logits.shape[1]
        places = codes + self._start + (np.arange(count) * width)[:, None, None]
        weights = np.broadcast_to(advantage[:, :, None] / n, codes.shape)
        total = np.bincount(places.ravel(), weights.ravel(), minlength=count * width)
        gradient: FloatArray = total.reshape(count, width).astype(np.float64, copy=False)
        return gradient

    def entropy_gradient(self) -> FloatArray:
        """Gradient of the policies' entropy in the logits: (S, logits); exact."""
        gradient = np.zeros_like(self.logits)
        for table in self._tables:
            chances, logs = _softmax(self.logits[:, table.logits].sum(axis=2))
            surprise = _surprise(chances, logs)
            for s in range(len(gradient)):
                weights = np.broadcast_to(surprise[s][:, None], table.logits.shape)
                gradient[s] += np.bincount(
                    table.logits.ravel(), weights.ravel(), minlength=gradient.shape[1]
                )
        if len(self._alone):
            surprise = _surprise(*self._chances_alone())
            gradient[:, self._places[self._allowed]] += surprise[:, self._allowed]
        return gradient

    def _chances_alone(self) -> tuple[FloatArray, FloatArray]:
        logits = np.where(self._allowed, self.logits[:, self._places], -np.inf)
        return _softmax(logits)


def _is_listed(block: "Block") -> bool:
    return len(block.dimensions) > 1 and block.table is not None and len(block.table) <= TABLE_ROWS


def _softmax(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities over the last axis, and their logarithms (0 where the probability is 0)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chances = np.exp(shifted)
    total = chances.sum(axis=-1, keepdims=True)
    return chances / total, np.where(np.isfinite(shifted), shifted - np.log(total), 0.0)


def _surprise(chances: FloatArray, logs: FloatArray) -> FloatArray:
    """−p · (log p + H): what each outcome's logit does to the entropy H of its distribution."""
    entropy = -(chances * logs).sum(axis=-1, keepdims=True)
    surprise: FloatArray = -chances * (logs + entropy)
    return surprise


def _pick(chances: FloatArray, points: FloatArray) -> IntArray:
    """(S, T) probabilities and (S, n) points in [0, 1) → (S, n) indices."""
    sums = np.cumsum(chances, axis=1)
    picked = [
        np.searchsorted(row, p * row[-1], side="right") for row, p in zip(sums, points, strict=True)
    ]
    places: IntArray = np.minimum(np.stack(picked), chances.shape[1] - 1)
    return places
