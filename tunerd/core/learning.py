"""What one study's jobs teach: each is predicted, and then learned.

Everything that is learned of them is gathered here: the model and its bands, the watch for drift,
and what each context knows of its configurations. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from msgspec import structs

from tunerd.core.conformal import ConformalBands
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.ledger import entered
from tunerd.core.decisions.space_cache import SpaceCache
from tunerd.core.drift.alarms import DriftUpdate
from tunerd.core.drift.monitor import DriftMonitor
from tunerd.core.drift.monitor import MonitoredJob as Job
from tunerd.core.evidence.config_stats import noise_of_repeats
from tunerd.core.evidence.corrections import (
    as_known,
    corrections_of,
    muted,
    put_right,
    silent,
)
from tunerd.core.evidence.gain_calibration import GainCalibration
from tunerd.core.evidence.prequential import Advises, NamedJob, PrequentialRecord, judge, nobody
from tunerd.core.evidence.rollout import RolloutResult
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.generation_mapping import GenerationMapping
from tunerd.core.model.history_weights import Regime, days
from tunerd.core.model.model import StudyModel
from tunerd.core.model.training import ModelTrainer, portions
from tunerd.core.observation import (
    CorrectedObservation,
    FeasibilityLabel,
    Observation,
    ReleasedObservation,
    Value,
    started,
)
from tunerd.core.outliers import (
    HeldScore,
    OutlierFilter,
    QuarantineReason,
    ReportedScore,
)
from tunerd.core.recommendation import candidate_id
from tunerd.core.scores import PrequentialWindow
from tunerd.core.study import Study
from tunerd.core.usability import ObjectiveUsability

__all__ = ["LearnResult", "QuarantineNews", "QuarantinedJob", "StudyLearner"]

LARGEST = 1e308
"""Value beyond which one is cut before it is kept."""
NOISY = 256
"""Contexts whose repeats tell how noisy runs are: every step asks."""


@dataclass(frozen=True, slots=True)
class QuarantinedJob:
    """A job that nothing is learned from, until somebody releases it."""

    sequence: int
    context_key: str
    config_id: str
    reason: QuarantineReason
    text: str
    """For a person."""
    value: float | None
    """Of the objective, as the job reported it."""


@dataclass(slots=True)
class QuarantineNews:
    """What changed in the quarantine since it was last saved."""

    held: list[QuarantinedJob] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)
    """Sequences of jobs that a repeat came near: they are to be released."""
    corrected: list[int] = field(default_factory=list)
    """Sequences of jobs of which something else is known by now."""
    taken_back: list[int] = field(default_factory=list)
    """Those of the held that were learned before."""


@dataclass(frozen=True, slots=True)
class LearnResult:
    """What one call of :meth:`StudyLearner.learn` did."""

    sequence_from: int
    sequence_to: int
    contexts: tuple[str, ...]
    """Keys of the contexts of live jobs among the observations."""
    imported: tuple[str, ...]
    """Keys of the contexts of old jobs among them."""
    swapped: bool
    """Whether a new model was put in place: a checkpoint is due."""
    judged: tuple[PrequentialRecord, ...] = ()
    """What was thought of each observation before it was learned."""
    drift: tuple[DriftUpdate, ...] = ()
    """Drifts that began, grew or are over."""


@dataclass
class StudyLearner:
    """Learns one study."""

    study: Study
    background: Executor
    only: Mapping[str, Sequence[Mapping[str, Value]]] = field(default_factory=dict)
    """By context key, the configurations beside which nothing may be tried: for closed loops on
    a table of measured jobs."""
    features: FeatureMap = field(init=False)
    spaces: SpaceCache = field(init=False)
    """As the study file leaves them: a configuration has the same name whatever was ordered."""
    training: ModelTrainer = field(init=False)
    """Of the model that predicts."""
    window: PrequentialWindow = field(init=False, default_factory=PrequentialWindow)
    """Predictions made before their jobs were learned."""
    bands: ConformalBands = field(init=False, default_factory=ConformalBands)
    """Around what the model predicts."""
    watch: DriftMonitor = field(init=False)
    """For jobs that no longer are as they were."""
    gains: GainCalibration = field(init=False, default_factory=GainCalibration)
    """What was promised of candidates beside what came."""
    usability: ObjectiveUsability = field(init=False, default_factory=ObjectiveUsability)
    """How many jobs came without a usable objective."""
    unusable: Counter[str] = field(init=False, default_factory=Counter)
    """By why, such jobs since somebody looked and emptied it."""
    plausibility: OutlierFilter = field(init=False)
    """Which jobs report what no other comes near."""
    bad: set[int] = field(init=False, default_factory=set)
    """Sequences of jobs that an operator called bad, for who learns history anew."""
    quarantine: QuarantineNews = field(init=False, default_factory=QuarantineNews)
    """Whoever saves begins a new one."""
    introduced: Counter[str] = field(init=False, default_factory=Counter)
    """Introductions that ended, by their outcome, since somebody looked and emptied it."""
    contexts: dict[str, ContextState] = field(init=False, default_factory=dict)
    touched: set[str] = field(init=False, default_factory=set)
    """Contexts that changed since they were last saved; whoever saves empties it."""
    sequence: int = field(init=False, default=0)
    """Last observation learned."""
    _begins: dict[str, list[tuple[int, float | None]]] = field(init=False, default_factory=dict)
    """By context key, where estimates begin again while history is gathered."""

    def __post_init__(self) -> None:
        self.features = FeatureMap(self.study)
        self.spaces = SpaceCache(self.study, only=self.only)
        self.watch = DriftMonitor.of(self.study)
        self.plausibility = OutlierFilter(self.study.objective.scale == "log")
        self.training = ModelTrainer(self.study, self.features, self.background)

    @property
    def model(self) -> StudyModel | None:
        """What predicts, once there is enough to learn from."""
        return self.training.model

    def learn(
        self, observations: Sequence[Observation], advises: Advises = nobody, waiting: int = 0
    ) -> LearnResult:
        """Test, then train: predict the observations, then learn them.

        They must follow :attr:`sequence` without a gap. ``advises`` says what is recommended in
        their contexts; so many further ones are known and ``waiting``, which decides when a model
        is fitted anew. Cost does not depend on history.
        """
        first = self._expect(observations)
        self._count_usable(observations)
        judged: list[PrequentialRecord] = []
        changes: list[DriftUpdate] = []
        swapped = False
        for start, end in portions(first, observations[-1].sequence):
            portion = observations[start - first : end - first + 1]
            rows = self.features.rows(portion)
            jobs = self._named(portion, rows)
            before = self.model
            rows = self._held_back(jobs, rows)
            corrections = corrections_of(jobs)
            trained = self._take_back(corrections, rows, _places(portion))
            self._start_bands(before)
            swapped = swapped or self.model is not before
            records = judge(
                self.study,
                self.features,
                self.model,
                self.bands,
                as_known(jobs) if corrections else jobs,
                silent(rows, corrections),
                self._tried,
                advises,
                lambda key: self.contexts[key].evidence.constant,
            )
            records = self._muted(entered(self.contexts, records), jobs)
            if corrections:
                records = put_right(self.study, jobs, records, self.features.quarantined)
            self._score(records)
            drift = self._watch(records, jobs)
            self._remember(jobs, rows)
            before = self.model
            swapped = self.training.learn(trained, days(portion), self.sequence, waiting) or swapped
            swapped = self._act(drift) or swapped
            self._start_bands(before)
            changes += drift
            judged += records
        live = dict.fromkeys(job.context_key for job in judged if not job.history)
        imported = dict.fromkeys(job.context_key for job in judged if job.history)
        return LearnResult(
            first,
            self.sequence,
            tuple(live),
            tuple(imported),
            swapped,
            tuple(judged),
            tuple(changes),
        )

    def expect(
        self,
        former: Mapping[str, Mapping[str, Any]],
        study: Study | None,
        regimes: Iterable[Regime],
    ) -> None:
        """Before history is gathered: take over what drifts taught the former generation, whose
        contexts and ``study`` are as for :meth:`.Tuner.adopt`. Nobody watches history for them
        again. Nothing where scores mean something else now, or where drifts are only to be told."""
        succession = self._succession(former, study)
        if not succession.comparable or not self.study.drift.act:
            return
        self.training.regimes = succession.regimes(regimes)
        begun = {key: state["evidence"].get("begun", []) for key, state in former.items()}
        self._begins = succession.begun(begun)

    def gather(self, observations: Sequence[Observation]) -> None:
        """Take in history without predicting it; :meth:`catch_up` learns it at once. Sequences may
        have gaps, where history was pruned.

        For a new generation, which derives everything again from the raw history.
        """
        if observations[0].sequence <= self.sequence:
            raise ValueError(f"{self.sequence} is known, got {observations[0].sequence}")
        self._count_usable(observations)
        rows = self.features.rows(observations)
        jobs = self._named(observations, rows)
        rows = self._held_back(jobs, rows)
        corrections = corrections_of(jobs)
        trained = self._take_back(corrections, rows, _places(observations), fit=False)
        tried = np.array([job.tried > 0 for job in jobs], np.bool_)
        self.bands.learn(rows.context_key, None, None, silent(rows, corrections).score, tried)
        self._remember(jobs, rows)
        sequences = np.array([job.sequence for job in observations])
        self.training.gather(trained, days(observations), sequences)

    def remember(self, observations: Sequence[Observation]) -> None:
        """Take in what jobs say of their configurations, and nothing else: for deriving again
        what was said of them. Sequences may have gaps."""
        rows = self.features.rows(observations)
        self._remember(self._named(observations, rows), rows)

    def catch_up(self) -> None:
        """Fit on what was gathered."""
        before = self.model
        self._begins = {}
        self.training.catch_up(self.sequence)
        self._start_bands(before)

    def _expect(self, observations: Sequence[Observation]) -> int:
        first, last = observations[0].sequence, observations[-1].sequence
        if first != self.sequence + 1 or last != self.sequence + len(observations):
            raise ValueError(f"expected observations from {self.sequence + 1}, got {first}..{last}")
        return first

    def _named(self, observations: Sequence[Observation], rows: FeatureRows) -> list[NamedJob]:
        """Name the configurations that the jobs ran; contexts never seen before begin here."""
        return list(map(self._named_job, observations, rows.context_key))

    def _named_job(self, observation: Observation, key: str) -> NamedJob:
        state = self.contexts.get(key)
        if state is None:
            state = ContextState(self.study.clean_context(observation.context))
            self.contexts[key] = state
        if (renamed := state.renamed.get(observation.candidate_id or "")) is not None:
            observation = structs.replace(observation, candidate_id=renamed)
        config = self.spaces.own_config(key, state.context, observation.config)
        name = candidate_id(self.study.name, key, config)
        return NamedJob(observation, name, config, self._tried(key, name))

    def _count_usable(self, observations: Sequence[Observation]) -> None:
        """Count jobs by whether their objective is usable, each attempt once."""
        first = [job for job in observations if not isinstance(job, CorrectedObservation)]
        self.unusable.update(why for why in self.usability.see(self.study, first) if why)

    def _held_back(self, jobs: Sequence[NamedJob], rows: FeatureRows) -> FeatureRows:
        """The rows of jobs, without what those say that go into quarantine: these wait for a repeat
        or an operator, and their configurations may be tried like any other."""
        places = _places([job.observation for job in jobs])
        score, ran, weight = rows.score.copy(), rows.ran.copy(), rows.ran_weight.copy()
        margin = rows.margin.copy()
        latest: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for i, (job, key) in enumerate(zip(jobs, rows.context_key, strict=True)):
            if isinstance(job.observation, CorrectedObservation):
                # What it takes the place of may have gone into quarantine since its row was made.
                self.features.take_place(job.observation)
                own = self.features.rows([job.observation])
                score[i], ran[i], weight[i] = own.score[0], own.ran[0], own.ran_weight[0]
            for sequence in self._screened(job, key, float(score[i]), latest):
                place = places[sequence]
                score[place], ran[place], weight[place] = np.nan, np.nan, 0.0
                margin[place] = np.nan
        return replace(rows, score=score, ran=ran, ran_weight=weight, margin=margin)

    def _screened(
        self,
        job: NamedJob,
        key: str,
        score: float,
        latest: dict[tuple[str, str], list[tuple[float, int]]],
    ) -> list[int]:
        """Sequences, among the jobs that are learned now, that go into quarantine with this one.
        ``latest`` has the scores of these jobs by context and configuration."""
        observation = job.observation
        value = observation.metrics.get(self.study.objective.metric, np.nan)
        report = ReportedScore(
            score, float(value), observation.sequence, job.config_id, observation.user
        )
        if isinstance(observation, CorrectedObservation):
            earlier = observation.earlier.sequence
            if isinstance(observation, ReleasedObservation):
                if np.isfinite(score):
                    self.plausibility.accept(key, report, [earlier])
                return []
            if earlier in self.features.quarantined:
                self.quarantine.corrected.append(earlier)
            if earlier in self.features.quarantined or np.isfinite(score):
                there = self.study.context_key(observation.earlier.context)
                self.plausibility.forget(there, earlier)
        wrong = self.study.plausibility.broken_by(observation.metrics)
        held: Sequence[HeldScore] = ()
        if wrong is not None:
            held = [HeldScore(report, "bounds", wrong)]
        elif (bad := observation.sequence in self.bad) or np.isfinite(score):
            own = latest.setdefault((key, job.config_id), self._latest(key, job.config_id))
            options = self.study.plausibility
            screening = self.plausibility.see(key, report, own, options, bad=bad)
            self.quarantine.confirmed += screening.confirmed
            held = screening.held
            if observation.sequence not in [verdict.report.sequence for verdict in held]:
                own.append((score, observation.sequence))
        return self._quarantine(key, held)

    def _latest(self, key: str, config_id: str) -> list[tuple[float, int]]:
        """Latest scores of a configuration in a context, and their sequences."""
        trial = self.contexts[key].evidence.trials.get(config_id)
        return [(run[0], run[2]) for run in trial.latest] if trial else []

    def _quarantine(self, key: str, held: Sequence[HeldScore]) -> list[int]:
        """Put jobs into quarantine; returns the sequences of those that are learned now."""
        first = self.sequence + 1
        now = []
        for verdict in held:
            report = verdict.report
            if report.sequence >= first:
                now.append(report.sequence)
            elif self._taken_back(key, report):
                self.quarantine.taken_back.append(report.sequence)
            else:
                continue
            value = None
            if not np.isnan(report.value):
                value = max(-LARGEST, min(report.value, LARGEST))
            self.features.quarantined.setdefault(report.sequence, 0)
            self.usability.hold_back(value)
            self.unusable["implausible"] += 1
            self.quarantine.held.append(
                QuarantinedJob(
                    report.sequence, key, report.config_id, verdict.reason, verdict.text, value
                )
            )
        return now

    def _taken_back(self, key: str, held: ReportedScore) -> bool:
        """Take back what a job said that was learned before; says whether that could be done. Not
        in large studies: a fit on the spot would take too long there."""
        if not self.training.take_back([held.sequence], self.sequence, whole=True):
            return False
        self.contexts[key].evidence.take_back(held.config_id, held.score)
        self.look_again([key])
        return True

    def _muted(
        self, records: Sequence[PrequentialRecord], jobs: Sequence[NamedJob]
    ) -> list[PrequentialRecord]:
        quarantined = self.features.quarantined
        keys = {record.context_key for record in records if record.sequence in quarantined}
        if not keys:
            return list(records)
        levels = {key: self.contexts[key].introduction.level for key in keys}
        return muted(self.study, records, jobs, levels, quarantined)

    def _take_back(
        self,
        corrections: Mapping[int, CorrectedObservation],
        rows: FeatureRows,
        places: Mapping[int, int],
        *,
        fit: bool = True,
    ) -> FeatureRows:
        """The rows that the model learns, ``places`` theirs by sequence: a speed that was
        corrected since is taken back. Not in large studies, where a fit on the spot would take too
        long: there both count until the earlier one leaves the sample."""
        if not corrections:
            return rows
        score = rows.score.copy()
        changed = [
            sequence
            for correction in corrections.values()
            if (sequence := self.features.learned_at(correction)) is not None
            and self.study.score(correction.earlier.metrics) is not None
            and self.features.teaches(correction)
        ]
        here = [sequence for sequence in changed if sequence in places]
        score[[places[sequence] for sequence in here]] = np.nan
        before = [sequence for sequence in changed if sequence not in places]
        if fit:
            before = self.training.take_back(before, self.sequence)
        else:
            before = [earlier for earlier in before if self.training.replay.forget_score(earlier)]
        self.features.held_back |= {*here, *before}
        return replace(rows, score=score)

    def _tried(self, key: str, config_id: str) -> int:
        """Jobs of a configuration that a context knows."""
        return self.contexts[key].tried(config_id)

    def _start_bands(self, before: StudyModel | None) -> None:
        """Where another model took over, let the bands start from the jobs that its fit left
        out."""
        if self.model is not None and self.model is not before:
            self.bands.start(self.model.starts)

    def _score(self, judged: Iterable[PrequentialRecord]) -> None:
        """Let the window see how live jobs were predicted."""
        for record in judged:
            outcome = record.outcome
            if (
                record.history
                or record.corrects
                or outcome.predicted is None
                or outcome.score is None
            ):
                continue
            assert outcome.low is not None
            assert outcome.high is not None
            held = outcome.low <= outcome.score <= outcome.high
            self.window.add(record.context_key, outcome.predicted, outcome.score, held)

    def _watch(
        self, judged: Sequence[PrequentialRecord], jobs: Sequence[NamedJob]
    ) -> list[DriftUpdate]:
        """Look whether these jobs are as jobs were."""
        seen_jobs = [
            Job(self.contexts[record.context_key].context, job.config)
            for record, job in zip(judged, jobs, strict=True)
            if self._is_watched(record)
        ]
        known = [record for record in judged if self._is_watched(record)]
        changes = self.watch.see(known, seen_jobs, self.contexts)
        for change in changes:
            if change.phase != "over":
                self.touched |= set(change.drift.contexts or self.contexts)
        return changes

    def _is_watched(self, record: PrequentialRecord) -> bool:
        """Whether a job tells anything about drift."""
        return not record.corrects and record.sequence not in self.features.quarantined

    def _act(self, changes: Iterable[DriftUpdate]) -> bool:
        """Do what a drift asks for, after its jobs were learned: a model with the new regime in
        front, and another look at its contexts. Says whether a checkpoint is due."""
        due = False
        for change in changes:
            drift = change.drift
            self._alarm_bands(change)
            if not self.study.drift.act or not drift.of_speed or change.phase == "over":
                continue
            for key in drift.contexts or self.contexts:
                state = self.contexts[key]
                before = state.introduction.verdicts
                state.restart(self.study, drift, self.sequence, change.at_time.isoformat())
                self._count_verdicts(state, before, self.sequence)
            due = self.training.begin(drift.regime(), self.sequence) or due
            self.look_again(drift.contexts or self.contexts)
        return due

    def _alarm_bands(self, change: DriftUpdate) -> None:
        """Widen bands where jobs behave differently, and no longer where that is over."""
        if not change.drift.of_speed or not self.study.drift.act:
            return
        if change.phase == "over":
            self.bands.calm(change.drift.contexts or None)
        for recovery in self.watch.active:
            if recovery.drift.of_speed:
                self.bands.alarm(recovery.drift.contexts or None)

    def _remember(self, jobs: Sequence[NamedJob], rows: FeatureRows) -> None:
        fields = zip(jobs, rows.context_key, rows.score.tolist(), rows.weight.tolist(), strict=True)
        for job, key, score, weight in fields:
            if isinstance(job.observation, CorrectedObservation):
                self._correct(job, job.observation, key, score, weight)
            else:
                self._remember_one(job, key, None if np.isnan(score) else score, weight)
        self.sequence = jobs[-1].observation.sequence

    def _remember_one(self, job: NamedJob, key: str, score: float | None, weight: float) -> None:
        observation, state = job.observation, self.contexts[key]
        if observation.sequence not in self.features.quarantined:
            begins = self._begins.get(key)
            while begins and begins[0][0] <= observation.sequence:
                state.evidence.begin_again(*begins.pop(0), history=True)
            score, ran = state.learn(self.study, job, score, weight)
            if not observation.history and observation.candidate_id == job.config_id:
                # Else it was changed, and tells of something else.
                self.gains.compare(self.study, state.promised.get(job.config_id), score, ran)
        self._count_round(state, key, job)  # in quarantine, above a share or not
        self._note_job(state, key, observation)

    def _count_round(self, state: ContextState, key: str, job: NamedJob) -> None:
        """Let a campaign's round know that what it asked for was run, each attempt once."""
        observation, ran = job.observation, self.study.ran(job.observation)
        if state.campaign is None or ran is FeasibilityLabel.UNKNOWN or observation.history:
            return
        if isinstance(observation, CorrectedObservation):
            earlier = observation.earlier
            same = self.study.context_key(earlier.context) == key
            same = same and self._named_job(earlier, key).config_id == job.config_id
            if same and self.study.ran(earlier) is not FeasibilityLabel.UNKNOWN:
                return
        state.campaign.count(job.config_id)

    def _note_job(self, state: ContextState, key: str, observation: Observation) -> None:
        finished = observation.finished_at
        state.last_job_at = max(state.last_job_at or finished, finished)
        state.waiting_since = state.waiting_since or observation.sequence
        began = started(observation) or finished
        state.rhythm.add(began, finished - began)
        self.touched.add(key)

    def _correct(
        self, job: NamedJob, one: CorrectedObservation, key: str, score: float, weight: float
    ) -> None:
        """Put right what a job said of its configuration when it counted before. ``score`` is NaN
        also where that stays as good as it was."""
        study, earlier, place = self.study, one.earlier, self.features.learned_at(one)
        if place is None:
            self._remember_one(job, key, None if np.isnan(score) else score, weight)
            return
        if isinstance(one, ReleasedObservation):
            self._note_job(self.contexts[key], key, one)
            return
        exact = study.score(one.metrics) if np.isnan(score) else score
        if one.sequence in self.features.held_back:
            exact = None
        before_key = study.context_key(earlier.context)
        before = self._named_job(earlier, before_key)
        moved = (before_key, before.config_id) != (key, job.config_id)
        if moved or one.sequence in self.features.quarantined:
            evidence, was = self.contexts[before_key].evidence, study.ran(earlier)
            evidence.correct(before.config_id, place, None, was, FeasibilityLabel.UNKNOWN)
            self.look_again([before_key])
            self._remember_one(job, key, exact, weight)
            return
        measured = study.score(earlier.metrics) is not None
        if not measured and study.ran(earlier) is FeasibilityLabel.UNKNOWN:
            self._remember_one(job, key, exact, weight)
            return
        state = self.contexts[key]
        run = None if exact is None else (exact, weight)
        state.correct(study, job.config_id, one, place, run)
        self._note_job(state, key, one)

    def noise(self) -> tuple[float, int]:
        """Standard deviation of one run around its configuration's others, relative to the
        objective, over the repeats of the contexts that had jobs last; NaN without any. And how
        many repeats that stands on."""
        apart: list[float] = []
        latest = sorted(
            (state.last_job_at, key)
            for key, state in self.contexts.items()
            if state.last_job_at is not None and state.evidence.apart
        )[-NOISY:]
        for _, key in latest:
            state = self.contexts[key]
            unit = state.unit(self.study)
            apart += [difference / unit for difference in state.evidence.apart]
        return noise_of_repeats(apart), len(apart)

    def look_again(self, keys: Iterable[str]) -> None:
        """These contexts are due a search, whatever was learned since the last one."""
        for key in keys:
            state = self.contexts[key]
            state.waiting_since = state.waiting_since or max(self.sequence, 1)
            self.touched.add(key)

    def _count_verdicts(
        self, state: ContextState, before: Sequence[RolloutResult], sequence: int
    ) -> None:
        for verdict in state.introduction.verdicts:
            if verdict.sequence == sequence and verdict not in before:
                self.introduced[verdict.outcome] += 1

    def _succession(
        self, former: Mapping[str, Mapping[str, Any]], study: Study | None
    ) -> GenerationMapping:
        contexts = {key: state["context"] for key, state in former.items()}
        return GenerationMapping(self.study, study, contexts)


def _places(observations: Sequence[Observation]) -> dict[int, int]:
    """By sequence, which of these observations it is."""
    return {job.sequence: place for place, job in enumerate(observations)}
