"""The listener that turns reports (:mod:`tunerd.telemetry`) into metrics.

Label values are bounded: at most ``MOST_STUDIES`` studies have series of their own, the rest are
counted as ``_other``. A study's series are removed when it ends or when another instance takes it
over, so that no two instances ever tell the same gauge.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from tunerd import __version__, telemetry
from tunerd.metrics import definitions as d
from tunerd.metrics.definitions import DEFINITIONS, OTHER, MetricDefinition

__all__ = ["MOST_STUDIES", "MetricsExporter"]

MOST_STUDIES = 200
BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class _MetricFamily:
    """A metric and its children. ``labels()`` of prometheus_client costs three times a kept
    child, so they are kept here."""

    def __init__(self, definition: MetricDefinition, registry: CollectorRegistry) -> None:
        kinds: dict[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        how = {"buckets": BUCKETS_S} if definition.kind == "histogram" else {}
        self.labels = tuple(label.name for label in definition.labels)
        self.metric = kinds[definition.kind](
            definition.name, definition.about, self.labels, registry=registry, **how
        )
        self._children: dict[tuple[str, ...], Any] = {} if self.labels else {(): self.metric}

    def __call__(self, *values: str) -> Any:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self.metric.labels(*values)
        return child

    def show(self, value: float | None, *values: str) -> None:
        """Set a gauge; without a value, take the series away rather than tell an old one."""
        if not values:
            self.metric.set(math.nan if value is None else value)
        elif value is not None:
            self(*values).set(value)
        elif self._children.pop(values, None) is not None:
            self.metric.remove(*values)

    def forget(self, label: str, value: str) -> None:
        """Remove every child with this value of a label."""
        if label not in self.labels:
            return
        at = self.labels.index(label)
        for values in [values for values in self._children if values[at] == value]:
            del self._children[values]
            self.metric.remove(*values)


@dataclass
class _CardinalityLimit:
    """At most so many values of a label are told apart."""

    most: int
    known: set[str] = field(default_factory=set)

    def __call__(self, value: str) -> str:
        if value not in self.known:
            if len(self.known) >= self.most:
                return OTHER
            self.known.add(value)
        return value


class MetricsExporter:
    """Everything that one process exports, in a registry of its own.

    ``clock`` gives the time that last-progress gauges are set to, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self._study = _CardinalityLimit(MOST_STUDIES)
        self._ours: set[str] = set()
        """Studies whose gauges are ours to tell."""
        self._numbers: dict[str, dict[MetricDefinition, frozenset[tuple[str, ...]]]] = {}
        """Recommended numbers that are shown, by study."""
        self._hear: Mapping[type, Callable[[Any], None]] = {
            telemetry.BatchIngested: self._ingested,
            telemetry.AttemptBacklog: self._attempts,
            telemetry.ConsumerLag: self._lagging,
            telemetry.PrometheusAsked: self._prometheus_asked,
            telemetry.RequestsIngested: self._asked,
            telemetry.RequestBacklog: self._unanswered,
            telemetry.RequestsAnswered: self._answered,
            telemetry.HistoryPruned: self._pruned,
            telemetry.StudyLoaded: self._loaded,
            telemetry.StepCommitted: self._stepped,
            telemetry.StudyBacklog: self._backlog,
            telemetry.MessagesPublished: self._published,
            telemetry.MessageDropped: self._unsendable,
            telemetry.TopicStates: self._topics,
            telemetry.SaidAgain: self._said_again,
            telemetry.OutboxBacklog: self._outbox,
            telemetry.TunerMemory: self._tuner_size,
            telemetry.StageStarting: self._starting,
            telemetry.StageProgressed: self._progressed,
            telemetry.DependencyUnreachable: self._unreachable,
            telemetry.TunerRestarted: self._tuner_replaced,
            telemetry.StudySetAside: self._set_aside,
            telemetry.StudyRelearned: self._learned_anew,
            telemetry.StudyReleased: self._study_gone,
        }
        self._of = {
            definition: _MetricFamily(definition, self.registry) for definition in DEFINITIONS
        }
        ProcessCollector(registry=self.registry)
        self._begin()

    def hear(self, report: telemetry.Report, /) -> None:
        """Take note of a report."""
        hear = self._hear.get(type(report))
        if hear is not None:
            with self._lock:
                hear(report)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, in the format that an Accept header asks for; and its type."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            return encode(self.registry), content_type

    def _begin(self) -> None:
        self._count(1, d.BUILD, __version__)
        for definition in DEFINITIONS:
            if definition.kind == "counter" and not definition.of_a_study:
                for values in definition.known():
                    self._count(0, definition, *values)
        unknown = (d.LAG, d.UNANSWERED, d.WAITING, d.OLDEST, d.TUNER_SIZE)
        for gauge in (*unknown, d.ATTEMPTS_WAITING, d.ATTEMPTS_INCOMPLETE):
            self._show(None, gauge)  # 0 would claim that somebody looked

    def _count(self, number: float, of: MetricDefinition, *values: str) -> None:
        self._of[of](*values).inc(number)

    def _show(self, value: float | None, of: MetricDefinition, *values: str) -> None:
        self._of[of].show(value, *values)

    def _observe(self, seconds: float | None, of: MetricDefinition) -> None:
        if seconds is not None:
            self._of[of]().observe(seconds)

    # -- ingest -----------------------------------------------------------------------------

    def _ingested(self, report: telemetry.BatchIngested) -> None:
        for study, count in report.accepted.items():
            self._count(count, d.OBSERVATIONS, self._study(study))
        self._rejected(report.rejected)
        self._count(sum(report.accepted.values()), d.RECORDS, "accepted")
        self._count(report.halves, d.RECORDS, "half")
        for how, count in report.joined.items():
            self._count(count, d.JOINED, how)
        self._count(report.duplicates, d.RECORDS, "duplicate")
        self._count(sum(report.rejected.values()), d.RECORDS, "rejected")
        self._observe(report.seconds, d.INGEST_S)

    def _rejected(self, rejected: Mapping[str, int]) -> None:
        for reason, count in rejected.items():
            self._count(count, d.REJECTED, reason if reason in d.REASON.values else OTHER)

    def _attempts(self, report: telemetry.AttemptBacklog) -> None:
        self._show(report.waiting, d.ATTEMPTS_WAITING)
        self._show(report.incomplete, d.ATTEMPTS_INCOMPLETE)

    def _prometheus_asked(self, report: telemetry.PrometheusAsked) -> None:
        self._count(report.points, d.SIGNAL_POINTS)
        self._count(1, d.PROMETHEUS_ASKED, "failed" if report.failed else "answered")

    def _lagging(self, report: telemetry.ConsumerLag) -> None:
        self._show(report.records, d.LAG)

    # -- requests ---------------------------------------------------------------------------

    def _asked(self, report: telemetry.RequestsIngested) -> None:
        self._rejected(report.rejected)
        self._count(sum(report.accepted.values()), d.REQUESTS, "accepted")
        self._count(report.duplicates, d.REQUESTS, "duplicate")
        self._count(sum(report.rejected.values()), d.REQUESTS, "rejected")

    def _unanswered(self, report: telemetry.RequestBacklog) -> None:
        self._show(report.requests, d.UNANSWERED)

    def _answered(self, report: telemetry.RequestsAnswered) -> None:
        for outcome, count in report.outcomes.items():
            self._count(count, d.ANSWERED, self._study(report.study), outcome)
        for seconds in report.seconds:
            self._observe(seconds, d.ANSWER_S)

    # -- tune -------------------------------------------------------------------------------

    def _loaded(self, report: telemetry.StudyLoaded) -> None:
        study = self._study(report.study)
        self._ours.add(report.study)
        for definition in DEFINITIONS:
            if definition.kind == "counter" and definition.of_a_study:
                for values in definition.known(study):
                    self._count(0, definition, *values)
        if study != OTHER:
            self._show(0, d.ASIDE, study)
            self._stand(study, report)

    def _stepped(self, report: telemetry.StepCommitted) -> None:
        study = self._study(report.study)
        self._ours.add(report.study)
        self._count(report.observations, d.LEARNED, study)
        self._count(report.contexts_searched, d.SEARCHED, study)
        self._count(report.contexts_searched_elsewhere, d.SEARCHED_ELSEWHERE, study)
        self._count(report.rebuilt, d.REBUILT, study)
        self._count(report.rebuilds_failed, d.REBUILD_FAILED, study)
        for change in d.CHANGE.values:
            self._count(getattr(report, change), d.RECOMMENDATIONS, study, change)
        for kind, count in report.candidates.items():
            self._count(count, d.CANDIDATES, study, kind)
        for following, count in report.following.items():
            self._count(count, d.JOBS, study, following)
        for parameter, count in report.outside.items():
            known = parameter if study != OTHER else ""
            self._count(count, d.OUTSIDE, study, known or OTHER)
        for why, count in report.unusable.items():
            self._count(count, d.UNUSABLE, study, why)
        for kind, count in report.drift.items():
            self._count(count, d.DRIFTS, study, kind)
        for outcome, count in report.introductions.items():
            self._count(count, d.INTRODUCTIONS, study, outcome)
        for outcome, count in report.contexts_foreseen.items():
            self._count(count, d.FORESEEN_CONTEXTS, study, outcome)
        self._observe(report.learn_s, d.LEARN_S)
        self._observe(report.search_s, d.SEARCH_S)
        if study != OTHER:  # a gauge of several studies together would tell nothing
            self._stand(study, report)

    def _stand(self, study: str, report: telemetry.StudyStatus) -> None:
        self._show(report.sequence, d.SEQUENCE, study)
        self._show(report.waiting, d.UNLEARNED, study)
        self._show(report.contexts_active, d.ACTIVE, study)
        self._show(report.running, d.RECOMMENDED, study, "running")
        self._show(report.proposed, d.RECOMMENDED, study, "proposed")
        self._show(report.paused, d.PAUSED, study)
        self._show(report.quarantined, d.QUARANTINED, study)
        for kind in d.DRIFT_KIND.values:
            self._show(report.drifting.get(kind, 0), d.DRIFTING, study, kind)
        self._show(report.gain_predicted, d.GAIN_PREDICTED, study)
        self._show(report.gain_realised, d.GAIN_REALISED, study)
        self._show(report.gain_jobs, d.GAIN_JOBS, study)
        self._show(report.overrated, d.OVERRATED, study)
        if report.scores is not None:
            self._show(report.scores.observations, d.WINDOW, study)
            self._show(report.scores.kendall, d.KENDALL, study)
            self._show(report.scores.spearman, d.SPEARMAN, study)
            self._show(report.scores.pearson, d.PEARSON, study)
            self._show(report.scores.mape, d.MAPE, study)
            self._show(report.scores.coverage, d.COVERAGE, study)
            self._show(report.scores.noise, d.NOISE, study)

    def _backlog(self, report: telemetry.StudyBacklog) -> None:
        study = self._study(report.study) if report.study in self._ours else OTHER
        if study != OTHER:
            self._show(report.sequence, d.SEQUENCE, study)
            self._show(report.waiting, d.UNLEARNED, study)
            self._show(report.last_at, d.LAST_OBSERVATION, study)
            self._show(report.signals_shifted, d.SIGNALS_SHIFTED, study)
            recommended: dict[tuple[str, ...], float] = {
                (context, name): value
                for context, values in report.recommended.items()
                for name, value in values.items()
            }
            foreseen: dict[tuple[str, ...], float] = {
                (context, feature, level): value
                for context, features in report.foreseen.items()
                for feature, quantiles in features.items()
                for level, value in quantiles.items()
            }
            self._by_context(study, d.RECOMMENDED_NUMBER, recommended)
            self._by_context(study, d.FORESEEN_SIGNAL, foreseen)

    def _by_context(
        self, study: str, of: MetricDefinition, numbers: Mapping[tuple[str, ...], float]
    ) -> None:
        """Set what holds now, by the labels after the study, and take away what does not any
        more."""
        shown = {(study, *place): value for place, value in numbers.items()}
        before = self._numbers.setdefault(study, {})
        for gone in before.get(of, frozenset()) - shown.keys():
            self._show(None, of, *gone)
        for place, value in shown.items():
            self._show(value, of, *place)
        before[of] = frozenset(shown)

    def _tuner_size(self, report: telemetry.TunerMemory) -> None:
        self._show(report.resident_bytes, d.TUNER_SIZE)

    def _tuner_replaced(self, report: telemetry.TunerRestarted) -> None:
        self._count(1, d.RESTARTS, report.why)

    def _set_aside(self, report: telemetry.StudySetAside) -> None:
        self._show(report.aside, d.ASIDE, self._study(report.study))

    def _pruned(self, report: telemetry.HistoryPruned) -> None:
        study = self._study(report.study)
        self._count(report.jobs, d.PRUNED, study)
        self._count(report.forgotten, d.FORGOTTEN, study)

    def _learned_anew(self, report: telemetry.StudyRelearned) -> None:
        self._count(1, d.LEARNED_ANEW, self._study(report.study))

    def _study_gone(self, report: telemetry.StudyReleased) -> None:
        self._ours.discard(report.study)
        self._study.known.discard(report.study)
        self._numbers.pop(report.study, None)
        for family in self._of.values():
            family.forget("study", report.study)

    # -- publish ----------------------------------------------------------------------------

    def _published(self, report: telemetry.MessagesPublished) -> None:
        for kind, count in report.messages.items():
            self._count(count, d.MESSAGES, kind)
        self._observe(report.seconds, d.PUBLISH_S)

    def _topics(self, report: telemetry.TopicStates) -> None:
        for topic, wrong in report.wrong.items():
            self._show(wrong, d.TOPIC_WRONG, topic)

    def _said_again(self, report: telemetry.SaidAgain) -> None:
        self._count(report.keys, d.SAID_AGAIN)

    def _unsendable(self, report: telemetry.MessageDropped) -> None:
        self._count(1, d.LOST, report.kind)

    def _outbox(self, report: telemetry.OutboxBacklog) -> None:
        self._show(report.waiting, d.WAITING)
        self._show(report.oldest_s, d.OLDEST)

    # -- all stages -------------------------------------------------------------------------

    def _starting(self, report: telemetry.StageStarting) -> None:
        # A stage that never ends a step must look stalled, not absent.
        self._show(self._clock(), d.PROGRESS, report.stage)

    def _progressed(self, report: telemetry.StageProgressed) -> None:
        self._show(self._clock(), d.PROGRESS, report.stage)
        self._count(report.worked, d.STEPS, report.stage)
        needed = d.WHAT.values if report.stage != "tune" else ("store",)
        for what in needed if report.reachable else ():
            self._show(1, d.REACHABLE, report.stage, what)

    def _unreachable(self, report: telemetry.DependencyUnreachable) -> None:
        self._show(0, d.REACHABLE, report.stage, report.what)
        self._count(1, d.UNREACHABLE, report.what)
