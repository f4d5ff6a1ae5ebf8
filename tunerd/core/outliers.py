"""Which jobs report what no other job comes near: a slip of units, a counter that went wrong.

Such a value waits: its job counts for nothing until other jobs come near it, in a way that slips do
not. A change replaces the old level, and a fast configuration is always fast; slips lie scattered
among ordinary jobs, whoever sends them. So jobs are believed that came one after another, or that
are all that their configuration reported lately, where that is no accident by the number of those
that wait. A user does not confirm himself, unless he runs most of the context's jobs. What waits is
compared in its context, or, where that has hardly a job, with all jobs of the study. State is
bounded; a job costs constant time.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import field

from tunerd.core.saved_state import SavedState
from tunerd.core.study.parts import PlausibilityOptions

__all__ = [
    "FAR",
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
WAITING = 16
"""Values of a context that wait for a repeat, the latest ones …"""
SETTLED = 4
"""… and of those that were believed after all."""
WINDOW = 64
"""Latest ordinary jobs among which those that wait are counted …"""
UNSLIPPED = 20
"""… and so many more: slips are taken for rare until they show."""
UNSLIPPED_RUNS = 5
"""The same among the runs of a configuration that is known."""
ACCIDENT = 0.03
"""Probability that slips lie by accident as a change does, below which the change is believed.
Divided by the square of how many others wait or waited: so the probabilities of all looks add up to
less than twice this, however long slips go on."""
SLIP_RUNS = 3
"""Latest runs of a configuration, close together, beside which a slip of units shows …"""
FAR_SLIP_RUNS = 2
"""… and so many beside which one by more than :data:`FAR` does."""
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
    away: float | None = None
    """Logarithm of the factor by which it lies above what its configuration gave; None where that
    is not known."""
    ordinary: int = 0
    """Jobs of its context before it that did not wait …"""
    loyal: int = 0
    """… of them, those that gave what their configuration gave before."""

    def against(self, inside: bool) -> int:
        """Jobs before it that speak against a change. ``inside`` the range of its context a new
        configuration may be fast or slow, and says nothing."""
        return self.loyal if inside else self.ordinary


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
    ordinary: int = 0
    """Jobs that did not wait …"""
    loyal: int = 0
    """… of them, those that gave what their configuration gave before."""
    users: dict[str, int] = field(default_factory=dict)
    """User → jobs that he reported, :data:`MOST_USERS` at most."""
    waiting: list[ReportedScore] = field(default_factory=list)
    """What was held back: :data:`SETTLED` that were believed after all, then :data:`WAITING`."""
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
        settled = [report for report in self.waiting if report.settled][-SETTLED:]
        waits = [report for report in self.waiting if not report.settled]
        self.waiting = settled + [*waits, *jobs][-WAITING:]

    def recent(self, job: ReportedScore, inside: bool) -> tuple[list[ReportedScore], int]:
        """What waits among the latest jobs before this one, and how many speak against a change.
        ``inside`` is as for :meth:`ReportedScore.against`."""
        waits = [w for w in self.waiting if not w.settled]
        first = max(job.against(inside) - WINDOW, 0)
        if len(waits) == WAITING:
            first = max(first, waits[0].against(inside))
        return [w for w in waits if w.against(inside) >= first], job.against(inside) - first

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
        usual: Sequence[tuple[float, int]] = (),
        options: PlausibilityOptions = _DEFAULTS,
        *,
        bad: bool = False,
    ) -> Screening:
        """Take in one job of a context; ``usual`` are the latest scores of its configuration, each
        with its sequence, ``bad`` says whether an operator called it so."""
        here = self._here(key)
        here.count(job.user)
        away = _away(job.score, usual, log=self.log)
        job = job._replace(away=away, ordinary=here.ordinary, loyal=here.loyal)
        if bad:
            return Screening([HeldScore(job, "bad", "an operator called it bad")])
        held = self._suspicion(here, job, usual, options)
        if held is None:
            here.ordinary += 1
            here.loyal += away is not None and abs(away) <= NEAR
            here.add(job)
            self.everywhere.add(job)
            return Screening(self._alone(here) if FEW < here.jobs <= EARLY else [])
        near = self._repeated(here, job, usual)
        if not near:
            here.wait([job])
            return Screening([held])
        self.accept(key, job, [report.sequence for report in near])
        return Screening((), [report.sequence for report in near if not report.settled])

    def accept(self, key: str, job: ReportedScore, settled: Sequence[int]) -> None:
        """Believe a job, and those with these sequences that waited, or that were not even held
        where history is learned anew: what comes near them is believed at once from now on, where
        its configuration was not as usual since."""
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
        usual: Sequence[tuple[float, int]],
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
        """Those of the first jobs that lie far from most, and among them; they are taken back, but
        for those that are believed for good."""
        ascending = sorted(here.early)
        for count in range((len(ascending) - 1) // 2, 0, -1):
            for few in (ascending[:count], ascending[-count:]):
                most = [report for report in here.early if report not in few]
                rest = _ScoreRange()
                for report in most:
                    rest.add(report)
                far = all(self._is_far(rest, report.score) for report in few)
                if rest.jobs >= LEAST and far and self._are_slips(few, most):
                    here.jobs, here.low, here.high = rest.jobs, rest.low, rest.high
                    here.early = rest.early
                    here.wait(few)
                    text = "no other of the first jobs of its context comes near"
                    return [HeldScore(report, "far", text) for report in few]
        return []

    def _are_slips(self, few: Sequence[ReportedScore], most: Sequence[ReportedScore]) -> bool:
        """Whether the few of a context's first jobs that lie together, far from most, look like
        slips: neither a change nor configurations that differ so much."""
        if any(report.settled for report in few):
            return False
        if len(few) == 1 or all(_is_same_mark(few[0], report) for report in few):
            return True
        names, others = {report.config_id for report in few}, {report.config_id for report in most}
        repeated = len(names) < len(few) and not names & others
        changed = min(report.ordinary for report in few) > max(report.ordinary for report in most)
        return not (repeated or changed) and self._is_near(few[0], few[-1])

    def _is_far(self, others: _ScoreRange, score: float) -> bool:
        reach = WIDE * (others.high - others.low)
        if self.log:
            return others.beyond(score) > max(FAR, reach)
        return others.beyond(score) > FAR_LINEAR * max(abs(others.low), abs(others.high), reach)

    def _repeated(
        self, here: _ScoreRange, job: ReportedScore, usual: Sequence[tuple[float, int]]
    ) -> list[ReportedScore]:
        """What waited and is believed now that this job came near it. It takes another user's job
        of the same configuration, or :data:`OTHERS` of any, and more where many wait: without an
        ordinary job of the context in between, or of the configuration."""
        latest = usual[-1][1] if usual else -1
        inside = here.jobs >= FEW and not self._is_far(here, job.score)
        near = [other for other in here.waiting if self._is_near(job, other)]
        own = [w for w in near if w.config_id == job.config_id and w.sequence > latest]
        run = [w for w in near if w.against(inside) == job.against(inside)]
        if any(w.settled and w.sequence > latest for w in near):
            return [w for w in near if w.settled or w in own or w in run]
        own, run = ([w for w in some if not w.settled] for some in (own, run))
        mostly_his = 2 * here.users.get(job.user or "", 0) > here.reported
        heard = [w for w in near if mostly_his or w.user != job.user or w.user is None]
        waits, ordinary = here.recent(job, inside)
        before = here.reported - here.jobs
        own_heard = [w for w in own if w in heard]
        if any(w in run for w in own_heard) or sum(w in heard for w in run) >= OTHERS:
            accident = _accident(len(run), len(waits) + 1, ordinary + UNSLIPPED)
            if accident < _allowed(before - len(run)):
                return run
        # Configurations that never were ordinary and agree with themselves do not look like slips.
        strangers = Counter(w.config_id for w in waits if w.away is None)
        del strangers[job.config_id]
        agree = sum(count for count in strangers.values() if count > 1)
        accident = _accident(len(own), len(waits) + 1 - agree, ordinary + UNSLIPPED)
        if usual:
            mine = 1 + sum(w.config_id == job.config_id for w in waits)
            within = _accident(len(own), mine, len(usual) + UNSLIPPED_RUNS)
            accident = max(accident, within)
        return own if own_heard and accident < _allowed(before - agree - len(own)) else []

    def _is_near(self, job: ReportedScore, other: ReportedScore) -> bool:
        """Whether a job repeats another: its value, or how far it lies away from what its
        configuration gave. The very same round number again is a mark: it says nothing of how fast
        a job was, however many have it."""
        if _is_same_mark(job, other):
            return False
        size = max(abs(job.score), abs(other.score))
        reach = NEAR if self.log else size * (1.0 - math.exp(-NEAR))
        if abs(job.score - other.score) <= reach:
            return True
        if job.away is None or other.away is None:
            return False
        return abs(job.away - other.away) <= NEAR


def _is_same_mark(job: ReportedScore, other: ReportedScore) -> bool:
    return job.value == other.value and is_mark(abs(job.value))


def _accident(count: int, slips: int, others: int) -> float:
    """Probability that of slips that lie among others by accident, so many came just before the
    latest one."""
    return math.comb(slips - 1, count) / math.comb(slips - 1 + others, count)


def _allowed(others: int) -> float:
    """Largest probability of an accident where so many other jobs wait or waited."""
    return ACCIDENT / max(1, others) ** 2


def _away(score: float, usual: Sequence[tuple[float, int]], *, log: bool) -> float | None:
    """Logarithm of the factor by which a score lies above the middle one of its configuration's
    latest; None where there is none, or their signs differ."""
    latest = sorted(value for value, _ in usual[-SLIP_RUNS:])
    if not latest:
        return None
    middle = latest[len(latest) // 2]
    if log:
        return score - middle
    ratio = score / middle if middle else 0.0
    return math.log(ratio) if 0.0 < ratio < math.inf else None


def _slip(score: float, usual: Sequence[tuple[float, int]], *, log: bool) -> float | None:
    """Logarithm of the factor by which a score lies away from the usual ones, where these are close
    together and it is one between units; None elsewhere."""
    aways = [_away(score, [run], log=log) for run in usual[-SLIP_RUNS:]]
    latest = sorted(away for away in aways if away is not None)
    if not latest or latest[-1] - latest[0] > SLIP_SPREAD:
        return None
    away = abs(latest[len(latest) // 2])
    known = len(latest) >= (SLIP_RUNS if away < FAR else FAR_SLIP_RUNS)
    return away if known and any(abs(away - slip) <= SLIP_NEAR for slip in SLIPS) else None


def _times(logarithm: float) -> str:
    """A factor, for people."""
    factor = math.exp(min(logarithm, 700.0))
    return f"{factor:,.0f} times" if factor < 1e9 else f"{factor:.0e} times"
