"""The watch over one study: every job, predicted before it is learned, goes through it once.

Pure and deterministic, bounded, constant cost per job. Of each alarm it says which kind, where and
since when; what then comes of the jobs there says when it is over.

Every detector gets a share of the study's budget of false alarms; half of the budget is kept back
for what permuting history does not show (work that hangs together over hours).
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from msgspec import field
from msgspec.structs import replace

from tunerd.core.drift.alarms import Drift, DriftRecovery, DriftUpdate, Kind, drift_id
from tunerd.core.drift.calibration import AlarmThreshold
from tunerd.core.drift.context_monitor import (
    FAILURE_ALTERNATIVES,
    SPEED_ALTERNATIVES,
    ContextMonitor,
    FailureOutcome,
)
from tunerd.core.drift.covariate_shift import CovariateShift, CovariateShiftDetector
from tunerd.core.drift.failure_rate import (
    FailureCalibration,
    failing_places,
    failure_gains,
    more_fail,
)
from tunerd.core.drift.rank_shift import RankShiftDetector, order_gains
from tunerd.core.drift.residuals import CHOSEN, ResidualScaler
from tunerd.core.drift.shiryaev_roberts import Moment, ShiryaevRoberts
from tunerd.core.observation import Scalar, Value
from tunerd.core.saved_state import SavedState
from tunerd.core.study import Study

if TYPE_CHECKING:
    from tunerd.core.evidence.prequential import PrequentialRecord

__all__ = ["DriftMonitor", "MonitoredContext", "MonitoredJob"]

SHARES = 6
"""Speed in a context and in the study, ranks, failures in a context and in the study, inputs."""
KEPT_BACK = 2.0
HERE = (0.5, 1.0, 2.0, -0.5, -1.0, -2.0)
"""By how many noises a context's speed may have moved."""
assert len(HERE) == SPEED_ALTERNATIVES
STUDY = (0.25, 0.5, 1.0, -0.25, -0.5, -1.0)
STUDY_CLIP = 2.0
"""What one job says about the whole study at most: a context that has drifted is not the study."""
KEPT = 512
"""Votes kept, to permute them and to say where."""
NAME = 12
"""Characters of a candidate id that tell configurations of one context apart."""
STRONG = 3.0
"""How many standard errors a context must lean to be named of a drift of the study."""
MOST_ACTIVE = 64

OVER: Mapping[Kind, tuple[int, int]] = {
    "speed": (20, 300),
    "ranks": (60, 600),
    "inputs": (100, 100),
    "failures": (30, 300),
}
"""Affected jobs after which a drift can be over, and after which it is what is usual."""
LAST = 20
HOLDS = 0.6
"""Share of the last jobs in their bands, which promise 0.8, from which on predictions hold."""
CENTRED = 0.5
"""Half widths of the band by which their mean error may be off."""


class MonitoredJob(NamedTuple):
    """A job, as far as the watch looks at it."""

    context: Mapping[str, Scalar]
    config: Mapping[str, Value]


class MonitoredContext(Protocol):
    """Whatever keeps what the watch remembers of a context."""

    watched: ContextMonitor


