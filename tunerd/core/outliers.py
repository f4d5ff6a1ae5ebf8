"""Which jobs report what no other job comes near: a slip of units, a counter that went wrong.

Such a value waits: it counts for nothing until another job comes near it. A change that is real
brings that job soon; a slip does not. What waits is compared in its context, or, where that has
hardly a job, with all jobs of the study. State is bounded; a job costs constant time.
"""

import math
import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["FAR", "OutlierFilter", "ReportedScore", "is_mark"]

FAR = math.log(30.0)
"""Logarithm of the factor by which a value lies outside all others before it is held back. A fall
from 400 to 30 is a factor of 13; slips of units are mostly 1,000, 1,024 or 3,600."""
WIDE = 1.0
"""It also lies farther outside than all others lie apart, times this: where configurations differ
by a factor of 1,000, another such step is nothing strange."""
NEAR = math.log(3.0)
"""Logarithm of the factor within which another job repeats a value."""
FAR_LINEAR = 30.0
"""On a linear scale: how many times the largest size that others have."""
FEW = 6
"""Jobs with a value in a context from which on it is compared with these …"""
EARLY = 10
"""First jobs of a context among which one may turn out later to be alone."""
LEAST = 4
"""Others that tell so: a mark may come more than once among the first."""
FEW_ANYWHERE = 20
"""… and in the whole study, for contexts with fewer."""
OTHERS = 2
"""Jobs of other configurations that repeat a value: one more slip is more likely than a change."""
WAITING = 8
"""Values of a context that wait for a repeat, the latest ones."""
MAX_CONTEXTS = 1_000
"""Contexts kept, those with the latest jobs."""

_LIMITS = frozenset(
    (
        *(2.0**bits - 1.0 for bits in (15, 16, 31, 32, 63, 64)),
        *(2.0**bits for bits in (31, 32, 53)),
        3.4028234663852886e38,
        sys.float_info.max,
    )
)


def is_mark(value: float) -> bool:
    """Whether people and programs choose a number to mark something: 1, 999, 1e20, the largest
    float. Measurements that are equal to one are rare."""
    if value in _LIMITS or value > 1e30:
        return True
    digits = f"{value:.15e}".partition("e")[0].replace(".", "").rstrip("0")
    return digits == "1" or set(digits) == {"9"}


class ReportedScore(NamedTuple):
    """What a job reported."""

    score: float
    """Oriented objective."""
    value: float
    """The metric as it came."""
    sequence: int
    config_id: str


@dataclass
class _ScoreRange:
    """Where the values of many jobs lie, in scores."""

    jobs: int = 0
    low: float = 0.0
    high: float = 0.0
    waiting: deque[ReportedScore] = field(default_factory=lambda: deque(maxlen=WAITING))
    """What was held back."""
    early: list[ReportedScore] = field(default_factory=list)
    """The first jobs, until there are more than :data:`EARLY`."""

    def add(self, job: ReportedScore) -> None:
        score = job.score
        self.low = min(self.low, score) if self.jobs else score
        self.high = max(self.high, score) if self.jobs else score
        self.jobs += 1
        self.early = [*self.early, job] if self.jobs <= EARLY else []

    def beyond(self, score: float) -> float:
        """How far a score lies outside; 0 inside."""
        return max(self.low - score, score - self.high, 0.0)

    def dump(self) -> list[Any]:
        kept = [[list(report) for report in these] for these in (self.waiting, self.early)]
        return [self.jobs, self.low, self.high, *kept]

    @classmethod
    def load(cls, state: Sequence[Any]) -> "_ScoreRange":
        loaded = cls(state[0], state[1], state[2])
        loaded.waiting.extend(ReportedScore(*report) for report in state[3])
        loaded.early = [ReportedScore(*report) for report in state[4]]
        return loaded


class OutlierFilter:
    """Tells values that no other comes near. Deterministic for its jobs in their order."""

    def __init__(self, *, log: bool) -> None:
        self._log = log
        self._everywhere = _ScoreRange()
        self._contexts: OrderedDict[str, _ScoreRange] = OrderedDict()

    def see(self, key: str, job: ReportedScore) -> list[ReportedScore]:
        """Take in one job of a context.

        Returns:
            Jobs whose values wait for a repeat from now on: this one, or one of the context's first
            that turned out to be alone.
        """
        here = self._contexts.pop(key, None) or _ScoreRange()
        self._contexts[key] = here
        if len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        others = here if here.jobs >= FEW else self._everywhere
        enough = FEW if others is here else FEW_ANYWHERE
        far = others.jobs >= enough and self._is_far(others, job.score)
        if far and not self._is_repeat(here, job):
            here.waiting.append(job)
            return [job]
        here.add(job)
        self._everywhere.add(job)
        return self._alone(here) if FEW < here.jobs <= EARLY else []

    def _alone(self, here: _ScoreRange) -> list[ReportedScore]:
        """The one of the first jobs that no other comes near, or those that share a mark; they are
        taken back."""
        for extreme in (min(here.early), max(here.early)):
            mark = is_mark(abs(extreme.value))
            alone = [
                report
                for report in here.early
                if report is extreme or (mark and report.value == extreme.value)
            ]
            rest = _ScoreRange()
            for other in here.early:
                if other not in alone:
                    rest.add(other)
            if rest.jobs >= LEAST and self._is_far(rest, extreme.score):
                here.jobs, here.low, here.high = rest.jobs, rest.low, rest.high
                here.early = rest.early
                here.waiting.extend(alone)
                return alone
        return []

    def _is_far(self, others: _ScoreRange, score: float) -> bool:
        reach = WIDE * (others.high - others.low)
        if self._log:
            return others.beyond(score) > max(FAR, reach)
        return others.beyond(score) > FAR_LINEAR * max(abs(others.low), abs(others.high), reach)

    def _is_repeat(self, here: _ScoreRange, job: ReportedScore) -> bool:
        """Whether others came near: one job of the same configuration, or :data:`OTHERS` of any.
        The very same round number again is a mark: it says nothing of how fast a job was, however
        many have it."""
        near = []
        for other in here.waiting:
            size = max(abs(job.score), abs(other.score))
            reach = NEAR if self._log else size * (1.0 - math.exp(-NEAR))
            same = job.value == other.value and is_mark(abs(job.value))
            if abs(job.score - other.score) <= reach and not same:
                near.append(other.config_id)
        return job.config_id in near or len(near) >= OTHERS

    def dump(self) -> dict[str, Any]:
        """State as JSON values; :meth:`load` gives it back exactly."""
        return {
            "log": self._log,
            "everywhere": self._everywhere.dump(),
            "contexts": [
                [key, *context_range.dump()] for key, context_range in self._contexts.items()
            ],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "OutlierFilter":
        """Build from what :meth:`dump` gave."""
        loaded = cls(log=state["log"])
        loaded._everywhere = _ScoreRange.load(state["everywhere"])
        for key, *fields in state["contexts"]:
            loaded._contexts[key] = _ScoreRange.load(fields)
        return loaded
