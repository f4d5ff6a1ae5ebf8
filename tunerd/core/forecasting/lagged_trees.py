"""Boosted trees on lags and the calendar: what a signal will be, off what it was."""

from functools import lru_cache

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.trees import TreeBooster, TreeDataset, TreeOptions
from tunerd.core.forecasting.methods import SeasonalMean, SignalHistory, mean_of
from tunerd.core.forecasting.seasons import DAY_S, WEEK_S

__all__ = ["LaggedTrees"]

FIT_EVERY_S = WEEK_S
ROWS = 1_200
"""Rows that it is fitted on, spread over origins of the latest weeks and steps ahead."""
ORIGINS_S = 8 * WEEK_S
LEAST_ROWS = 200
KNOTS = 24
"""Steps at which trees are asked; between them the correction is a straight line."""


class LaggedTrees:
    """Corrects the seasonal mean. One model for all steps ahead, the step being a feature."""

    name = "boosted trees on lags"

    def __init__(self) -> None:
        self._base = SeasonalMean(0, 0.15, 0.6)
        self._booster: TreeBooster | None = None
        self._seasons: tuple[int, ...] = ()
        self._fit_at = 0

    def observe(self, history: SignalHistory, fresh: int) -> None:
        """There is nothing to bring up to date."""

    def renew(self, history: SignalHistory, steps: IntArray) -> None:
        """Fit again where a week has passed."""
        due = history.end * history.resolution_s >= self._fit_at + FIT_EVERY_S
        if history.seasons and (due or history.seasons != self._seasons):
            self._fit(history, int(steps[-1]))

    def predict(self, history: SignalHistory, steps: IntArray) -> FloatArray | None:
        """None until there are enough rows to fit on."""
        if self._booster is None or history.seasons != self._seasons:
            return None
        asked = steps if len(steps) <= KNOTS else _knots(int(steps[0]), int(steps[-1]))
        features, base, scale = self._rows(history, asked)
        correction = self._booster.predict(features) * scale
        if asked is steps:
            return base + correction
        whole = self._base.predict(history, steps)
        return None if whole is None else whole + np.interp(steps, asked, correction)

    def _fit(self, history: SignalHistory, farthest: int) -> None:
        n, longest = len(history.values), max(history.seasons)
        reach = min(farthest, n // 4)
        first = max(2 * longest + 1, n - ORIGINS_S // history.resolution_s)
        last = n - reach
        self._fit_at = history.end * history.resolution_s
        self._seasons, self._booster = history.seasons, None
        steps = np.unique(np.geomspace(1, reach, 8).round().astype(np.int64))
        count = min(ROWS // len(steps), (last - first))
        if count * len(steps) < LEAST_ROWS:
            return
        tables, labels = [], []
        for origin in np.unique(np.linspace(first, last, count).round().astype(np.int64)):
            past = SignalHistory(
                history.values[:origin],
                history.end - n + int(origin),
                history.resolution_s,
                history.seasons,
            )
            features, base, scale = self._rows(past, steps)
            tables.append(features)
            labels.append((history.values[origin + steps - 1] - base) / scale)
        label = np.clip(np.concatenate(labels), -5.0, 5.0)
        options = TreeOptions(trees=40, leaves=12, min_rows=12, seed=0, learning_rate=0.12)
        self._booster = TreeDataset(np.concatenate(tables), ()).grow(label, options)

    def _rows(self, past: SignalHistory, steps: IntArray) -> tuple[FloatArray, FloatArray, float]:
        """Features (k, F), with the forecast that is corrected and the scale that all is told
        in."""
        base = self._base.predict(past, steps)
        assert base is not None
        day = past.seasons[0]
        recent = past.values[-day:]
        middle, scale = mean_of(recent), float(recent.std()) or 1.0
        time_s = (past.end + steps - 1) * float(past.resolution_s)
        hour = max(1, day // 24)
        columns = [
            steps,
            time_s % DAY_S,
            (time_s // DAY_S) % 7,
            (base - middle) / scale,
            *_latest(past.values, hour, middle, scale),
            *((past.past(steps, period)[0] - middle) / scale for period in past.seasons),
        ]
        features = np.empty((len(steps), len(columns)))
        for place, column in enumerate(columns):
            features[:, place] = column
        return features, base, scale


@lru_cache(64)
def _knots(first: int, last: int) -> IntArray:
    return np.unique(np.linspace(first, last, KNOTS).round().astype(np.int64))


def _latest(values: FloatArray, hour: int, middle: float, scale: float) -> list[float]:
    last = (float(values[-1]) - middle) / scale
    mean = (mean_of(values[-hour:]) - middle) / scale
    before = (mean_of(values[-2 * hour : -hour]) - middle) / scale
    return [last, mean, mean - before]
