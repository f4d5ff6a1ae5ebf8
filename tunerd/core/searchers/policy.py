"""Policies over a search space that only ever propose what its tables allow.

A policy has one logit per choice of every dimension (CubicML, arXiv 2409.04585, A.1.1). Within a
block of the space whose feasible tuples are listed, the probability of a tuple is proportional to
exp(sum of its logits): the product policy, conditioned on being feasible. Its gradient and
entropy are exact sums over the table. A table with too many rows for that is walked down instead,
each parameter conditioned on those chosen before it and impossible values masked
(:mod:`.trie`). Dimensions of blocks without a table are drawn independently; draws that break a
rule are thrown away and drawn again, which conditions them too, and repaired where that is in vain.

Several policies (seeds) stand side by side in a leading axis S.
"""

from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray
from tunerd.core.searchers.trie import TrieSampler, softmax, surprise_of
from tunerd.core.space import IndependentBlock, SearchSpace

__all__ = ["CategoricalPolicies"]

TABLE_ROWS = 1_024
"""Rows up to which a block is drawn from its table: each step looks at all of them, 0.1 ms per
policy."""
ATTEMPTS = 4
"""Draws for each that is wanted where rules may be broken. The first that breaks none is taken."""


@dataclass(frozen=True, slots=True)
class _TabulatedBlock:
    """A block whose feasible tuples are listed."""

    dimensions: IntArray
    tuples: Codes
    """(T, k)"""
    logits: IntArray
    """(T, k) place of each tuple's choices among all logits."""


