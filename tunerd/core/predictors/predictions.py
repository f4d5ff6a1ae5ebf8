"""What is predicted of n configurations, by whoever predicts it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.conformal import ConformalBands

__all__ = ["Predictions"]

HARDLY = 1e-6
"""Standard deviation, relative to a score, of a metric that never changes."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of n configurations, in score units."""

    mean: FloatArray
    """(n,) expected score."""
    std: FloatArray
    """(n,) standard deviation of one job's score around ``mean``; larger far from the data."""
    epistemic_std: FloatArray
    """(n,) the part of ``std`` that more jobs would take away; all of it where a predictor does not
    tell them apart."""
    p_run: FloatArray
    """(n,) probability that it succeeds; 1 where nobody was asked."""
    extrapolation_std: FloatArray | None = None
    """(n,) standard deviation of what a value does that never was another; not in ``std``."""

    @classmethod
    def of_scores(
        cls, mean: FloatArray, std: FloatArray, epistemic_std: FloatArray | None = None
    ) -> Self:
        """Predictions of the score (n,) alone."""
        return cls(mean, std, std if epistemic_std is None else epistemic_std, np.ones(len(mean)))

    def adjusted(
        self, keys: Sequence[str], tried: BoolArray, bands: ConformalBands
    ) -> "Predictions":
        """Return what is said of these configurations: with a standard deviation, and after drift a
        mean, such that bands hold what they promise. The one place through which everybody asks.

        Args:
            keys: of the contexts of n configurations.
            tried: (n,) whether the configuration ran in its context before.
            bands: of the study.
        """
        return self._banded(*bands.adjusted(keys, self.mean, self.std, tried))

    def followed(
        self, keys: Sequence[str], tried: BoolArray, bands: ConformalBands, score: FloatArray
    ) -> "Predictions":
        """Return what is said of n jobs that ended, and let bands learn each of them.

        Args:
            keys: as for :meth:`adjusted`.
            tried: likewise.
            bands: likewise.
            score: (n,) what came, NaN for none. Each job is told by bands that know what came of
                those before it.
        """
        return self._banded(*bands.learn(keys, self.mean, self.std, score, tried))

    def _banded(self, mean: FloatArray, std: FloatArray) -> "Predictions":
        if self.extrapolation_std is not None:
            std = np.hypot(std, self.extrapolation_std)
        wider = np.maximum(std / np.maximum(self.std, 1e-300), 1.0)
        return Predictions(mean, std, self.epistemic_std * wider, self.p_run)

    def known_at(self, where: BoolArray, value: float) -> "Predictions":
        """The same, with one value (n,) where every job gives it, whatever it runs."""
        hardly = HARDLY * max(abs(value), HARDLY)
        return Predictions(
            np.where(where, value, self.mean),
            np.where(where, hardly, self.std),
            np.where(where, hardly, self.epistemic_std),
            self.p_run,
        )

    def concat(self, below: "Predictions") -> "Predictions":
        """Of these configurations and then the others, but for extrapolation."""
        both = zip(self._columns(), below._columns(), strict=True)
        return Predictions(*(np.concatenate(pair) for pair in both))

    def take(self, where: IntArray) -> "Predictions":
        """Of those at these places, in this order."""
        beyond = self.extrapolation_std
        mean, std, epistemic_std, p_run = (column[where] for column in self._columns())
        return Predictions(
            mean, std, epistemic_std, p_run, None if beyond is None else beyond[where]
        )

    def last(self, count: int) -> "Predictions":
        """Of so many of the last, or of all."""
        n = len(self.mean)
        return self.take(np.arange(max(0, n - count), n))

    def split(self, n: int) -> tuple["Predictions", "Predictions"]:
        """Of the first n, and of the others."""
        places = np.arange(len(self.mean))
        return self.take(places[:n]), self.take(places[n:])

    @classmethod
    def of_rows(cls, rows: Iterable[tuple["Predictions", int]]) -> "Predictions":
        """What was said of some rows, each named by the predictions and its place there."""
        parts = [[column[i] for column in predictions._columns()] for predictions, i in rows]
        return cls(*np.array(parts).reshape(-1, 4).T)

    def _columns(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return self.mean, self.std, self.epistemic_std, self.p_run
