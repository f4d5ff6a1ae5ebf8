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
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import msgspec

from tunerd.core.drift.rise import Moment
from tunerd.core.observation import Value

__all__ = ["Feature", "Inputs", "Shift"]

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
MOST_VALUES = 64
MOST_FEATURES = 100
NEW_JOBS, NEW_WITHIN = 5, 100
"""A value is new where so many of so many jobs have it and none before them: one of a context that
always was there but rare has not so many at once."""
ENOUGH = 300
"""Jobs before a value can be new."""
_MARK = msgspec.json.Encoder(order="deterministic").encode


class Feature(NamedTuple):
    """What is looked at."""

    group: Literal["context", "parameter"]
    name: str


class Shift(NamedTuple):
    """What was found."""

    feature: Feature
    value: Value
    """The new one; None where shares moved."""
    moved: float
    """Total variation, or the new value's share."""
    since: Moment


class _Shares:
    """One feature."""

    def __init__(self) -> None:
        self.latest: deque[tuple[str, int, float]] = deque()
        self.before: dict[str, float] = {}
        self.total = 0.0
        self.jobs = 0
        self.looks = [0.0, 0.0, 0.0]
        """Windows looked at, mean and mean square deviation of the logarithm of their distance."""
        self.fresh: dict[str, list[float]] = {}
        """Values first seen lately: jobs, and the sequence and moment of the first."""

    def see(self, mark: str, at: Moment) -> None:
        if mark not in self.before and len(self.before) >= MOST_VALUES:
            mark = f"#{zlib.crc32(mark.encode()) % 16}"
        if mark in self.fresh:
            self.fresh[mark][0] += 1
        elif mark not in self.before and self._count(mark) == 0:
            self.fresh[mark] = [1.0, float(self.jobs), float(at[0]), at[1]]
            if len(self.fresh) > MOST_VALUES:
                del self.fresh[next(iter(self.fresh))]
        self.jobs += 1
        self.latest.append((mark, *at))
        if len(self.latest) > LATEST:
            old, _, _ = self.latest.popleft()
            keep = 1.0 - 1.0 / BEFORE
            if self.jobs % LOOK_EVERY == 0:  # once for as many jobs
                keep **= LOOK_EVERY
                self.before = {k: v * keep for k, v in self.before.items() if v * keep > 0.01}
                self.total = sum(self.before.values())
            self.before[old] = self.before.get(old, 0.0) + 1.0
            self.total += 1.0

    def _count(self, mark: str) -> int:
        return sum(one[0] == mark for one in self.latest) if mark not in self.before else 1

    def new(self) -> tuple[str, Moment, float] | None:
        """A value that is new and there to stay."""
        for mark, (jobs, first, sequence, at) in list(self.fresh.items()):
            if self.jobs - first > NEW_WITHIN:
                del self.fresh[mark]
            elif first >= ENOUGH and jobs >= NEW_JOBS:
                del self.fresh[mark]
                return mark, (int(sequence), at), jobs / (self.jobs - first)
        return None

    def distance(self) -> float:
        """Total variation between the latest and those before."""
        counts: dict[str, int] = {}
        for mark, _, _ in self.latest:
            counts[mark] = counts.get(mark, 0) + 1
        n = len(self.latest)
        marks = counts.keys() | self.before.keys()
        return 0.5 * sum(
            abs(counts.get(m, 0) / n - self.before.get(m, 0.0) / self.total) for m in sorted(marks)
        )

    def look(self, beyond: float) -> float | None:
        """The distance where it is one that this feature never showed."""
        if self.jobs < 2 * LATEST or self.jobs % LOOK_EVERY:
            return None
        distance = self.distance()
        looks, mean, variance = self.looks
        size = math.log(distance + 0.02)
        if looks >= LOOKS and distance >= LEAST_SHIFT:
            sd = max(math.sqrt(variance), 0.1)
            if size > mean + beyond * sd:
                return distance
        looks = min(looks + 1.0, MEMORY)
        step = size - mean
        mean += step / looks
        variance += (step * (size - mean) - variance) / looks
        self.looks = [looks, mean, variance]
        return None

    def since(self) -> Moment:
        """Where in the window the two parts differ most."""
        marks = [one[0] for one in self.latest]
        counts: dict[str, float] = {}
        for mark in marks:
            counts[mark] = counts.get(mark, 0.0) + 1.0
        # Values that are more frequent now: the sum of their surplus turns upward at the change.
        n = len(marks)
        risen = {m for m, c in counts.items() if c / n > self.before.get(m, 0.0) / self.total}
        usual = sum(self.before.get(m, 0.0) for m in risen) / self.total
        middle = (usual + sum(counts[m] for m in risen) / n) / 2
        lowest, total, place = 0.0, 0.0, 0
        for i, mark in enumerate(marks):
            total += (mark in risen) - middle
            if total < lowest:
                lowest, place = total, i + 1
        _, sequence, at = self.latest[min(place, n - 1)]
        return sequence, at

    def settle(self) -> None:
        """What comes now is what is usual from here on."""
        counts: dict[str, float] = {}
        for mark, _, _ in self.latest:
            counts[mark] = counts.get(mark, 0.0) + 1.0
        self.before, self.total = counts, float(len(self.latest))

    def dump(self) -> dict[str, Any]:
        return {
            "latest": [list(one) for one in self.latest],
            "before": self.before,
            "total": self.total,
            "jobs": self.jobs,
            "looks": list(self.looks),
            "fresh": {mark: list(one) for mark, one in self.fresh.items()},
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "_Shares":
        shares = cls()
        shares.latest.extend((str(m), int(s), float(a)) for m, s, a in state["latest"])
        shares.before = dict(state["before"])
        shares.total, shares.jobs = state["total"], state["jobs"]
        shares.looks = list(state["looks"])
        shares.fresh = {mark: list(one) for mark, one in state["fresh"].items()}
        return shares


class Inputs:
    """All features of a study. Bounded; part of the watch's state."""

    def __init__(self, features: Iterable[Feature], quiet_jobs: float) -> None:
        self.features = tuple(features)[:MOST_FEATURES]
        self._shares = {feature: _Shares() for feature in self.features}
        looks = max(quiet_jobs / LOOK_EVERY * len(self.features), 10.0)
        self._beyond = WIDER * NormalDist().inv_cdf(1.0 - 1.0 / looks)

    def see(
        self, values: Mapping[Feature, Value], at: Moment, *, own: bool, live: bool
    ) -> list[Shift]:
        """Take in a job.

        Args:
            values: of each feature.
            at: which job it is.
            own: whether people chose its configuration, and not tunerd.
            live: False for one that was imported: it is the past against which others are held.
        """
        found = []
        for feature, shares in self._shares.items():
            if feature.group == "parameter" and not own:
                continue
            mark = _MARK(values.get(feature)).decode()
            shares.see(mark, at)
            new = shares.new()
            moved = shares.look(self._beyond)
            if not live:
                continue
            if new is not None:
                found.append(Shift(feature, _value(new[0]), new[2], new[1]))
                shares.settle()
            elif moved is not None:
                found.append(Shift(feature, None, moved, shares.since()))
                shares.settle()
        return found

    def dump(self) -> list[list[Any]]:
        """State as JSON values."""
        return [[*feature, shares.dump()] for feature, shares in self._shares.items()]

    def load(self, state: Sequence[Sequence[Any]]) -> None:
        """Become what gave ``state``; features that it lacks begin anew."""
        for group, name, shares in state:
            feature = Feature(group, name)
            if feature in self._shares:
                self._shares[feature] = _Shares.load(shares)


def _value(mark: str) -> Value:
    value: Value = mark if mark.startswith("#") else msgspec.json.decode(mark)
    return value
