"""Which jobs report what no other job comes near: a slip of units, a counter that went wrong.

Such a value waits: its job counts for nothing until another job comes near it. A change that is
real brings that job soon; a slip does not. A user does not confirm himself, unless he runs most of
the context's jobs. What waits is compared in its context, or, where that has hardly a job, with all
jobs of the study. State is bounded; a job costs constant time.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import field

from tunerd.core.saved_state import SavedState
from tunerd.core.study.parts import PlausibilityOptions

__all__ = [
    "FAR",
    "SLIP_RUNS",
    "HeldScore",
    "OutlierFilter",
    "QuarantineReason",
    "ReportedScore",
    "Screening",
    "is_mark",
]

QuarantineReason = Literal["bounds", "unit_slip", "beyond_best", "far", "bad"]
"""Why a job is not learned from: ``bounds``, a metric outside what the study file says;
``unit_slip``, a power of ten or a unit's factor away from what its configuration gives;
``beyond_best``, that far better than the best; ``far``, no other job comes near; ``bad``, an
operator said so."""

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
SLIP_RUNS = 3
"""Latest runs of a configuration, close together, beside which a slip of units shows."""
SLIP_SPREAD = math.log(1.5)
"""Logarithm of the factor within which these lie."""
SLIP_NEAR = math.log(1.15)
"""Logarithm of the factor within which a value is a unit's factor away."""
SLIPS = tuple(
    sorted(
        {
            *(power * math.log(10.0) for power in range(1, 13)),
            *(power * math.log(1024.0) for power in range(1, 5)),
            *(power * math.log(60.0) for power in range(1, 3)),
        }
    )
)
"""Logarithms of the factors between units: powers of ten, kibi and so on, minutes and hours."""
MOST_USERS = 32
"""Users of a context whose jobs are counted."""
MAX_CONTEXTS = 1_000
"""Contexts kept, those with the latest jobs."""

_DEFAULTS = PlausibilityOptions()
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
    user: str | None = None
    settled: bool = False
    """Whether it was believed after all, or because it came near another."""


class HeldScore(NamedTuple):
    """A job that is not learned from."""

    report: ReportedScore
    reason: QuarantineReason
    text: str
    """For a person."""


class Screening(NamedTuple):
    """What came of looking at one job."""

    held: Sequence[HeldScore] = ()
    """Jobs that wait from now on: this one, or some of the context's first that turned out to be
    alone."""
    confirmed: Sequence[int] = ()
    """Sequences of jobs that waited and that this one came near."""


class _ScoreRange(SavedState, array_like=True):
    """Where the values of many jobs lie, in scores."""

    jobs: int = 0
    low: float = 0.0
    high: float = 0.0
    reported: int = 0
    """Jobs, those that wait among them."""
    users: dict[str, int] = field(default_factory=dict)
    """User → jobs that he reported, :data:`MOST_USERS` at most."""
    waiting: list[ReportedScore] = field(default_factory=list)
    """What was held back, :data:`WAITING` at most."""
    early: list[ReportedScore] = field(default_factory=list)
    """The first jobs, until there are more than :data:`EARLY`."""

    def count(self, user: str | None) -> None:
        self.reported += 1
        if user is None:
            return
        self.users[user] = self.users.get(user, 0) + 1
        if len(self.users) > MOST_USERS:
            others = (name for name in self.users if name != user)
            del self.users[min(others, key=lambda name: (self.users[name], name))]

    def add(self, job: ReportedScore) -> None:
        score = job.score
        self.low = min(self.low, score) if self.jobs else score
        self.high = max(self.high, score) if self.jobs else score
        self.jobs += 1
        self.early = [*self.early, job] if self.jobs <= EARLY else []

    def wait(self, jobs: Iterable[ReportedScore]) -> None:
        self.waiting = [*self.waiting, *jobs][-WAITING:]

    def beyond(self, score: float) -> float:
        """How far a score lies outside; 0 inside."""
        return max(self.low - score, score - self.high, 0.0)


