"""Whether other jobs come than did: shares of values, and values that were never there.

Per context feature and parameter the latest :data:`LATEST` jobs are held against those before them
(total variation: the share of jobs that would have to be others). Traffic is never still: users
come and go, contexts swing over days. So what counts is not whether two windows differ, they always
do, but whether they differ as windows of this feature never did.

tunerd shifts its own inputs: who follows a recommendation runs what tunerd chose. Such jobs are not
looked at for parameters; contexts are nobody's choice.
"""

import math
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import msgspec

from tunerd.core.drift.shiryaev_roberts import Moment
from tunerd.core.observation import Value

__all__ = ["CovariateShift", "CovariateShiftDetector", "MonitoredFeature"]

LATEST = 200
LOOK_EVERY = 50
BEFORE = 2_000.0
"""Jobs before them that shares are remembered of."""
LOOKS = 12
"""Windows looked at before one can be unlike all others: at least 800 jobs."""
MEMORY = 60.0
LEAST_SHIFT = 0.3
"""Total variation below which nobody is told: three in ten jobs are others."""
WIDER = 1.25
"""Distances of windows are not quite normal, and windows overlap."""
LEAST_SD = 0.03
SETTLES = 800
"""Jobs after a shift that belong to it."""
MOST_VALUES, OTHERS = 64, 16
MOST_FEATURES = 100
NEW_JOBS, NEW_WITHIN = 5, 100
"""A value is new where so many of so many jobs have it and none before them: one of a context that
always was there but rare has not so many at once."""
ENOUGH = 300
"""Jobs before a value can be new."""
_MARK = msgspec.json.Encoder(order="deterministic").encode


class MonitoredFeature(NamedTuple):
    """What is looked at."""

    group: Literal["context", "parameter"]
    name: str


class CovariateShift(NamedTuple):
    """What was found."""

    feature: MonitoredFeature
    value: Value
    """The new one; None where shares moved."""
    moved: float
    """Total variation, or the new value's share."""
    since: Moment


