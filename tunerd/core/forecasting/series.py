"""A signal in slots of equal length: bounded, gaps known, late points taken, duplicates ignored."""

import math
from collections.abc import Iterable

import numpy as np

from tunerd.core.arrays import FloatArray

__all__ = ["LARGEST_JUMP", "SignalSeries"]

OPEN_SLOTS = 12
"""Latest slots that average several points. A point for an older slot only fills a gap: the times
of all points of a year would have to be kept to know a duplicate from a second point."""
SPACING_SLOTS = 2016
"""Latest slots that the usual distance of points is read off: a week at five minutes."""
SPACINGS = 64
"""Of the distances in them so many, the latest."""
LARGEST_JUMP = 1e100
"""Values beyond are no measurements: squares of them would be no numbers."""


class SignalSeries:
    """The latest ``capacity`` slots of one signal. A slot holds the mean of its points, or NaN.

    Times are seconds since 1970. Slots are numbered from there, so that slots of two series of one
    resolution that have the same number are the same time.
    """

    def __init__(self, resolution_s: int, capacity: int) -> None:
        if resolution_s < 1 or capacity < 2:
            raise ValueError(f"a series needs a resolution and slots: {resolution_s}, {capacity}")
        self.resolution_s = resolution_s
        self.capacity = capacity
        self.end = 0
        """Number of the slot after the last; 0 while there is none."""
        self._values = np.full(capacity + capacity // 4 + 1, math.nan)
        self._used = 0
        self._open: dict[int, dict[float, float]] = {}

    def __len__(self) -> int:
        return self._used

    @property
    def start(self) -> int:
        """Number of the first slot."""
        return self.end - self._used

    @property
    def nbytes(self) -> int:
        """Memory of the slots."""
        return self._values.nbytes

    @property
    def values(self) -> FloatArray:
        """The slots, oldest first; NaN for a gap. A view: not to be changed or kept."""
        return self._values[: self._used]

    def slot(self, time_s: float) -> int:
        """Number of the slot that a time lies in."""
        return math.floor(time_s / self.resolution_s)

    def add(self, time_s: float, value: float) -> bool:
        """Take a point in; whether it changed anything. A second point of the same time does not,
        nor one that is older than the series, nor one that is no number."""
        if not math.isfinite(time_s) or not math.isfinite(value) or abs(value) > LARGEST_JUMP:
            return False
        slot = self.slot(time_s)
        if self._used and slot < max(self.start, self.end - self.capacity):
            return False
        self.extend(slot + 1)
        if slot < self.start:
            return False
        if slot < self.end - OPEN_SLOTS:
            place = slot - self.start
            if not math.isnan(self._values[place]):
                return False
            self._values[place] = value
            return True
        points = self._open.setdefault(slot, {})
        if time_s in points:
            return False
        points[time_s] = value
        self._values[slot - self.start] = sum(points.values()) / len(points)
        return True

    def add_all(self, points: Iterable[tuple[float, float]]) -> int:
        """Take in (time, value) pairs; how many changed something."""
        return sum([self.add(time_s, value) for time_s, value in points])

    def extend(self, end: int) -> None:
        """Make gaps up to slot ``end``, which is not among them: time has passed."""
        if not self._used:
            self.end, self._used = end, 1
            self._values[0] = math.nan
            return
        grown = end - self.end
        if grown <= 0:
            return
        if grown >= self.capacity:
            self._used, self.end = 1, end
            self._values[0] = math.nan
        else:
            if self._used + grown > len(self._values):
                kept = self.capacity - grown
                self._values[:kept] = self._values[self._used - kept : self._used].copy()
                self._used = kept
            self._values[self._used : self._used + grown] = math.nan
            self._used += grown
            self.end = end
        if len(self._open) > 2 * OPEN_SLOTS:
            self._open = {k: v for k, v in self._open.items() if k >= end - OPEN_SLOTS}

    def spacing(self, end: int) -> int:
        """Slots from one point to the next, as nine of ten of the latest before slot ``end`` are at
        most: 1 where each slot has one, 2 or 3 for a point every ten minutes that is not quite
        punctual, in slots of five. 1 while there are fewer than three."""
        past = self._values[max(0, end - self.start - SPACING_SLOTS) : max(0, end - self.start)]
        distances = np.diff(np.flatnonzero(~np.isnan(past)))[-SPACINGS:]
        if len(distances) < 2:
            return 1
        return int(np.quantile(distances, 0.9, method="higher"))

    def between(self, start_s: float, end_s: float) -> float | None:
        """Mean over the slots that an interval touches; None where all are gaps."""
        first = max(self.slot(start_s), self.start) - self.start
        last = min(self.slot(end_s), self.end - 1) - self.start
        span = self.values[first : last + 1] if last >= first else self.values[:0]
        known = span[~np.isnan(span)]
        return float(known.mean()) if len(known) else None