class DriftMonitor(SavedState):
    """See the module. Saved with the study; what it remembers of contexts is saved with these."""

    study: str
    linear: bool
    """Whether scores may lie on both sides of 0."""
    seed: int
    order: RankShiftDetector
    inputs: CovariateShiftDetector
    levels: dict[str, AlarmThreshold]
    active: list[DriftRecovery] = field(default_factory=list)
    """Drifts that are not over."""
    scales: ResidualScaler = field(default_factory=ResidualScaler)
    speed: ShiryaevRoberts = field(default_factory=lambda: ShiryaevRoberts.of(len(STUDY)))
    failing: ShiryaevRoberts = field(
        default_factory=lambda: ShiryaevRoberts.of(FAILURE_ALTERNATIVES)
    )
    failures: FailureCalibration = field(default_factory=FailureCalibration)
    votes: list[tuple[int, int, float, float]] = field(default_factory=list)
    """Sequence, context, vote and leaning vote."""
    seen: int = 0
    """Votes so far."""
    chances: list[tuple[float, bool]] = field(default_factory=list)
    outcomes: int = 0

    @classmethod
    def of(cls, study: Study) -> Self:
        """Nothing was seen yet."""
        budget = study.drift.quiet_jobs * SHARES * KEPT_BACK
        parameters = [parameter.name for parameter in study.parameters]
        return cls(
            study.name,
            study.objective.scale == "linear",
            study.predictor.seed,
            RankShiftDetector.of(parameters),
            CovariateShiftDetector.of((f.name for f in study.context), parameters, budget),
            {name: AlarmThreshold.of(budget) for name in ("here", "study", "order", "failing")},
        )

    def see(
        self,
        judged: "Sequence[PrequentialRecord]",
        jobs: Sequence[MonitoredJob],
        places: Mapping[str, MonitoredContext],
    ) -> list[DriftUpdate]:
        """Take in jobs in their order, each as it was judged before it was learned.

        Args:
            judged: what was predicted of them, and what came.
            jobs: what they were, in the same order.
            places: what is remembered of contexts, by key; each has a ``watched``.

        Returns:
            What is to be said.
        """
        updates: list[DriftUpdate] = []
        for job, ran in zip(judged, jobs, strict=True):
            updates += self._see(job, ran, places)
        self._calibrate()
        return updates

    def concerning(self, context_key: str) -> list[Drift]:
        """Drifts of speed or ranks that act on a context and are not over."""
        return [
            recovery.drift
            for recovery in self.active
            if recovery.drift.of_speed and recovery.drift.concerns(context_key)
        ]

    # -- one job ----------------------------------------------------------------------------

    def _see(
        self, one: "PrequentialRecord", ran: MonitoredJob, places: Mapping[str, MonitoredContext]
    ) -> list[DriftUpdate]:
        at: Moment = (one.sequence, one.finished_at.timestamp())
        here: ContextMonitor = places[one.context_key].watched
        alarms: list[Drift] = []
        alarms += self._look_at_inputs(one, ran, at)
        alarms += self._look_at_failures(one, here, at, places)
        if one.outcome.score is not None:
            alarms += self._look_at_speed(one, ran, here, at, places)
        if one.history:
            return []  # the past may come in any order
        return [self._noted(drift, one) for drift in alarms] + self._what_is_over(one, places)

    def _look_at_speed(
        self,
        one: "PrequentialRecord",
        ran: MonitoredJob,
        here: ContextMonitor,
        at: Moment,
        places: Mapping[str, MonitoredContext],
    ) -> list[Drift]:
        outcome = one.outcome
        assert outcome.score is not None
        predicted = None
        if outcome.predicted is not None and outcome.high is not None and outcome.low is not None:
            predicted = (outcome.predicted, (outcome.high - outcome.low) / 2.0)
        off = None
        if here.jobs >= 3:
            off = (outcome.score - here.mean) / self.scales.noise(here)
        # While predictions are known to be off they tell nothing of the next change.
        doubtful = _chosen(one) or bool(self.concerning(one.context_key))
        vote = self.scales.judge(
            here, outcome.config_id[:NAME], outcome.score, predicted, at, chosen=doubtful
        )
        lean = None if vote is None else vote.lean
        order = self.order.see(ran.config, off, lean, at)
        if vote is None:
            return []
        self.seen += 1
        self.votes.append(
            (one.sequence, _crc(one.context_key), round(vote.u, 4), round(vote.lean, 4))
        )
        del self.votes[:-KEPT]
        small = max(-STUDY_CLIP, min(vote.u, STUDY_CLIP))
        study = self.speed.add(_speed_gains(small, STUDY), at)
        context = here.speed.add(_speed_gains(vote.u, HERE), at)
        if context > self.levels["here"].level:
            return [self._slower_here(one, here)]
        if order > self.levels["order"].level:
            return [self._other_order(one, places)]
        if study > self.levels["study"].level:
            return self._slower_everywhere(one, places)
        return []

    # -- alarms -----------------------------------------------------------------------------

    def _slower_here(self, one: "PrequentialRecord", here: ContextMonitor) -> Drift:
        since = here.speed.since
        moved, level = here.moved(since[0]) or (None, None)
        self._forget_votes(since[0], {_crc(one.context_key)})
        here.begin_again(since[0], moved)
        self.speed.reset()
        return self._drift(
            "speed",
            one,
            since,
            contexts=(one.context_key,),
            moved=moved,
            level=self._share_of(level, [here]),
        )

    def _slower_everywhere(
        self, one: "PrequentialRecord", places: Mapping[str, MonitoredContext]
    ) -> list[Drift]:
        """The study as a whole moved: in all contexts, or in those that lean most."""
        since = self.speed.since
        sign = 1.0 if STUDY[self.speed.best] > 0 else -1.0
        votes: dict[int, list[float]] = {}
        for sequence, context, u, _ in self.votes:
            if sequence >= since[0]:
                votes.setdefault(context, []).append(sign * u)
        leaning = [key for key, us in votes.items() if fmean(us) > 0.0]
        everywhere = len(leaning) >= 0.75 * len(votes) and len(votes) > 2
        strong = {key for key, us in votes.items() if fmean(us) * len(us) ** 0.5 > STRONG}
        named = [key for key in places if everywhere or _crc(key) in strong]
        if not named:
            named = [one.context_key]
        moves = {key: places[key].watched.moved(since[0]) for key in named}
        known = [move for move in moves.values() if move is not None]
        usual = float(np.median([moved for moved, _ in known])) if known else None
        level = fmean(level for _, level in known) if known else None
        self._forget_votes(since[0], {_crc(key) for key in named})
        for key in named:
            moved, _ = moves[key] or (usual or 0.0, None)
            places[key].watched.begin_again(since[0], moved)
        self.speed.reset()
        contexts = () if everywhere else tuple(sorted(named))
        level = self._share_of(level, [places[key].watched for key in named])
        return [self._drift("speed", one, since, contexts=contexts, moved=usual, level=level)]

    def _share_of(self, level: float | None, heres: Sequence[ContextMonitor]) -> float | None:
        """The level that a move is told as a share of; None where it is none, for a linear
        objective lies on both sides of 0 in these contexts."""
        if not self.linear:
            return level
        scores = [recent.score for here in heres for recent in here.lately]
        return None if min(scores) < 0.0 < max(scores) else level

    def _other_order(
        self, one: "PrequentialRecord", places: Mapping[str, MonitoredContext]
    ) -> Drift:
        since, parameter = self.order.rise.since, self.order.parameter
        self._forget_votes(since[0], None)
        for place in places.values():
            place.watched.begin_again(since[0], None)
        self.speed.reset()
        self.order = RankShiftDetector.of(self.order.effects)  # learned anew
        return self._drift("ranks", one, since, parameter=parameter)

    def _look_at_failures(
        self,
        one: "PrequentialRecord",
        here: ContextMonitor,
        at: Moment,
        places: Mapping[str, MonitoredContext],
    ) -> list[Drift]:
        outcome = one.outcome
        if outcome.ran is None:
            return []
        cell = here.cell(outcome.config_id[:NAME])
        chance, place = self.failures.chance(cell, outcome.feasible)
        failed = not outcome.ran
        # What was chosen for what is expected of it falls short of it more often than not.
        doubtful = _chosen(one) and cell.ran + cell.failed < CHOSEN
        usual, here.failures = (
            here.failures,
            self.failures.learn_context(here.failures, chance, failed=failed),
        )
        chance = self.failures.of_context(chance, usual)
        self.failures.learn(place, failed=failed)
        cell.ran += outcome.ran
        cell.failed += failed
        self.outcomes += 1
        if self.outcomes <= 50 or doubtful:
            return []
        self.chances.append((chance, failed))
        del self.chances[:-KEPT]
        here.ended(FailureOutcome(one.sequence, round(chance, 4), failed))
        gains = failure_gains(chance, failed=failed)
        level = self.levels["failing"].level
        study, context = self.failing.add(gains, at), here.failing.add(gains, at)
        if max(study, context) <= level:
            return []
        local = context > level
        since = (here.failing if local else self.failing).since
        concerned = [one.context_key] if local else list(places)
        came = {key: places[key].watched.came(since[0]) for key in concerned}
        contexts = tuple(concerned if local else sorted(failing_places(came)))
        concerned = list(contexts) or concerned
        moved = more_fail(job for key in concerned for job in came[key])
        self.failing.reset()
        for key in concerned:
            places[key].watched.failing.reset()
        for following in self.active:
            known = following.drift
            if known.kind == "failures" and any(map(known.concerns, {*concerned, one.context_key})):
                following.jobs = 0  # what tells its end has begun again
        return [self._drift("failures", one, since, contexts=contexts, moved=moved)]

    def _look_at_inputs(
        self, one: "PrequentialRecord", ran: MonitoredJob, at: Moment
    ) -> list[Drift]:
        own = one.outcome.following in (None, "unasked", "ignored") and one.outcome.ran_as is None
        shifts = self.inputs.see(ran.context, ran.config, at, own=own, live=not one.history)
        return [self._shifted(one, shift) for shift in shifts]

    def _shifted(self, one: "PrequentialRecord", shift: CovariateShift) -> Drift:
        context = shift.group == "context"
        value = shift.value if not isinstance(shift.value, list) else str(shift.value)
        return self._drift(
            "inputs",
            one,
            shift.since,
            feature=shift.name if context else None,
            parameter=None if context else shift.name,
            value=value,
            moved=shift.moved,
        )

    def _drift(
        self,
        kind: Kind,
        one: "PrequentialRecord",
        since: Moment,
        *,
        contexts: tuple[str, ...] = (),
        parameter: str | None = None,
        feature: str | None = None,
        value: Scalar = None,
        moved: float | None = None,
        level: float | None = None,
    ) -> Drift:
        if since[0] <= 0:
            since = (one.sequence, one.finished_at.timestamp())
        drift = Drift(
            drift_id="",
            kind=kind,
            since=since[0],
            since_at=datetime.fromtimestamp(since[1], UTC),
            noticed=one.sequence,
            noticed_at=one.finished_at,
            contexts=contexts,
            parameter=parameter,
            feature=feature,
            value=value,
            moved=moved,
            level=level,
        )
        name = drift_id(self.study, kind, drift.place, one.sequence)
        return replace(drift, drift_id=name)

    def _noted(self, drift: Drift, one: "PrequentialRecord") -> DriftUpdate:
        """A drift is new, or one that was known has grown."""
        for i, following in enumerate(self.active):
            if following.drift.place == drift.place:
                grown = following.drift.again(drift)
                self.active[i] = DriftRecovery(grown)
                return DriftUpdate("grew", grown, one.sequence, one.finished_at)
        self.active.append(DriftRecovery(drift))
        del self.active[:-MOST_ACTIVE]
        return DriftUpdate("began", drift, one.sequence, one.finished_at)

    # -- the end ----------------------------------------------------------------------------

    def _what_is_over(
        self, one: "PrequentialRecord", places: Mapping[str, MonitoredContext]
    ) -> list[DriftUpdate]:
        outcome = one.outcome
        changes = []
        for following in list(self.active):
            drift = following.drift
            if one.sequence <= drift.noticed or not drift.concerns(one.context_key):
                continue
            least, most = OVER[drift.kind]
            following.jobs += 1
            if (
                outcome.score is not None
                and outcome.predicted is not None
                and outcome.high is not None
            ):
                half = max(outcome.high - outcome.predicted, 1e-300)
                error = (outcome.score - outcome.predicted) / half
                following.errors = [*following.errors, error][-LAST:]
                following.held = [*following.held, abs(error) <= 1.0][-LAST:]
            why = ""
            if following.jobs >= most:
                why = f"{following.jobs} jobs since: what it is now is what is usual."
            elif drift.kind in ("speed", "ranks") and following.jobs >= least:
                held, errors = following.held, following.errors
                if (
                    len(held) == LAST
                    and fmean(held) >= HOLDS
                    and abs(fmean(max(-2.0, min(error, 2.0)) for error in errors)) <= CENTRED
                ):
                    why = f"Predictions hold again: {sum(held)} of the last {LAST} jobs in bands."
            elif drift.kind == "failures" and following.jobs >= least:
                own = [places[key].watched.failing for key in drift.contexts]
                if all(rise.quiet for rise in own or [self.failing]):
                    why = "No more jobs fail than is expected of what they run."
            if why:
                self.active.remove(following)
                changes.append(DriftUpdate("over", drift, one.sequence, one.finished_at, why))
        return changes

    # -- thresholds -------------------------------------------------------------------------

    def _forget_votes(self, since: int, contexts: set[int] | None) -> None:
        """What came after a change tells nothing about quiet times."""
        self.votes = [
            vote
            for vote in self.votes
            if vote[0] < since or (contexts is not None and vote[1] not in contexts)
        ]

    def _calibrate(self) -> None:
        if self.votes and self.levels["here"].due(self.seen):
            u = np.array([vote[2] for vote in self.votes])
            u -= u.mean()  # what moves slowly is no reason to become deaf to it
            lean = np.array([vote[3] for vote in self.votes])
            runs = np.array([vote[1] for vote in self.votes], np.int64)
            still = np.zeros(len(u), np.int64)
            small = np.clip(u, -STUDY_CLIP, STUDY_CLIP)
            self.levels["here"].take(self.seen, _gains(u, HERE), runs, self.seed)
            self.levels["study"].take(self.seen, _gains(small, STUDY), still, self.seed)
            both = np.concatenate([lean, -lean])
            order = np.array([order_gains(gain) for gain in both.tolist()]).reshape(len(both), -1)
            self.levels["order"].take(self.seen, order, np.concatenate([runs, runs]), self.seed)
        if self.chances and self.levels["failing"].due(self.outcomes):
            gains = [failure_gains(chance, failed=failed) for chance, failed in self.chances]
            rows = np.array(gains).reshape(len(gains), -1)
            still = np.zeros(len(gains), np.int64)
            self.levels["failing"].take(self.outcomes, rows, still, self.seed)


def _chosen(one: "PrequentialRecord") -> bool:
    """Whether tunerd had a job run what it ran, asked or by coincidence."""
    outcome = one.outcome
    return outcome.following in ("followed", "changed") or outcome.ran_as in ("first", "candidate")


def _speed_gains(u: float, alternatives: Sequence[float]) -> list[float]:
    return [d * u - 0.5 * d * d for d in alternatives]


def _gains(u: Any, alternatives: Sequence[float]) -> Any:
    d = np.array(alternatives)
    return u[:, None] * d - 0.5 * d * d


def _crc(context_key: str) -> int:
    return zlib.crc32(context_key.encode())