class _ValueDistribution:
    """One feature. Values are kept by a code; those beyond the first :data:`MOST_VALUES` share
    :data:`OTHERS` codes."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.latest: deque[int] = deque()
        self.before = [0.0] * (MOST_VALUES + OTHERS)
        self.looks = [0.0, 0.0, 0.0]
        """Windows looked at, mean and mean square deviation of their distance."""
        self.fresh: dict[int, list[float]] = {}
        """Values first seen lately: their jobs, the number of the first, its moment."""

    def see(self, mark: str, number: int, at: Moment) -> None:
        """Take in the value of a job."""
        code = self.codes.get(mark)
        if code is None and len(self.codes) < MOST_VALUES:
            code = self.codes[mark] = len(self.codes)
            if number >= ENOUGH:
                self.fresh[code] = [0.0, float(number), float(at[0]), at[1]]
        elif code is None:
            code = MOST_VALUES + zlib.crc32(mark.encode()) % OTHERS
        if code in self.fresh:
            self.fresh[code][0] += 1.0
        self.latest.append(code)
        if len(self.latest) > LATEST:
            self.before[self.latest.popleft()] += 1.0
        if number % LOOK_EVERY == 0:  # once for as many jobs
            keep = (1.0 - 1.0 / BEFORE) ** LOOK_EVERY
            self.before = [jobs * keep for jobs in self.before]

    def new(self, number: int) -> tuple[int, Moment, float] | None:
        """A value that is new and there to stay: its code, when it came first, and its share of the
        jobs since. None where there is none."""
        for code, (jobs, first, sequence, at) in list(self.fresh.items()):
            if number - first > NEW_WITHIN:
                del self.fresh[code]
            elif jobs >= NEW_JOBS:
                del self.fresh[code]
                return code, (int(sequence), at), jobs / (number - first + 1.0)
        return None

    def distance(self) -> float:
        """Total variation between the latest and those before."""
        total = sum(self.before)
        counts = self._counts()
        n = len(self.latest)
        return 0.5 * sum(abs(c / n - b / total) for c, b in zip(counts, self.before, strict=True))

    def look(self, beyond: float) -> float | None:
        """The distance where it is one that this feature never showed, else None."""
        distance = self.distance()
        looks, mean, variance = self.looks
        if looks >= LOOKS and distance >= LEAST_SHIFT:
            sd = max(math.sqrt(variance), LEAST_SD)
            if distance > mean + beyond * sd:
                return distance
        looks = min(looks + 1.0, MEMORY)
        step = distance - mean
        mean += step / looks
        variance += (step * (distance - mean) - variance) / looks
        self.looks = [looks, mean, variance]
        return None

    def since(self) -> int:
        """Place in the window from where on its two parts differ most."""
        n, total, counts = len(self.latest), sum(self.before), self._counts()
        risen = [c / n > b / total for c, b in zip(counts, self.before, strict=True)]
        usual = sum(b for b, up in zip(self.before, risen, strict=True) if up) / total
        now = sum(c for c, up in zip(counts, risen, strict=True) if up) / n
        lowest, height, place = 0.0, 0.0, 0
        for i, code in enumerate(self.latest):
            height += risen[code] - (usual + now) / 2
            if height < lowest:
                lowest, place = height, i + 1
        return min(place, n - 1)

    def settle(self) -> None:
        """What comes now is what is usual from here on."""
        self.before = [float(count) for count in self._counts()]

    def value(self, code: int) -> Value:
        """What a code stands for."""
        decoded: Value = msgspec.json.decode(list(self.codes)[code])
        return decoded

    def _counts(self) -> list[int]:
        counts = [0] * len(self.before)
        for code in self.latest:
            counts[code] += 1
        return counts

    def dump(self) -> dict[str, Any]:
        """State as JSON values."""
        return {
            "codes": list(self.codes),
            "latest": list(self.latest),
            "before": {str(i): jobs for i, jobs in enumerate(self.before) if jobs},
            "looks": list(self.looks),
            "fresh": [[code, *counts] for code, counts in self.fresh.items()],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "_ValueDistribution":
        """Build from what :meth:`dump` gave."""
        shares = cls()
        shares.codes = {mark: code for code, mark in enumerate(state["codes"])}
        shares.latest.extend(state["latest"])
        for i, jobs in state["before"].items():
            shares.before[int(i)] = jobs
        shares.looks = list(state["looks"])
        shares.fresh = {code: counts for code, *counts in state["fresh"]}
        return shares


class _FeatureGroup:
    """Features that are looked at together, because the same jobs count for them."""

    def __init__(self, features: Iterable[MonitoredFeature]) -> None:
        self.shares = {feature: _ValueDistribution() for feature in features}
        self.jobs = 0
        self.quiet_until = 0
        """Number of the job up to which a shift that was told explains what comes."""
        self.moments: deque[Moment] = deque(maxlen=LATEST)

    def see(
        self, values: Mapping[MonitoredFeature, Value], at: Moment, beyond: float, *, live: bool
    ) -> CovariateShift | None:
        """Take in a job; returns the change that it completes, if any."""
        self.jobs += 1
        self.moments.append(at)
        shifts: list[CovariateShift] = []
        for feature, shares in self.shares.items():
            shares.see(_MARK(values.get(feature)).decode(), self.jobs, at)
            if new := shares.new(self.jobs):
                shifts.append(CovariateShift(feature, shares.value(new[0]), new[2], new[1]))
        if self.jobs % LOOK_EVERY == 0 and self.jobs >= max(2 * LATEST, self.quiet_until):
            moved = [(shares.look(beyond), name) for name, shares in self.shares.items()]
            known = [(distance, name) for distance, name in moved if distance is not None]
            if known and not shifts:
                distance, feature = max(known, key=lambda pair: pair[0])
                since = self.moments[self.shares[feature].since()]
                shifts.append(CovariateShift(feature, None, distance, since))
        if not shifts or not live:
            return None
        # What comes with it (the batch sizes of the new model) is part of it.
        self.quiet_until = self.jobs + SETTLES
        for shares in self.shares.values():
            shares.settle()
        return shifts[0]

    def dump(self) -> dict[str, Any]:
        """State as JSON values."""
        return {
            "jobs": self.jobs,
            "quiet_until": self.quiet_until,
            "moments": [list(moment) for moment in self.moments],
            "shares": {feature.name: moment.dump() for feature, moment in self.shares.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Become what gave ``state``."""
        self.jobs, self.quiet_until = state["jobs"], state["quiet_until"]
        self.moments.extend((int(sequence), float(at)) for sequence, at in state["moments"])
        for feature in self.shares:
            self.shares[feature] = _ValueDistribution.load(state["shares"][feature.name])


class CovariateShiftDetector:
    """All features of a study. Bounded; part of the watch's state."""

    def __init__(self, features: Iterable[MonitoredFeature], quiet_jobs: float) -> None:
        self.features = tuple(features)[:MOST_FEATURES]
        self._groups: dict[str, _FeatureGroup] = {
            group: _FeatureGroup(feature for feature in self.features if feature.group == group)
            for group in ("context", "parameter")
        }
        looks = max(quiet_jobs / LOOK_EVERY * len(self.features), 10.0)
        self._beyond = WIDER * NormalDist().inv_cdf(1.0 - 1.0 / looks)

    def see(
        self, values: Mapping[MonitoredFeature, Value], at: Moment, *, own: bool, live: bool
    ) -> list[CovariateShift]:
        """Take in a job.

        Args:
            values: of each feature.
            at: which job it is.
            own: whether people chose its configuration, and not tunerd.
            live: False for one that was imported: it is the past against which others are held.
        """
        shifts = [self._groups["context"].see(values, at, self._beyond, live=live)]
        if own:
            shifts.append(self._groups["parameter"].see(values, at, self._beyond, live=live))
        return [shift for shift in shifts if shift is not None]

    def dump(self) -> dict[str, Any]:
        """State as JSON values."""
        return {name: group.dump() for name, group in self._groups.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Become what gave ``state``."""
        for name, group in self._groups.items():
            group.load(state[name])
