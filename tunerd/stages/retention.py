"""Retention: old jobs leave history, a batch at a time, and what is learned from stays.

A pass goes through a study's history from its newest old job to its first. A job whose time is over
is *pruned*: what it said is dropped, and what the ledger and the search for duplicates need stays
(:mod:`tunerd.store.retention`). Kept whole is what learning history anew, or going on from a
checkpoint, would read:

- the sample that models are fitted on (:mod:`tunerd.core.features.replay`), as it was at the last
  checkpoint and before a rebuild that is under way. A job that has left it never comes back;
- the runs that each context's evidence has one by one, the last job of each configuration, and the
  failures that came between these: what is left fails as often as what was there;
- jobs in quarantine, and those that were released from it: a release holds for good, also for the
  jobs near it;
- jobs that a whole one takes the place of, and what takes the place of one that stays.

So a tuner goes on and starts again with the same model and the same advice as without retention.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tunerd.core.decisions.context_state import UNREADABLE
from tunerd.core.evidence.config_stats import LATEST
from tunerd.core.features import replay
from tunerd.core.observation import CorrectedObservation, FeasibilityLabel, Observation
from tunerd.core.study import Study
from tunerd.errors import CorruptDataError
from tunerd.settings.model import IngestSettings, RetentionSettings, TuneSettings
from tunerd.stages.checkpoints import FOLLOWED_FOR
from tunerd.stages.study_session import LAYOUT
from tunerd.store import PastJob, Store

__all__ = ["HistoryRetention", "PruneResult", "RetentionLimits", "RetentionPass"]

log = logging.getLogger(__name__)

BATCH = 500
"""Jobs looked at together: some tens of milliseconds, a few of them in a transaction."""
SPAN = 20_000
"""Sequences among which these are looked for: most were pruned before."""
BATCH_EVERY_S = 0.25
"""So that pruning takes a tenth of the tuner's time at most: 2,000 jobs a second."""
PASS_EVERY_S = 3600.0
KEPT_FAILURES = 32
"""Of one configuration in a context, at most."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """When a job's time is over."""

    max_age: timedelta | None
    """Since it came in."""
    max_jobs: int | None
    """That came in after it, in its study."""
    ids_kept: timedelta = FOLLOWED_FOR
    """Since it came in, a job that was pruned is known as a duplicate, and who ran it."""

    @classmethod
    def of(
        cls, retention: RetentionSettings, ingest: IngestSettings, tune: TuneSettings
    ) -> "RetentionLimits":
        """Those of an installation. Ids are kept for as long as ingest would take a duplicate (of
        old jobs that were imported for ever), and users for as long as the ledger asks for them."""
        days = retention.max_age_days
        taken = ingest.max_age_days + ingest.max_future_hours / 24.0
        kept = timedelta(days=max(taken, tune.keep_predictions_days) + 1.0)
        return cls(
            None if days is None else timedelta(days=days),
            retention.max_jobs,
            max(FOLLOWED_FOR, kept),
        )

    @property
    def limited(self) -> bool:
        """Whether anything is ever pruned."""
        return self.max_age is not None or self.max_jobs is not None


@dataclass(slots=True)
class PruneResult:
    """What was pruned, or would be."""

    jobs: list[int] = field(default_factory=list)
    """Sequences of those that say nothing any more from then on."""
    bytes: int = 0
    """Of what these said."""
    forgotten: int = 0
    """Jobs that were pruned before, of which nothing is left now."""

    @property
    def pruned(self) -> int:
        """How many jobs were pruned."""
        return len(self.jobs)

    def add(self, other: "PruneResult") -> None:
        """Count what another one says, too."""
        self.jobs += other.jobs
        self.bytes += other.bytes
        self.forgotten += other.forgotten


class _KeptTrial(msgspec.Struct):
    config: dict[str, Any]
    latest: list[tuple[float, float, int]]
    last_sequence: int

    @property
    def since(self) -> int:
        """Sequence from which on its runs are kept one by one."""
        return self.latest[0][2] if len(self.latest) == LATEST else 0


