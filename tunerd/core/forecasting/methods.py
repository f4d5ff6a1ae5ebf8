"""Methods that foresee a signal, side by side. A new one is a class and a line in :data:`METHODS`.

Each answers with one number a step ahead, its forecast of the middle. Bands are not their business:
:mod:`.bands` reads them off what came.

These are ours and not a library's. statsforecast brings numba, pandas and a compiler, and
statsmodels pandas and patsy; both fit a series anew at each origin (0.1 to 2 s for a month at five
minutes), where a thousand signals have 2.5 ms. What is here goes on from where it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray

__all__ = [
    "METHODS",
    "ForecastMethod",
    "Persistence",
    "SeasonalMean",
    "SeasonalNaive",
    "SignalHistory",
    "make_methods",
    "mean_of",
]

PAST_SEASONS = 6
"""Seasons that a seasonal mean looks back."""
COMPARED = 48
"""Slots of a window that are compared with theirs a season ago, at most: a week has 2,016."""
SEASON_WEIGHT = 0.75
"""Weight of each against the one after it."""


@dataclass(frozen=True, slots=True)
class SignalHistory:
    """What a method may look at."""

    values: FloatArray
    """(n,) slots, oldest first; gaps are filled in."""
    end: int
    """Number of the slot after the last."""
    resolution_s: int
    seasons: tuple[int, ...]
    """Periods in slots, the shortest first, that the history has at least twice."""
    _kept: dict[tuple[str, int, int], tuple[IntArray, FloatArray]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """What several methods ask for. With the steps beside it no other array has their id."""

    def past(self, steps: IntArray, period: int) -> FloatArray:
        """(seasons, k) what was there in the latest seasons, the latest first."""
        kept = self._kept.get(("past", period, id(steps)))
        if kept is None:
            places, lowest = _places(steps.tobytes(), period)
            seasons = min(PAST_SEASONS, 1 + (len(self.values) + lowest) // period)
            back = np.arange(seasons)[:, None] * period
            kept = steps, self.values[len(self.values) + places - back]
            self._kept["past", period, id(steps)] = kept
        return kept[1]

    def mean(self, steps: IntArray, period: int) -> FloatArray:
        """(k,) the weighted mean of that."""
        kept = self._kept.get(("mean", period, id(steps)))
        if kept is None:
            past = self.past(steps, period)
            weight, total = _season_weights(len(past))
            kept = steps, np.asarray(weight @ past / total)
            self._kept["mean", period, id(steps)] = kept
        return kept[1]


def mean_of(values: FloatArray) -> float:
    """The same number as ``values.mean()``, which takes four times as long for a few."""
    return float(np.add.reduce(values) / len(values))


class ForecastMethod(Protocol):
    """One way of foreseeing. It may keep a state, which :meth:`observe` brings up to date. To
    predict changes nothing."""

    @property
    def name(self) -> str:
        """For people."""

    def observe(self, history: SignalHistory, fresh: int) -> None:
        """See the last ``fresh`` slots, which are new."""

    def renew(self, history: SignalHistory, steps: IntArray) -> None:
        """Begin or fit anew where that is due, for forecasts of these steps. This comes as often as
        forecasts are scored."""

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """(k,) forecasts so many slots ahead, each at least 1; None while it cannot say."""


class _Stateless:
    """A method that needs the history only."""

    def observe(self, history: SignalHistory, fresh: int) -> None:
        """There is nothing to bring up to date."""

    def renew(self, history: SignalHistory, steps: IntArray) -> None:
        """There is nothing to fit."""


class Persistence(_Stateless):
    """As the last ``slots`` were on the mean."""

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self.name = "last value" if slots == 1 else f"mean of the last {slots}"

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """The same for each step."""
        if len(history.values) < self.slots:
            return None
        return np.full(len(steps), history.values[-self.slots :].mean())


def _season(history: SignalHistory, which: int) -> int | None:
    return history.seasons[which] if which < len(history.seasons) else None


@lru_cache(256)
def _places(steps: bytes, period: int) -> tuple[IntArray, int]:
    """Where in the latest season before a history's end slots so many steps ahead were, counted
    from that end, and the lowest of these."""
    ahead = np.frombuffer(steps, np.int64)
    places = ahead - 1 - period * np.maximum(1, -(-ahead // period))
    return places, int(places.min())


@lru_cache(PAST_SEASONS)
def _season_weights(seasons: int) -> tuple[FloatArray, float]:
    weight = np.asarray(SEASON_WEIGHT ** np.arange(seasons), np.float64)
    return weight, float(weight.sum())


@lru_cache(256)
def _fading(steps: bytes, slots: float) -> FloatArray:
    """What is left after so many steps, where 1/e is left after ``slots``."""
    return np.exp(-np.frombuffer(steps, np.int64) / slots)


@lru_cache(64)
def _compared(width: int) -> IntArray:
    """Slots of the latest ``width``, as steps ahead that are 0 or less."""
    return -np.arange(0, width, -(-width // COMPARED))


class SeasonalNaive(_Stateless):
    """As it was a season ago; with a ``window``, moved by how the latest slots differ from theirs a
    season ago. ``window`` and ``fading`` are in shares of the season: after ``fading`` steps 1/e of
    the difference is left."""

    def __init__(self, which: int, window: float = 0.0, fading: float = 0.0) -> None:
        self.which, self.window, self.fading = which, window, fading
        moved = f", moved {window:g}/{fading:g}" if window else ""
        self.name = f"season {which + 1} ago{moved}"

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """None until there are two seasons."""
        period = _season(history, self.which)
        if period is None:
            return None
        ago: FloatArray = history.past(steps, period)[0]
        if not self.window:
            return ago
        width = max(1, round(self.window * period))
        values, n = history.values, len(history.values)
        if n < period + width:
            return None
        moved = mean_of(values[-width:]) - mean_of(values[n - period - width : n - period])
        return np.asarray(ago + moved * _fading(steps.tobytes(), self.fading * period))


class SeasonalMean(_Stateless):
    """The weighted mean of the latest seasons, moved by how the latest slots differ from theirs; or
    their median, which does not repeat a burst or an outage of one of them."""

    def __init__(
        self, which: int, window: float = 0.0, fading: float = 0.0, *, median: bool = False
    ) -> None:
        self.which, self.window, self.fading, self.median = which, window, fading, median
        moved = f", moved {window:g}/{fading:g}" if window else ""
        self.name = f"{'median' if median else 'mean'} of season {which + 1}{moved}"

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """None until there are two seasons."""
        period = _season(history, self.which)
        if period is None:
            return None
        mean = self._mean(history, steps, period)
        if not self.window:
            return mean
        width = max(1, round(self.window * period))
        if len(history.values) < period + width:
            return None
        back = _compared(width)
        latest = history.values[len(history.values) - 1 + back]
        moved = mean_of(latest - self._mean(history, back, period))
        return np.asarray(mean + moved * _fading(steps.tobytes(), self.fading * period))

    def _mean(self, history: SignalHistory, steps: IntArray, period: int) -> FloatArray:
        if not self.median:
            return history.mean(steps, period)
        ascending = np.sort(history.past(steps, period), axis=0)  # np.median takes four times that
        return np.asarray(
            (ascending[(len(ascending) - 1) // 2] + ascending[len(ascending) // 2]) / 2
        )


METHODS: Sequence[Callable[[], ForecastMethod]]
"""Makers of the methods that a forecaster weighs against each other."""


def make_methods(
    makers: Sequence[Callable[[], ForecastMethod]] | None = None,
) -> list[ForecastMethod]:
    """New methods, one of each."""
    return [make() for make in (METHODS if makers is None else makers)]


def _lagged() -> ForecastMethod:
    from tunerd.core.forecasting.lagged_trees import LaggedTrees

    return LaggedTrees()


def _smoothing(level: float, trend: float, season: float) -> Callable[[], ForecastMethod]:
    def make() -> ForecastMethod:
        from tunerd.core.forecasting.smoothing import ExponentialSmoothing

        return ExponentialSmoothing(level, trend, season)

    return make


METHODS = (
    Persistence,
    *(
        (lambda which=which, window=window, fading=fading: SeasonalNaive(which, window, fading))
        for which in range(3)
        for window, fading in ((0.0, 0.0), (0.02, 0.1), (1.0, 100.0))
    ),
    *(
        (lambda which=which, window=window, fading=fading: SeasonalMean(which, window, fading))
        for which in range(3)
        for window, fading in ((0.02, 0.1), (0.15, 0.6), (1.0, 100.0))
    ),
    *((lambda which=which: SeasonalMean(which, 0.02, 0.1, median=True)) for which in range(2)),
    _smoothing(0.05, 0.0, 0.1),
    _smoothing(0.3, 0.0, 0.2),
    _smoothing(0.1, 0.01, 0.3),
    _lagged,
)