class CategoricalPolicies:
    """S policies over one space."""

    def __init__(self, space: SearchSpace, count: int) -> None:
        self._space = space
        self._start = np.concatenate([[0], np.cumsum(space.sizes)[:-1]])
        self._width = len(space.sizes)
        self.logits = np.zeros((count, int(space.sizes.sum())))
        """(S, choices of all dimensions one after the other)."""
        self._tables: list[_TabulatedBlock] = []
        self._walks: list[TrieSampler] = []
        alone = []
        for block in space.blocks:
            if block.table is None or len(block.dimensions) == 1:
                alone.append(block)
            elif len(block.table) <= TABLE_ROWS:
                self._tables.append(self._listed(block))
            elif TrieSampler.fits(block.table, space.sizes[block.dimensions]):
                start = self._start[block.dimensions]
                sizes = space.sizes[block.dimensions]
                self._walks.append(TrieSampler(block.dimensions, block.table, start, sizes))
            else:
                alone.append(block)
        self._set_up_alone(alone)
        self._may_break_rules = any(
            block.table is None or len(block.dimensions) > 1 for block in alone
        )

    def _listed(self, block: IndependentBlock) -> _TabulatedBlock:
        assert block.table is not None
        return _TabulatedBlock(
            block.dimensions, block.table, block.table + self._start[block.dimensions]
        )

    def _set_up_alone(self, blocks: list[IndependentBlock]) -> None:
        """Choices of dimensions that are drawn by themselves, one dimension after the other."""
        allowed = {
            int(dimension): np.arange(self._space.sizes[dimension])
            if block.table is None or len(block.dimensions) > 1
            else np.unique(block.table)
            for block in blocks
            for dimension in block.dimensions
        }
        self._alone = np.array(sorted(allowed), np.int64)
        choices = [allowed[dimension] for dimension in self._alone.tolist()]
        self._choices = np.concatenate([np.empty(0, np.int64), *choices])
        self._counts = np.array([len(choice) for choice in choices], np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._places = self._choices + np.repeat(self._start[self._alone], self._counts)

    def lean_to(self, codes: Codes, strength: float, policies: int) -> None:
        """Let the first so many policies prefer the choices of these (n, D) configurations."""
        if len(codes) and policies:
            places = (codes + self._start).ravel()
            shares = np.bincount(places, minlength=self.logits.shape[1]) / len(codes)
            self.logits[:policies] += strength * shares

    def draw(self, n: int, rng: np.random.Generator) -> Codes:
        """Draw n feasible configurations from each policy: (S, n, D)."""
        if not self._may_break_rules:
            return self._drawn(n, rng)
        drawn = self._drawn(ATTEMPTS * n, rng).reshape(-1, ATTEMPTS, n, self._width)
        good = self._space.feasible(drawn.reshape(-1, self._width)).reshape(drawn.shape[:3])
        first = good.argmax(axis=1)[:, None, :, None]
        codes = np.take_along_axis(drawn, first, axis=1).reshape(-1, self._width)
        return self._space.repair(codes, rng).reshape(-1, n, self._width)

    def _drawn(self, n: int, rng: np.random.Generator) -> Codes:
        """Draw without a look at what only whole configurations can break."""
        count = len(self.logits)
        codes = np.zeros((count, n, self._width), np.int32)
        for table in self._tables:
            chances, _ = softmax(self.logits[:, table.logits].sum(axis=2))
            codes[:, :, table.dimensions] = table.tuples[_pick(chances, rng.random((count, n)))]
        if len(self._alone):
            points = rng.random((count, n, len(self._alone))) + np.arange(len(self._alone))
            sums = np.cumsum(self._chances_alone()[0], axis=1)  # 1 for each dimension
            picked = np.stack([np.searchsorted(*of) for of in zip(sums, points, strict=True)])
            # A cumulated sum may end just beside its whole number.
            picked = np.clip(picked, self._firsts, self._firsts + self._counts - 1)
            codes[:, :, self._alone] = self._choices[picked]
        for walk in self._walks:
            codes[:, :, walk.dimensions] = walk.draw(self.logits, n, rng)
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
        for walk in self._walks:  # there it depends on the way taken, and does not cancel
            gradient -= walk.expected(self.logits, codes[:, :, walk.dimensions], advantage / n)
        return gradient

    def entropy_gradient(self) -> FloatArray:
        """Gradient of the policies' entropy in the logits: (S, logits); exact where blocks are
        listed or free, that of the choices on the way of the last draw where they are walked."""
        gradient = np.zeros_like(self.logits)
        for table in self._tables:
            chances, logs = softmax(self.logits[:, table.logits].sum(axis=2))
            surprise = surprise_of(chances, logs)
            for s in range(len(gradient)):
                weights = np.broadcast_to(surprise[s][:, None], table.logits.shape)
                gradient[s] += np.bincount(
                    table.logits.ravel(), weights.ravel(), minlength=gradient.shape[1]
                )
        if len(self._alone):
            chances, logs = self._chances_alone()
            entropy = -np.add.reduceat(chances * logs, self._firsts, axis=1)
            gradient[:, self._places] -= chances * (logs + self._to_choices(entropy))
        for walk in self._walks:
            gradient += walk.entropy_gradient(self.logits)
        return gradient

    def _chances_alone(self) -> tuple[FloatArray, FloatArray]:
        """(S, choices) probabilities within each dimension that is drawn by itself, and their
        logarithms."""
        logits = self.logits[:, self._places]
        shifted = logits - self._to_choices(np.maximum.reduceat(logits, self._firsts, axis=1))
        chances = np.exp(shifted)
        total = self._to_choices(np.add.reduceat(chances, self._firsts, axis=1))
        return chances / total, shifted - np.log(total)

    def _to_choices(self, values: FloatArray) -> FloatArray:
        """(S, dimensions drawn by themselves) → (S, choices)."""
        return np.repeat(values, self._counts, axis=1)


def _pick(chances: FloatArray, points: FloatArray) -> IntArray:
    """(S, T) probabilities and (S, n) points in [0, 1) → (S, n) indices."""
    sums = np.cumsum(chances, axis=1)
    picked = [
        np.searchsorted(row, p * row[-1], side="right") for row, p in zip(sums, points, strict=True)
    ]
    places: IntArray = np.minimum(np.stack(picked), chances.shape[1] - 1)
    return places