class _KeptEvidence(msgspec.Struct):
    trials: dict[str, _KeptTrial]


class _ContextEvidence(msgspec.Struct):
    evidence: _KeptEvidence


@dataclass
class RetentionPass:
    """One look through the history of one study."""

    store: Store
    study: Study
    limits: RetentionLimits
    at: int = 0
    """The job that is looked at next; 0 at the end."""
    beyond: int = 0
    """Sequence of the last job that there are too many of."""
    sample: frozenset[int] = frozenset()
    """Sequences that models are fitted on."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Kept so far, by context key and configuration."""

    @classmethod
    def begin(
        cls, store: Store, study: Study, limits: RetentionLimits, now: datetime
    ) -> "RetentionPass":
        """A pass over the jobs whose time is over; over none where what was saved of the study
        cannot be read, or is of another generation: then its tuner is about to learn all history
        anew."""
        row, restart = store.study(study.name), _restarts_from(store, study)
        if row is None or restart is None:
            return cls(store, study, limits)
        last = beyond = 0
        if limits.max_age is not None:
            last = store.received_until(study.name, now - limits.max_age)
        if limits.max_jobs is not None:
            beyond = row.last_sequence - limits.max_jobs
        last = max(0, min(max(last, beyond), restart - replay.LATEST))
        sample = replay.sequences_at(restart).tolist() if last else []
        return cls(store, study, limits, last, beyond, frozenset(sample))

    def step(self, now: datetime, epoch: int | None = None) -> PruneResult:
        """Prune among the next :data:`SPAN` sequences, :data:`BATCH` jobs at most, in one
        transaction; under an epoch of the study's lease, if somebody has it.

        Raises:
            FencedOutError: the lease is of another epoch.
        """
        result, old = self._look(now)
        if not (result.jobs or old):
            return result
        name = self.study.name
        with self.store.transaction() as tx:
            if epoch is not None:
                tx.fence(name, epoch)
            tx.lock_prunings(name, now)
            tx.prune_jobs(name, result.jobs, now)
            tx.forget_jobs(name, old)
            tx.prune_steps(name, now - self.limits.ids_kept)
        return result

    def look(self, now: datetime) -> PruneResult:
        """What :meth:`step` would do, and nothing of it."""
        return self._look(now)[0]

    def _look(self, now: datetime) -> tuple[PruneResult, list[int]]:
        """What the next step prunes, and the jobs that it forgets; the pass ends where the study
        changed meanwhile, as then all history is learned anew."""
        name, before = self.study.name, now - self.limits.ids_kept
        generation = self.store.generation(name)
        if generation is None or generation.content_hash != self.study.content_hash:
            self.at = 0
            return PruneResult(), []
        first = max(1, self.at - SPAN + 1)
        jobs = self.store.past_jobs(name, first, self.at, before, BATCH)
        self.at = (jobs[-1].sequence if len(jobs) == BATCH else first) - 1
        over = self._over([job for job in jobs if self._is_old(job, now)])
        old = [job.sequence for job in jobs if not job.whole]
        size = sum(job.bytes for job in over)
        return PruneResult([job.sequence for job in over], size, len(old)), old

    def _is_old(self, job: PastJob, now: datetime) -> bool:
        """Whether a job's own time is over: one clock that was wrong makes no others old."""
        if job.sequence <= self.beyond or self.limits.max_age is None:
            return True
        return job.received_at < now - self.limits.max_age

    def _over(self, jobs: Sequence[PastJob]) -> list[PastJob]:
        """Those of these jobs that are not needed whole."""
        name, store = self.study.name, self.store
        left = {job.sequence: job for job in jobs if job.whole and job.sequence not in self.sample}
        if not left:
            return []
        rest = store.observations_left(name, left)
        earlier = [job.earlier.sequence for job in rest if isinstance(job, CorrectedObservation)]
        settled = store.quarantine_history(name, [*left, *earlier])
        replaced = store.replaced_jobs(name, list(left))
        needed = set(settled)
        keys = {self.study.context_key(job.context) for job in rest}
        known = store.context_parts(name, _ContextEvidence, keys) if keys else {}
        for state in known.values():
            for trial in state.evidence.trials.values():
                needed.add(trial.last_sequence)
                needed.update(run[2] for run in trial.latest)
        for job in rest:
            before = job.earlier.sequence if isinstance(job, CorrectedObservation) else 0
            if before in self.sample or before in needed:
                needed.add(job.sequence)
        for job in reversed(rest):
            places = replaced.get(job.sequence)
            if places is None:
                stays = job.sequence not in needed and self._is_failure(job, known)
            else:  # it is no failure any more, or counts as one there
                stays = any(place not in left or place in needed for place in places)
            if stays:
                needed.add(job.sequence)
        return [job for sequence, job in left.items() if sequence not in needed]

    def _is_failure(self, job: Observation, known: Mapping[str, _ContextEvidence]) -> bool:
        """Whether a job is a failure that a configuration's evidence should count again."""
        if self.study.ran(job) not in (FeasibilityLabel.NO, FeasibilityLabel.WEAK_NO):
            return False
        key, config = self.study.context_key(job.context), self.study.named(job.config)
        trials = known[key].evidence.trials if key in known else {}
        for name, trial in trials.items():
            if trial.config == config and job.sequence >= trial.since:
                self.failures[key, name] += 1
                return self.failures[key, name] <= KEPT_FAILURES
        return False


