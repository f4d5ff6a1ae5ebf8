"""Exponential smoothing with a level, a trend and up to two seasons (Holt-Winters; Taylor 2003)."""

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.forecasting.methods import SignalHistory

__all__ = ["ExponentialSmoothing"]

WARM_UP = 6
"""Longest seasons that a new state is smoothed over: older ones weigh next to nothing."""
DAMPED = 0.98
"""What is left of the trend from one step to the next, at the resolution of 20 steps a day."""
ERROR_WEIGHT = 0.8
"""Part of the last error that the next slot repeats, fading likewise."""


class ExponentialSmoothing:
    """Additive. Goes on from slot to slot; begins anew where the seasons change.

    Args:
        level, trend, season: smoothing weights, at least 0 and below 1.
    """

    def __init__(self, level: float, trend: float, season: float) -> None:
        self.weights = (level, trend, season)
        self.name = f"exponential smoothing {level:g}/{trend:g}/{season:g}"
        self._seasons: tuple[int, ...] | None = None
        self._level = self._trend = self._error = 0.0
        self._tables: list[list[float]] = []
        self._arrays: list[FloatArray] | None = None
        """The same, for looking up many at once."""

    def observe(self, history: SignalHistory, fresh: int) -> None:
        """Smooth over the new slots; over the latest seasons where those are new."""
        seasons = history.seasons[:2]
        if not seasons:
            return
        if seasons != self._seasons:
            fresh = min(len(history.values), WARM_UP * max(seasons))
            self._begin(history, seasons, fresh)
        self._arrays = None
        alpha, beta, gamma = self.weights
        level, trend, error = self._level, self._trend, self._error
        slot = history.end - fresh
        rest = ERROR_WEIGHT
        for value in history.values[len(history.values) - fresh :].tolist():
            places = [slot % period for period in seasons]
            season = 0.0
            for table, place in zip(self._tables, places, strict=True):
                season += table[place]
            off = value - (level + trend + season)
            change = off - rest * error  # what the last error did not tell
            level += trend + alpha * change
            trend = DAMPED * trend + alpha * beta * change
            share = gamma * (1 - alpha) * change / len(seasons)
            for table, place in zip(self._tables, places, strict=True):
                table[place] += share
            error = value - (level + season)
            slot += 1
        self._level, self._trend, self._error = level, trend, error

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """None until there are two seasons."""
        if self._seasons is None or history.seasons[:2] != self._seasons:
            return None
        slots = history.end + steps - 1
        season = np.zeros(len(steps))
        if self._arrays is None:
            self._arrays = [np.asarray(table) for table in self._tables]
        for period, table in zip(self._seasons, self._arrays, strict=True):
            season += table[slots % period]
        grown = self._trend * (1 - DAMPED**steps) / (1 - DAMPED)
        return np.asarray(self._level + grown + season + self._error * ERROR_WEIGHT**steps)

    def _begin(self, history: SignalHistory, seasons: tuple[int, ...], fresh: int) -> None:
        """A level and seasons as the first of the slots have them."""
        self._seasons = seasons
        first = history.values[len(history.values) - fresh :]
        slots = history.end - fresh + np.arange(fresh)
        self._level, self._trend, self._error = float(first[: max(seasons)].mean()), 0.0, 0.0
        rest = first - self._level
        self._tables = []
        for period in seasons:
            table = np.zeros(period)
            span = min(fresh, max(seasons))
            total = np.bincount(slots[:span] % period, rest[:span], period)
            count = np.bincount(slots[:span] % period, minlength=period)
            table = total / np.maximum(count, 1)
            rest = rest - table[slots % period]
            self._tables.append(table.tolist())
