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
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Literal, NamedTuple, Self

import msgspec
from msgspec import field

from tunerd.core.drift.shiryaev_roberts import Moment
from tunerd.core.observation import Value
from tunerd.core.saved_state import SavedState

__all__ = ["CovariateShift", "CovariateShiftDetector"]

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


Group = Literal["context", "parameter"]
"""Whose features are looked at together, because the same jobs count for them."""


class CovariateShift(NamedTuple):
    """What was found."""

    group: Group
    name: str
    """Of the feature or parameter."""
    value: Value
    """The new one; None where shares moved."""
    moved: float
    """Total variation, or the new value's share."""
    since: Moment


class _ValueDistribution(SavedState):
    """One feature. Values are kept by a code; those beyond the first :data:`MOST_VALUES` share
    :data:`OTHERS` codes."""

    codes: dict[str, int] = field(default_factory=dict)
    latest: list[int] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    """By code, as far as there are any."""
    looks: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Windows looked at, mean and mean square deviation of their distance."""
    fresh: dict[int, list[float]] = field(default_factory=dict)
    """Values first seen lately: their jobs, the number of the first, its moment."""

    def see(self, mark: str, number: int, at: Moment) -> None:
        """Take in the value of a job."""
        code = self.codes.get(mark)
        if code is None and len(self.codes) < MOST_VALUES:
            code = self.codes[mark] = len(self.codes)
            self.before.append(0.0)
            if number >= ENOUGH:
                self.fresh[code] = [0.0, float(number), float(at[0]), at[1]]
        elif code is None:
            code = MOST_VALUES + zlib.crc32(mark.encode()) % OTHERS
            self.before += [0.0] * (MOST_VALUES + OTHERS - len(self.before))
        if code in self.fresh:
            self.fresh[code][0] += 1.0
        self.latest.append(code)
        if len(self.latest) > LATEST:
            self.before[self.latest.pop(0)] += 1.0
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


class _FeatureGroup(SavedState):
    group: Group
    shares: dict[str, _ValueDistribution]
    jobs: int = 0
    quiet_until: int = 0
    """Number of the job up to which a shift that was told explains what comes."""
    moments: list[Moment] = field(default_factory=list)

    def see(
        self, values: Mapping[str, Value], at: Moment, beyond: float, *, live: bool
    ) -> CovariateShift | None:
        """Take in a job; returns the change that it completes, if any."""
        self.jobs += 1
        self.moments.append(at)
        del self.moments[:-LATEST]
        shifts: list[CovariateShift] = []
        for name, shares in self.shares.items():
            shares.see(_MARK(values.get(name)).decode(), self.jobs, at)
            if new := shares.new(self.jobs):
                value = shares.value(new[0])
                shifts.append(CovariateShift(self.group, name, value, new[2], new[1]))
        if self.jobs % LOOK_EVERY == 0 and self.jobs >= max(2 * LATEST, self.quiet_until):
            moved = [(shares.look(beyond), name) for name, shares in self.shares.items()]
            known = [(distance, name) for distance, name in moved if distance is not None]
            if known and not shifts:
                distance, name = max(known, key=lambda pair: pair[0])
                since = self.moments[self.shares[name].since()]
                shifts.append(CovariateShift(self.group, name, None, distance, since))
        if not shifts or not live:
            return None
        # What comes with it (the batch sizes of the new model) is part of it.
        self.quiet_until = self.jobs + SETTLES
        for shares in self.shares.values():
            shares.settle()
        return shifts[0]


class CovariateShiftDetector(SavedState):
    """All features of a study. Bounded; part of the watch's state."""

    context: _FeatureGroup
    parameter: _FeatureGroup
    beyond: float
    """Standard deviations at which a window is unlike all others."""

    @classmethod
    def of(cls, features: Iterable[str], parameters: Iterable[str], quiet_jobs: float) -> Self:
        """Nothing was seen yet."""
        context = list(features)[:MOST_FEATURES]
        parameter = list(parameters)[: MOST_FEATURES - len(context)]
        looks = max(quiet_jobs / LOOK_EVERY * len(context + parameter), 10.0)
        return cls(
            _FeatureGroup("context", {name: _ValueDistribution() for name in context}),
            _FeatureGroup("parameter", {name: _ValueDistribution() for name in parameter}),
            WIDER * NormalDist().inv_cdf(1.0 - 1.0 / looks),
        )

    def see(
        self,
        context: Mapping[str, Value],
        config: Mapping[str, Value],
        at: Moment,
        *,
        own: bool,
        live: bool,
    ) -> list[CovariateShift]:
        """Take in a job.

        Args:
            context: what it was.
            config: what it ran.
            at: which job it is.
            own: whether people chose its configuration, and not tunerd.
            live: False for one that was imported: it is the past against which others are held.
        """
        shifts = [self.context.see(context, at, self.beyond, live=live)]
        if own:
            shifts.append(self.parameter.see(config, at, self.beyond, live=live))
        return [shift for shift in shifts if shift is not None]
