"""What models see of observations and candidates: one matrix and what is known of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray

__all__ = ["FAINT", "FeatureRows"]

FAINT = 0.1
"""What a job has to count at least for what is learned between two fits, and for what repeats from
context to context. Less, and a crowd of them would push out what they are outweighed by: the next
fit looks at them, beside everything newer."""


@dataclass(frozen=True)
class FeatureRows:
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
    fading: FloatArray | None = None
    """(n,) what is left of each job now that there are newer ones; None where that is all of it. It
    is part of ``weight``, beside how firmly the score is known. A short job is one of today's and
    as far off as others will be; a faded one says little of what will be."""

    def __len__(self) -> int:
        return len(self.context_key)

    @property
    def counts(self) -> FloatArray:
        """(n,) what is left of each job, 1 where nothing has faded."""
        return np.ones(len(self)) if self.fading is None else self.fading

    def fresh(self) -> IntArray:
        """Return the places of the rows that are not faint."""
        return np.flatnonzero(self.counts >= FAINT)

    @property
    def names(self) -> list[tuple[str, bytes]]:
        """n names, by which a configuration in its context is known again."""
        return [(key, x.tobytes()) for key, x in zip(self.context_key, self.X, strict=True)]

    def take(self, where: IntArray) -> "FeatureRows":
        """Return the rows at these places, in this order."""
        return FeatureRows(
            X=self.X[where],
            score=self.score[where],
            ran=self.ran[where],
            ran_weight=self.ran_weight[where],
            context_key=tuple(self.context_key[i] for i in where.tolist()),
            weight=self.weight[where],
            margin=self.margin[where],
            fading=None if self.fading is None else self.fading[where],
        )

    def joined(self, below: "FeatureRows") -> "FeatureRows":
        """Return these rows and then the others."""
        faded = self.fading is not None or below.fading is not None
        return FeatureRows(
            X=np.concatenate([self.X, below.X]),
            score=np.concatenate([self.score, below.score]),
            ran=np.concatenate([self.ran, below.ran]),
            ran_weight=np.concatenate([self.ran_weight, below.ran_weight]),
            context_key=self.context_key + below.context_key,
            weight=np.concatenate([self.weight, below.weight]),
            margin=np.concatenate([self.margin, below.margin]),
            fading=np.concatenate([self.counts, below.counts]) if faded else None,
        )

    @classmethod
    def asked(cls, X: FloatArray, context_key: Sequence[str]) -> "FeatureRows":
        """Return rows (n, F) of n context keys, of which nothing is known."""
        nothing = np.full(len(X), np.nan)
        none, ones = np.zeros(len(X)), np.ones(len(X))
        return cls(X, nothing, nothing, none, tuple(context_key), ones, nothing)

    @classmethod
    def empty(cls, width: int = 0) -> "FeatureRows":
        """Return no rows of ``width`` columns."""
        none = np.empty(0)
        return cls(np.empty((0, width)), none, none, none, (), none, none)
