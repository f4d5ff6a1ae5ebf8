"""Quantiles of a signal that hold what they promise, per step ahead, adapting online.

The shape is that of the latest errors at the same step, told in units of how large errors are at
that time of the day. Its size is followed as that of the predictor's bands is: by DtACI
(:mod:`tunerd.core.conformal`), which keeps 80 % inside after a change too.
"""

import math

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.conformal import QuantileTracker
from tunerd.core.forecasting.seasons import DAY_S

__all__ = ["LEVELS", "ForecastBands"]

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantiles that are told."""
_LEVELS = np.array(LEVELS)
LOW, MIDDLE, HIGH = LEVELS.index(0.1), LEVELS.index(0.5), LEVELS.index(0.9)
LATEST = 240
"""Errors at each step whose quantiles are the shape."""
LEAST = 8
"""Errors from which there is a shape."""
HOURS = 24
HOUR_WEIGHT = 0.05
SIZE_WEIGHT = 0.03
WILDEST = 5.0
"""Usual errors that a single one counts as, at most, in how large errors are."""
MOST_COUNTED = 200.0
LARGEST = 3.0
"""Bound of the logarithm of what bands are multiplied by."""
FEW_ERRORS = 3.0
"""Bands are wider by this over how many errors there are that do not overlap. A forecast's errors
are known a whole forecast later, and overlapping ones are nearly one error."""
WIDEST = 1.5
HOUR_PRIOR = 30.0
"""Errors that the mean of all hours counts as, in the size of an hour."""


class ForecastBands:
    """Bands of one signal. Deterministic, bounded.

    Args:
        overlap: (leads,) how many forecasts are under way at a time, for each number of steps ahead
            that is scored; at least 1.
    """

    def __init__(self, overlap: FloatArray) -> None:
        leads = len(overlap)
        self._overlap = overlap.tolist()
        self._errors = np.full((leads, LATEST), math.nan)
        self._seen = np.zeros(leads, np.int64)
        self._size = np.zeros((2, HOURS))
        """By hour of the day: how large errors are, against those of all hours; how many."""
        self._mean_size = np.zeros(leads)
        self._trackers = [QuantileTracker() for _ in range(leads)]
        self._outdated = np.zeros(leads, np.int64)
        """Of the errors that were seen, those of a forecaster that knew less."""
        self._changed = set(range(leads))
        """Leads that learned something since what follows was made."""
        self._factors = np.ones(leads)
        self._offsets = np.full((leads, len(LEVELS)), math.nan)

    def renew(self) -> None:
        """The forecaster has just learned of its first season. Errors from before count until there
        are :data:`LEAST` new ones."""
        self._outdated[:] = self._seen
        self._size[:] = 0.0

    def scale(self, time_s: FloatArray) -> FloatArray:
        """(k,) how large errors are at these times of the day, against all hours."""
        hour = (time_s % DAY_S // (DAY_S // HOURS)).astype(np.int64)
        count = self._size[1, hour]
        return np.asarray((self._size[0, hour] * count + HOUR_PRIOR) / (count + HOUR_PRIOR))

    def offsets(self) -> FloatArray:
        """(leads, levels) what is added to a forecast, to be multiplied by :meth:`scale`; NaN where
        too little is known."""
        self._refresh()
        return self._offsets.copy()

    def factors(self) -> list[float]:
        """(leads,) what the shape is multiplied by."""
        self._refresh()
        return self._factors.tolist()

    def _refresh(self) -> None:
        if self._changed:
            leads = sorted(self._changed)
            self._factors[leads] = [self._factor(lead) for lead in leads]
            self._offsets[leads] = self._quantiles(leads)
            self._changed.clear()

    def _quantiles(self, leads: list[int]) -> FloatArray:
        known = np.minimum(self._seen[leads], LATEST)
        last = np.maximum(known - 1, 0)[:, None]
        rank = np.clip(_LEVELS * (known[:, None] + 1) - 1, 0, last)  # as one more is held
        below = rank.astype(np.int64)
        ascending = np.sort(self._errors[leads], axis=1)  # those that are missing come last
        row = np.arange(len(leads))[:, None]
        low, high = ascending[row, below], ascending[row, np.ceil(rank).astype(np.int64)]
        shape = low + (rank - below) * (high - low)
        middle = shape[:, MIDDLE, None]
        factor = self._factors[leads, None]
        return np.where(known[:, None] >= LEAST, middle + (shape - middle) * factor, math.nan)

    @property
    def nbytes(self) -> int:
        """Memory of the errors that are kept."""
        return self._errors.nbytes + self._size.nbytes

    def usual_error(self, lead: int) -> float:
        """Mean size of errors at a lead, bursts cut off; 0 while none was seen."""
        return float(self._mean_size[lead])

    def _factor(self, lead: int) -> float:
        apart = max(1, min(int(self._seen[lead]), LATEST)) / self._overlap[lead]
        widened = float(min(1.0 + FEW_ERRORS / apart, WIDEST))
        return widened * math.exp(max(-LARGEST, min(self._trackers[lead].value, LARGEST)))

    def learn(
        self,
        lead: int,
        error: float,
        time_s: float,
        offsets: FloatArray,
        factor: float,
        scale: float,
    ) -> None:
        """See an error of a forecast for a time, and the offsets, the factor and the scale that
        were told with it. They may have moved since: a band of a day ago is not one of today's."""
        self._changed.add(lead)
        hour = int(time_s % DAY_S // (DAY_S // HOURS))
        relative, count = self._size[:, hour].tolist()
        relative_error = error * (count + HOUR_PRIOR) / (relative * count + HOUR_PRIOR)
        low, high, middle = float(offsets[LOW]), float(offsets[HIGH]), float(offsets[MIDDLE])
        if high > low:
            # Sizes are against the band without the tracker's factor: that is what it follows.
            reach = (high - middle if relative_error > middle else middle - low) / factor
            size = abs(relative_error - middle) / reach if reach > 0 else WILDEST
            inside = low <= error / scale <= high  # of the band that was told
            self._trackers[lead].learn(math.log(min(max(size, 0.01), WILDEST)), inside=inside)
        self._errors[lead, self._seen[lead] % LATEST] = relative_error
        self._seen[lead] += 1
        if self._outdated[lead] and self._seen[lead] - self._outdated[lead] >= LEAST:
            self._begin(lead)
        self._resize(lead, abs(error), time_s)

    def _begin(self, lead: int) -> None:
        """Go on with the latest errors alone."""
        latest = self._errors[lead, (self._seen[lead] - 1 - np.arange(LEAST)) % LATEST]
        self._errors[lead] = math.nan
        self._errors[lead, :LEAST] = latest
        self._seen[lead], self._outdated[lead] = LEAST, 0
        self._mean_size[lead] = float(np.abs(latest).mean())
        self._trackers[lead] = QuantileTracker()

    def _resize(self, lead: int, error: float, time_s: float) -> None:
        """Follow how large errors are at this time of the day. A burst counts as a few usual
        errors."""
        usual, count = float(self._mean_size[lead]), int(self._seen[lead])
        if usual > 0 and count > LEAST:
            error = min(error, WILDEST * usual)
            hour = int(time_s % DAY_S // (DAY_S // HOURS))
            share = max(HOUR_WEIGHT, 1.0 / (self._size[1, hour] + 1))
            self._size[0, hour] += share * (error / usual - self._size[0, hour])
            self._size[1, hour] = min(self._size[1, hour] + 1, MOST_COUNTED)
        self._mean_size[lead] += max(SIZE_WEIGHT, 1.0 / count) * (error - usual)
