"""The ledger: what following recommendations was worth, job by job and summed up.

Two differences are estimated of a job when it comes. Its *lead* is how far it was ahead of the
context's incumbent at the time. The incumbent's own lead over what was launched there first is the
sum of what each promotion was measured to gain, drawn towards what was predicted, less what was
taken back; where nothing was tested, of estimates. It needs no old jobs, so that a cluster that
slows down as a whole gains and loses nothing. Together they say how far a job was ahead of what
people launched before.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from tunerd.core.decisions.context_state import ContextState
from tunerd.core.evidence.gain_calibration import gained
from tunerd.core.evidence.prequential import LedgerEntry, PrequentialRecord, shortened
from tunerd.core.evidence.rollout import RolloutResult
from tunerd.core.evidence.uplift import UpliftTracker
from tunerd.core.recommendation import Kind
from tunerd.core.study import Study

__all__ = ["JobEntry", "Ledger", "LedgerAccount", "LedgerContext", "entered", "ledger"]


class _LedgerRollout(msgspec.Struct, frozen=True, gc=False):
    incumbent: str | None
    uplift: UpliftTracker
    verdicts: list[RolloutResult]


class LedgerContext(msgspec.Struct, frozen=True, gc=False):
    """What the ledger tells of a context's saved state; the rest of that takes ten times as long to
    read."""

    context: dict[str, Any]
    introduction: _LedgerRollout


WHOLE = 20.0
"""A lead beyond this, in scores on a log scale, is a broken metric."""


def entered(
    contexts: Mapping[str, ContextState], judged: Sequence[PrequentialRecord]
) -> list[PrequentialRecord]:
    """Jobs that are not learned yet, each with its entry; imported ones have none."""
    return [job if job.history else _entered(contexts[job.context_key], job) for job in judged]


def _entered(state: ContextState, one: PrequentialRecord) -> PrequentialRecord:
    introduction, outcome = state.introduction, one.outcome
    promise = state.promised.get(outcome.config_id) if outcome.told_to_try else None
    promised = None
    # How far a job is ahead of another incumbent tells nothing of what was promised against one.
    if promise and promise.gain is not None and promise.against == introduction.incumbent:
        promised = shortened(promise.gain)
    # A job may have been launched under an earlier incumbent, or name advice that never was.
    ahead = introduction.uplift.of(outcome.config_id, introduction.incumbent)
    lead = None
    if introduction.level is not None and outcome.score is not None:
        lead = outcome.score - introduction.level
    entry = LedgerEntry(
        lead=None if lead is None else shortened(lead),
        ahead=shortened(ahead),
        promised=promised,
        kind=None if promise is None else promise.kind.value,
    )
    return structs.replace(one, outcome=structs.replace(outcome, entry=entry))


@dataclass(slots=True)
class LedgerAccount:
    """Sums over jobs."""

    jobs: int = 0
    following: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    """Jobs that followed by trying a candidate, by its kind."""
    did_not_run: int = 0
    """Of those that tried something."""
    promises: int = 0
    """Jobs of candidates whose gain was predicted and came out."""
    promised: float = 0.0
    """Mean gain over the incumbent that was predicted of them."""
    realised: float = 0.0
    """Mean gain that they showed."""
    gpu_hours: float = 0.0
    """Of all jobs for which they are known."""
    saved: float = 0.0
    """GPU-hours that the same work would have taken more under what was launched before tunerd,
    over jobs that followed by keeping to the incumbent."""
    spent: float = 0.0
    """GPU-hours that trying took more than the incumbent would have, less what it took less."""

    def add(self, one: "JobEntry") -> None:
        """Enter one job."""
        self.jobs += 1
        if one.following is not None:
            self.following[one.following] = self.following.get(one.following, 0) + 1
        self.gpu_hours += one.gpu_hours
        self.saved += one.saved
        self.spent += one.spent
        self.did_not_run += one.did_not_run
        if one.tried is not None:
            self.tried[one.tried] = self.tried.get(one.tried, 0) + 1
        if one.promised is not None and one.realised is not None:
            self.promises += 1
            self.promised += (one.promised - self.promised) / self.promises
            self.realised += (one.realised - self.realised) / self.promises

    @property
    def overrated(self) -> float | None:
        """Predicted less realised gain; None before anything was tried."""
        return self.promised - self.realised if self.promises else None


class JobEntry(NamedTuple):
    """What a job adds to each account that it belongs to."""

    following: str | None
    gpu_hours: float
    saved: float = 0.0
    spent: float = 0.0
    tried: str | None = None
    did_not_run: bool = False
    promised: float | None = None
    realised: float | None = None

    @classmethod
    def of(cls, study: Study, one: PrequentialRecord) -> "JobEntry":
        """What a live job adds."""
        outcome, entry = one.outcome, one.outcome.entry
        following, hours = outcome.following, outcome.gpu_hours or 0.0
        if following != "followed" or entry is None:
            return cls(following, hours)
        if not outcome.told_to_try:
            if outcome.score is None or outcome.ran is False:
                return cls(following, hours)
            return cls(following, hours, saved=hours * _more(study, entry.ahead, outcome.score))
        failed, spent = outcome.ran is False, 0.0
        if failed:
            spent = hours
        elif entry.lead is not None and outcome.score is not None:
            spent = -hours * _more(study, entry.lead, outcome.score)
        tried, gain = entry.kind or Kind.EXPLORE.value, realised(study, one)
        return cls(following, hours, 0.0, spent, tried, failed, entry.promised, gain)


@dataclass
class Ledger:
    """Accounts of one study."""

    study: LedgerAccount = field(default_factory=LedgerAccount)
    contexts: dict[str, LedgerAccount] = field(default_factory=dict)
    recommendations: dict[str, LedgerAccount] = field(default_factory=dict)
    """Of the jobs that came while it was recommended."""


def ledger(
    study: Study, judged: Iterable[PrequentialRecord], *, recommendations: bool = True
) -> Ledger:
    """Sum up; imported jobs are left out. ``recommendations`` says whether each has an account."""
    made = Ledger()
    for job in judged:
        if job.history:
            continue
        entry = JobEntry.of(study, job)
        made.study.add(entry)
        _account(made.contexts, job.context_key).add(entry)
        recommendation_id = job.outcome.recommendation_id
        if recommendations and recommendation_id is not None:
            _account(made.recommendations, recommendation_id).add(entry)
    return made


def _account(accounts: dict[str, LedgerAccount], name: str) -> LedgerAccount:
    account = accounts.get(name)
    if account is None:
        account = accounts[name] = LedgerAccount()
    return account


def realised(study: Study, one: PrequentialRecord) -> float | None:
    """Gain of a job over the incumbent of its time, as a share; None where nobody knows, and of one
    that broke a guard, however fast."""
    entry, score = one.outcome.entry, one.outcome.score
    if entry is None or entry.lead is None or score is None or one.outcome.ran is False:
        return None
    if study.objective.scale == "log" and abs(entry.lead) > WHOLE:
        return None
    return gained(study, score, score - entry.lead)


def _more(study: Study, lead: float, score: float) -> float:
    """How much longer the same work takes without a lead, as a share: of a speed that is the gain,
    of a duration what it is shorter by beside what it is."""
    if study.objective.scale == "log":
        return math.expm1(max(-WHOLE, min(lead, WHOLE)))
    if study.objective.goal == "minimize":
        return -study.gain(score - lead, score)
    return study.gain(score, score - lead)
