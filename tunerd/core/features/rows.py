"""What models see of observations and candidates: one matrix and what is known of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray

__all__ = ["Rows"]


@dataclass(frozen=True)
class Rows:
    """n observations or candidates. ``FeatureMap.columns`` says what the columns are."""

    X: FloatArray
    """(n, F), NaN = missing."""
    score: FloatArray
    """(n,) oriented objective, NaN = none."""
    ran: FloatArray
    """(n,) 1 ran, 0 did not, NaN = says nothing about it."""
    ran_weight: FloatArray
    """(n,) how firmly ``ran`` is known: 1 firm, less for failures of unknown cause."""
    context_key: tuple[str, ...]
    """n context keys."""
    weight: FloatArray
    """(n,) weight of the score, positive."""
    margin: FloatArray
    """(n,) how far the job stayed within the nearest bound of a guard, in logarithms; negative
    beyond it, NaN where the job reported no guard's metric."""

    def __len__(self) -> int:
        return len(self.context_key)

    @property
    def names(self) -> list[tuple[str, bytes]]:
        """n names, by which a configuration in its context is known again."""
        return [(key, x.tobytes()) for key, x in zip(self.context_key, self.X, strict=True)]

    def take(self, where: IntArray) -> "Rows":
        """Return the rows at these places, in this order."""
        return Rows(
            X=self.X[where],
            score=self.score[where],
            ran=self.ran[where],
            ran_weight=self.ran_weight[where],
            context_key=tuple(self.context_key[i] for i in where.tolist()),
            weight=self.weight[where],
            margin=self.margin[where],
        )

    def joined(self, below: "Rows") -> "Rows":
        """Return these rows and then the others."""
        return Rows(
            X=np.concatenate([self.X, below.X]),
            score=np.concatenate([self.score, below.score]),
            ran=np.concatenate([self.ran, below.ran]),
            ran_weight=np.concatenate([self.ran_weight, below.ran_weight]),
            context_key=self.context_key + below.context_key,
            weight=np.concatenate([self.weight, below.weight]),
            margin=np.concatenate([self.margin, below.margin]),
        )

    @classmethod
    def asked(cls, X: FloatArray, context_key: Sequence[str]) -> "Rows":
        """Return rows (n, F) of n context keys, of which nothing is known."""
        nothing = np.full(len(X), np.nan)
        none, one = np.zeros(len(X)), np.ones(len(X))
        return cls(X, nothing, nothing, none, tuple(context_key), one, nothing)

    @classmethod
    def empty(cls, width: int = 0) -> "Rows":
        """Return no rows of ``width`` columns."""
        none = np.empty(0)
        return cls(np.empty((0, width)), none, none, none, (), none, none)