def _restarts_from(store: Store, study: Study) -> int | None:
    """The job at which a tuner of this study that starts now fills its sample; None where it would
    learn all history anew, or nobody can tell."""
    try:
        saved = store.study_state(study.name)
        generation = store.generation(study.name)
        if saved is None or generation is None or saved.state["layout"] != LAYOUT:
            return None
        if saved.state["generation"] != generation.generation:
            return None
        if study.content_hash != generation.content_hash:
            return None
        tuner: Mapping[str, Any] = saved.state["tuner"]
        places = [int(tuner["sequence"])]
        if (model := saved.state["model"]) is not None:
            parts = msgspec.json.decode(store.checkpoint(study.name, model))["parts"]
            at = msgspec.json.decode(store.checkpoint(study.name, parts["at"]))
            places.append(int(at["learned"]))
        if (rebuild := tuner["training"]["rebuild"]) is not None:
            places.append(int(rebuild["started_at"]))
    except (CorruptDataError, *UNREADABLE):
        return None
    return min(places)


@dataclass
class HistoryRetention:
    """Prunes the studies of one tuner process, now and then."""

    store: Store
    limits: RetentionLimits
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Monotonic seconds."""
    _passes: dict[str, RetentionPass] = field(default_factory=dict)
    _due_at: dict[str, float] = field(default_factory=dict)
    """By study, when something may be done again."""

    def step(self, study: Study, epoch: int) -> PruneResult | None:
        """Prune a batch of a study under an epoch of its lease; None where nothing is due. A pass
        that meets something damaged ends there: nothing is pruned that nobody can read.

        Raises:
            FencedOutError: another instance has the study.
        """
        name = study.name
        if self.clock() < self._due_at.get(name, float("-inf")):
            return None
        going = self._passes.pop(name, None)
        self._due_at[name] = self.clock() + PASS_EVERY_S
        result = PruneResult()
        try:
            now = self._time_of(study)
            if going is None or going.study is not study:
                going = RetentionPass.begin(self.store, study, self.limits, now)
            if going.at:
                result = going.step(now, epoch)
        except (CorruptDataError, msgspec.ValidationError) as error:
            log.error("history of study %s is not pruned now: %s", name, error)
            return result
        if going.at:
            self._passes[name] = going
            self._due_at[name] = self.clock() + BATCH_EVERY_S
        return result

    def _time_of(self, study: Study) -> datetime:
        """This machine's time, or when the study's latest jobs ended by their own clocks if that is
        earlier: where this machine's clock is far ahead, what is young does not go."""
        ended = self.store.latest_end(study.name)
        return self.now() if ended is None else min(self.now(), ended)

    def drop(self, study: str) -> None:
        """Forget a study that another instance has now."""
        self._passes.pop(study, None)
        self._due_at.pop(study, None)
