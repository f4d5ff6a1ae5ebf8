"""The best that policies have seen, and what becomes of it when some of its places change."""

from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers.genes import distinct, genes_of
from tunerd.core.searchers.groups import repeated
from tunerd.core.space import SearchSpace

__all__ = ["EliteMutator", "PolicyElites"]

REACH = 0.5
"""From one to so many places (a power of their number) are changed, few more often than many."""
ANYWHERE = 0.5
"""Share of changes that are drawn from the space and not by the policy: it may be wrong."""
TRADED = 0.2
"""Share of changes that let two positions of a repeat parameter trade places: what is scarce, such
as memory, is then used elsewhere."""

STOCK = 512
"""Configurations drawn at once under rules that are too wide to list: repairing them takes many
steps, whose cost hardly hangs on how many there are."""


@dataclass(frozen=True, slots=True)
class PolicyElites:
    """The best that each of S policies has seen, best first."""

    codes: Codes
    """(S, m, D)"""
    scores: FloatArray
    """(S, m)"""

    @classmethod
    def of(cls, codes: Codes, scores: FloatArray, keep: int) -> "PolicyElites":
        """The ``keep`` best of (S, n, D), each once while there are enough; NaN is the worst."""
        values = np.where(np.isnan(scores), -np.inf, scores)
        order = np.empty((len(codes), keep), np.int64)
        for s in range(len(codes)):
            first = distinct(codes[s])
            order[s] = np.resize(first[np.argsort(-values[s][first], kind="stable")], keep)
        places = np.arange(len(codes))[:, None]
        return cls(codes[places, order], scores[places, order])


class EliteMutator:
    """Makes configurations out of good ones and newly drawn ones."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._gene_of, self._genes = genes_of(space)
        self._runs = list(repeated(space, least=2).values())
        self._stock = np.empty((0, len(space.sizes)), np.int32)

    def made(self, best: PolicyElites, drawn: Codes, rng: np.random.Generator) -> Codes:
        """Good configurations that take some places from ``drawn`` (S, n, D), or from anywhere;
        feasible. In some, positions of a repeat parameter trade places instead."""
        count, n, width = drawn.shape
        # Of two at random the better one is changed.
        good = best.codes[:, rng.integers(best.codes.shape[1], size=(2, n)).min(axis=0)]
        anywhere = self._anywhere(count * n, rng).reshape(drawn.shape)
        other = np.where(rng.random((count, n, 1)) < ANYWHERE, anywhere, drawn)
        places = self._genes ** (rng.random((count, n, 1)) * REACH)
        taken = rng.random((count, n, self._genes)) < places / self._genes
        made = np.where(taken[:, :, self._gene_of], other, good).reshape(count * n, width)
        traded = np.flatnonzero(rng.random(count * n) < TRADED * bool(self._runs))
        for row in traded.tolist():
            run = self._runs[rng.integers(len(self._runs))]
            source, two = rng.choice(run, size=2, replace=False)
            made[row] = good.reshape(count * n, width)[row]
            made[row, [source, two]] = made[row, [two, source]]
        return self._space.repair(made.astype(np.int32), rng).reshape(drawn.shape)

    def _anywhere(self, n: int, rng: np.random.Generator) -> Codes:
        """Draw n feasible configurations."""
        if self._space.size is not None:
            return self._space.sample(n, rng)
        if len(self._stock) < n:
            self._stock = self._space.sample(max(STOCK, n), rng)
        drawn, self._stock = self._stock[:n], self._stock[n:]
        return drawn