class OutlierFilter(SavedState):
    """Tells values that no other comes near. Deterministic for its jobs in their order."""

    log: bool
    """Whether scores are logarithms."""
    everywhere: _ScoreRange = field(default_factory=_ScoreRange)
    contexts: dict[str, _ScoreRange] = field(default_factory=dict)
    """By key, the one with the latest job at the end."""

    def see(
        self,
        key: str,
        job: ReportedScore,
        usual: Sequence[float] = (),
        options: PlausibilityOptions = _DEFAULTS,
        *,
        bad: bool = False,
    ) -> Screening:
        """Take in one job of a context; ``usual`` are the latest scores of its configuration,
        ``bad`` says whether an operator called it so."""
        here = self._here(key)
        here.count(job.user)
        if bad:
            return Screening([HeldScore(job, "bad", "an operator called it bad")])
        held = self._suspicion(here, job, usual, options)
        if held is None:
            here.add(job)
            self.everywhere.add(job)
            return Screening(self._alone(here) if FEW < here.jobs <= EARLY else [])
        near = self._repeated(here, job)
        if not near:
            here.wait([job])
            return Screening([held])
        self.accept(key, job, [report.sequence for report in near])
        return Screening((), [report.sequence for report in near if not report.settled])

    def accept(self, key: str, job: ReportedScore, settled: Sequence[int]) -> None:
        """Believe a job, and those with these sequences that waited, or that were not even held
        where history is learned anew: what comes near them is believed at once from now on."""
        here = self._here(key)
        for reports in (here.waiting, here.early):
            for place, report in enumerate(reports):
                if report.sequence in settled:
                    reports[place] = report._replace(settled=True)
        here.add(job._replace(settled=True))
        self.everywhere.add(job)

    def forget(self, key: str, sequence: int) -> None:
        """What a job of a context reported holds no longer: it confirms no other, and is not
        alone."""
        here = self.contexts.get(key)
        if here is None:
            return
        here.early = [report for report in here.early if report.sequence != sequence]
        here.waiting = [report for report in here.waiting if report.sequence != sequence]

    def _here(self, key: str) -> _ScoreRange:
        here = self.contexts.pop(key, None) or _ScoreRange()
        self.contexts[key] = here
        if len(self.contexts) > MAX_CONTEXTS:
            del self.contexts[next(iter(self.contexts))]
        return here

    def _suspicion(
        self,
        here: _ScoreRange,
        job: ReportedScore,
        usual: Sequence[float],
        options: PlausibilityOptions,
    ) -> HeldScore | None:
        """Why a job has to wait; None where nothing is strange about it."""
        slip = _slip(job.score, usual, log=self.log) if options.unit_slips else None
        if slip is not None:
            text = f"{_times(slip)} what its configuration gave in its latest runs"
            return HeldScore(job, "unit_slip", text)
        known = here.jobs >= FEW
        others = here if known else self.everywhere
        where = "its context" if known else "the study"
        if others.jobs < (FEW if known else FEW_ANYWHERE):
            return None
        if self._is_far(others, job.score):
            away = f"{_times(others.beyond(job.score))} farther than" if self.log else "far from"
            return HeldScore(job, "far", f"{away} every other job of {where}")
        above = job.score - others.high
        if self.log and known and above > math.log(options.beyond_best):
            return HeldScore(job, "beyond_best", f"{_times(above)} better than the best of {where}")
        return None

    def _alone(self, here: _ScoreRange) -> list[HeldScore]:
        """The one of the first jobs that no other comes near, or those that share a mark; they are
        taken back, but for those that are believed for good."""
        for extreme in (min(here.early), max(here.early)):
            if extreme.settled:
                continue
            mark = is_mark(abs(extreme.value))
            alone = [
                report
                for report in here.early
                if report is extreme
                or (mark and report.value == extreme.value and not report.settled)
            ]
            rest = _ScoreRange()
            for other in here.early:
                if other not in alone:
                    rest.add(other)
            if rest.jobs >= LEAST and self._is_far(rest, extreme.score):
                here.jobs, here.low, here.high = rest.jobs, rest.low, rest.high
                here.early = rest.early
                here.wait(alone)
                text = "no other of the first jobs of its context comes near"
                return [HeldScore(report, "far", text) for report in alone]
        return []

    def _is_far(self, others: _ScoreRange, score: float) -> bool:
        reach = WIDE * (others.high - others.low)
        if self.log:
            return others.beyond(score) > max(FAR, reach)
        return others.beyond(score) > FAR_LINEAR * max(abs(others.low), abs(others.high), reach)

    def _repeated(self, here: _ScoreRange, job: ReportedScore) -> list[ReportedScore]:
        """What waited and is believed now that this job came near: that takes one job of the same
        configuration, or :data:`OTHERS` of any, of another user. The very same round number again
        is a mark: it says nothing of how fast a job was, however many have it."""
        near = []
        for other in here.waiting:
            size = max(abs(job.score), abs(other.score))
            reach = NEAR if self.log else size * (1.0 - math.exp(-NEAR))
            same = job.value == other.value and is_mark(abs(job.value))
            if abs(job.score - other.score) <= reach and not same:
                near.append(other)
        mostly_his = 2 * here.users.get(job.user or "", 0) > here.reported
        heard = [
            other
            for other in near
            if mostly_his or other.user != job.user or other.user is None or other.settled
        ]
        enough = len(heard) >= OTHERS or any(
            other.settled or other.config_id == job.config_id for other in heard
        )
        return near if enough else []


def _slip(score: float, usual: Sequence[float], *, log: bool) -> float | None:
    """Logarithm of the factor by which a score lies away from the usual ones, where these are close
    together and it is one between units; None elsewhere."""
    latest = list(usual)[-SLIP_RUNS:]
    if not log:
        latest = [value / score if score else 0.0 for value in latest]
        if min(latest, default=0.0) <= 0.0:
            return None
        latest, score = [math.log(value) for value in latest], 0.0
    if len(latest) < SLIP_RUNS or max(latest) - min(latest) > SLIP_SPREAD:
        return None
    away = abs(score - sorted(latest)[len(latest) // 2])
    return away if any(abs(away - slip) <= SLIP_NEAR for slip in SLIPS) else None


def _times(logarithm: float) -> str:
    """A factor, for people."""
    factor = math.exp(min(logarithm, 700.0))
    return f"{factor:,.0f} times" if factor < 1e9 else f"{factor:.0e} times"
