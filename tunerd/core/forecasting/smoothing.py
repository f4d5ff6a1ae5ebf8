"""Exponential smoothing with a level, a trend and up to two seasons (Holt-Winters; Taylor 2003)."""

from functools import lru_cache

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


@lru_cache(64)
def _powers(steps: bytes) -> tuple[FloatArray, FloatArray]:
    """What is left of a trend's step and of an error so many steps ahead."""
    ahead = np.frombuffer(steps, np.int64)
    return np.asarray(DAMPED**ahead, np.float64), np.asarray(ERROR_WEIGHT**ahead, np.float64)


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
        self._tables: list[FloatArray] = []

    def observe(self, history: SignalHistory, fresh: int) -> None:
        """Smooth over the new slots."""
        seasons = history.seasons[:2]
        if not seasons or seasons != self._seasons:
            return
        first = len(history.values) - fresh
        while first < len(history.values):  # in pieces in which no place of a season comes twice
            last = min(first + min(seasons), len(history.values))
            slots = history.end - len(history.values) + np.arange(first, last)
            places = [slots % period for period in seasons]
            rows = [
                table[place].tolist() for table, place in zip(self._tables, places, strict=True)
            ]
            self._smooth(history.values[first:last].tolist(), rows)
            for table, place, row in zip(self._tables, places, rows, strict=True):
                table[place] = row
            first = last

    def renew(self, history: SignalHistory, steps: IntArray) -> None:  # noqa: ARG002
        """Smooth over the latest seasons where those are new."""
        seasons = history.seasons[:2]
        if seasons and seasons != self._seasons:
            fresh = min(len(history.values), WARM_UP * max(seasons))
            self._begin(history, seasons, fresh)
            self.observe(history, fresh)

    def _smooth(self, values: list[float], rows: list[list[float]]) -> None:
        """Go over slots, with what each season's table has for them, which is brought up to
        date."""
        alpha, beta, gamma = self.weights
        level, trend, error = self._level, self._trend, self._error
        rest, each = ERROR_WEIGHT, gamma * (1 - alpha)
        for i, value in enumerate(values):
            season = 0.0
            for row in rows:
                season += row[i]
            off = value - (level + trend + season)
            change = off - rest * error  # what the last error did not tell
            level += trend + alpha * change
            trend = DAMPED * trend + alpha * beta * change
            share = each * change / len(rows)
            for row in rows:
                row[i] += share
            error = value - (level + season)
        self._level, self._trend, self._error = level, trend, error

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """None until there are two seasons."""
        if self._seasons is None or history.seasons[:2] != self._seasons:
            return None
        slots = history.end + steps - 1
        season = np.zeros(len(steps))
        for period, table in zip(self._seasons, self._tables, strict=True):
            season += table[slots % period]
        damped, rest = _powers(steps.tobytes())
        grown = self._trend * (1 - damped) / (1 - DAMPED)
        return np.asarray(self._level + grown + season + self._error * rest)

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
            self._tables.append(table)
