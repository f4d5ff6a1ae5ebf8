"""A matrix of raw columns as a linear model wants it: logarithms, one column per category value,
everything standardised."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.array_state import ArrayState

__all__ = ["DesignTransform"]

CLIP = 4.0
"""Standard deviations beyond which a column pulls no further."""
FARTHEST = 1e6
"""Standard deviations that stand for a value without bounds."""
WILD = 10.0
"""Times the width of nine in ten of a column's values by which one may lie beyond these and count
for the column's scale: one slip of a unit would leave nothing of what the others differ in."""
MAX_LEVELS = 64
"""Values of one category that get a column of their own, the most frequent ones."""


class DesignTransform(ArrayState, frozen=True, eq=False):
    """Numbers enter as log2 where all values are positive, categories one column per value.

    A missing value stands at the mean, which is 0, in each of its columns. A category without a
    column of its own stands in all of them where rows with another value stand."""

    numeric: IntArray
    logarithmic: IntArray
    """0 or 1 per numeric column."""
    levels: tuple[tuple[int, float], ...]
    """(column, code) of each category value."""
    mean: FloatArray
    inverse_sd: FloatArray

    @classmethod
    def fit(cls, X: FloatArray, categorical: Sequence[float] | FloatArray) -> Self:
        """Learn scales and category values from (n, F), n at least 1; ``categorical`` (F,) is 0 for
        a number, for a category the standard deviation that columns of its values get, mostly 1."""
        weight = np.asarray(categorical, np.float64)
        is_category = weight > 0
        numeric = np.flatnonzero(~is_category).astype(np.int64)
        with np.errstate(invalid="ignore"):
            positive = ~(X[:, numeric] <= 0).any(axis=0)
        logarithmic = np.asarray(positive, dtype=np.int64)
        levels = _levels(X, np.flatnonzero(is_category).astype(np.int64))
        blank = cls(numeric, logarithmic, levels, np.zeros(0), np.zeros(0))
        raw = blank._expand(X)
        _forget_wild(raw[:, : len(numeric)])
        mean, inverse_sd = _moments(raw)
        inverse_sd[len(numeric) :] *= weight[[column for column, _ in levels]]
        return cls(numeric, logarithmic, levels, mean, inverse_sd)

    @property
    def width(self) -> int:
        """Columns of the design."""
        return len(self.mean)

    @property
    def origins(self) -> IntArray:
        """(width,) the column of X that each column of the design is made from."""
        columns = np.array([column for column, _ in self.levels], dtype=np.int64)
        return np.concatenate([self.numeric, columns])

    def __call__(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, width), of mean 0 and mostly variance 1 on the data it was fitted to."""
        scaled = self.unclipped(X)
        return np.clip(scaled, -CLIP, CLIP, out=scaled)

    def unclipped(self, X: FloatArray) -> FloatArray:
        """The same, however far from the data: for how far that is, not for predicting there."""
        scaled = self._expand(X)
        scaled -= self.mean
        with np.errstate(over="ignore"):
            scaled *= self.inverse_sd
        if np.isfinite(scaled).all():  # mostly; the other way takes as long as all the rest
            return scaled
        return np.nan_to_num(scaled, copy=False, nan=0.0, posinf=FARTHEST, neginf=-FARTHEST)

    def _expand(self, X: FloatArray) -> FloatArray:
        numbers, logs = X[:, self.numeric].copy(), np.flatnonzero(self.logarithmic)
        positive = numbers[:, logs]
        # Outside the range seen a value may be 0 or negative: that is missing on this scale.
        positive[positive <= 0] = np.nan
        numbers[:, logs] = np.log2(positive, out=positive)
        columns = np.array([column for column, _ in self.levels], dtype=np.int64)
        codes = np.array([code for _, code in self.levels])
        values = X[:, columns]
        one_hot = (values == codes).astype(np.float64)
        one_hot[np.isnan(values)] = np.nan
        # Row by row: what is told of rows depends in the last bits on how they lie in memory, and
        # a model that is loaded has them so.
        return np.ascontiguousarray(np.concatenate([numbers, one_hot], axis=1))


def _levels(X: FloatArray, columns: IntArray) -> tuple[tuple[int, float], ...]:
    levels: list[tuple[int, float]] = []
    for column in columns.tolist():
        values = X[:, column]
        codes, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        frequent = np.sort(codes[np.argsort(-counts, kind="stable")[:MAX_LEVELS]])
        levels += [(column, float(code)) for code in frequent]
    return tuple(levels)


def _forget_wild(raw: FloatArray) -> None:
    """Let values that lie absurdly far off, in each column of (n, C), be missing."""
    for column in raw.T:
        known = column[np.isfinite(column)]
        if len(known):
            low, high = np.quantile(known, [0.05, 0.95])
            if high > low:
                reach = WILD * (high - low)
                column[(column < low - reach) | (column > high + reach)] = np.nan


def _moments(raw: FloatArray) -> tuple[FloatArray, FloatArray]:
    known = ~np.isnan(raw)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, raw, 0.0).sum(axis=0) / count
    scale = np.sqrt((np.where(known, raw - mean, 0.0) ** 2).sum(axis=0) / count)
    # A constant column says nothing: it is switched off rather than blown up.
    varies = scale > 1e-9 * np.maximum(np.abs(mean), 1.0)
    return mean, np.where(varies, 1.0 / np.where(varies, scale, 1.0), 0.0)
