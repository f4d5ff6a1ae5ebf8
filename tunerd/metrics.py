"""Metrics for Prometheus: the one module that imports prometheus_client.

:class:`Metrics` is a listener (:mod:`tunerd.reports`). Label values are bounded: at most
``MOST_STUDIES`` studies have series of their own, the rest are counted as ``_other``. A study's
series are removed when it ends or when another instance takes it over, so that no two instances
ever tell the same gauge. ``docs/metrics.md`` is made from the definitions below.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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

from tunerd import __version__, reports

__all__ = ["Metrics", "metrics_page"]

MOST_STUDIES = 200
MOST_REASONS = 50
OTHER = "_other"
"""No study and no reason is called that: their names begin with a letter or digit."""

BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class _Family:
    """A metric and its children. ``labels()`` of prometheus_client costs three times a kept child
    (3.9 against 1.3 µs), so they are kept here."""

    def __init__(self, metric: Any, labels: Sequence[str]) -> None:
        self.metric = metric
        self.labels = tuple(labels)
        self._children: dict[tuple[str, ...], Any] = {} if labels else {(): metric}

    def __call__(self, *values: str) -> Any:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self.metric.labels(*values)
        return child

    def show(self, value: float | None, *values: str) -> None:
        """Set a gauge; without a value, take the series away rather than tell an old one."""
        if value is not None:
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
class _Bound:
    """At most so many values of a label are told apart."""

    most: int
    known: set[str] = field(default_factory=set)

    def __call__(self, value: str) -> str:
        if value not in self.known:
            if len(self.known) >= self.most:
                return OTHER
            self.known.add(value)
        return value


class Metrics:
    """Everything that one process exports, in a registry of its own.

    ``clock`` gives the time that last-progress gauges are set to, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self.families: list[_Family] = []
        self._study = _Bound(MOST_STUDIES)
        self._reason = _Bound(MOST_REASONS)
        self._hear: Mapping[type, Callable[[Any], None]] = {
            reports.Ingested: self._ingested,
            reports.Lagging: self._lagging,
            reports.Stepped: self._stepped,
            reports.Published: self._published,
            reports.Unsendable: self._unsendable,
            reports.Outbox: self._outbox,
            reports.Progressed: self._progressed,
            reports.Reached: self._reached,
            reports.TunerReplaced: self._tuner_replaced,
            reports.SetAside: self._set_aside,
            reports.StudyGone: self._study_gone,
        }
        self._define()
        ProcessCollector(registry=self.registry)
        self._build(__version__).set(1)
        self._lag().set(math.nan)  # 0 would claim that somebody looked

    def hear(self, report: reports.Report, /) -> None:
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

    # -- definitions ------------------------------------------------------------------------

    def _define(self) -> None:
        counter, gauge, seconds = self._counter, self._gauge, self._seconds
        self._build = gauge("build_info", "Always 1; the label says which tunerd runs.", "version")
        # ingest
        self._records = counter(
            "ingest_records", "Records of the jobs topic by what became of them.", "outcome"
        )
        self._accepted = counter("observations", "New observations in history.", "study")
        self._rejected = counter("ingest_rejected", "Rejected records by kind of reason.", "reason")
        self._ingest_s = seconds("ingest_batch", "From having a batch of records to its commit.")
        self._lag = gauge("stream_lag_records", "Records on the jobs topic not ingested yet.")
        # tune
        self._learned = counter("learned_observations", "Observations learned.", "study")
        self._sequence = gauge("learned_sequence", "Last observation learned.", "study")
        self._unlearned = gauge(
            "unlearned_observations", "Observations in history that are not learned yet.", "study"
        )
        self._learn_s = seconds("learn", "Learning new observations, per step.")
        self._search_s = seconds("search", "Searching and deciding, per step.")
        self._searched = counter("searched_contexts", "Contexts searched.", "study")
        self._active = gauge(
            "active_contexts", "Contexts with a recent job or request, which are searched.", "study"
        )
        self._rebuilt = counter("models_rebuilt", "Newly fitted models put in place.", "study")
        self._kendall = gauge(
            "prediction_kendall_tau",
            "Rank correlation within contexts between what was predicted and what came, "
            "over a window of the last observations, each predicted before it was learned.",
            "study",
        )
        self._spearman = gauge(
            "prediction_spearman", "Spearman's rank correlation over the same window.", "study"
        )
        self._pearson = gauge(
            "prediction_pearson", "Pearson's correlation over the same window.", "study"
        )
        self._mape = gauge(
            "prediction_mape_ratio",
            "Mean absolute relative error over the same window; 0.1 is 10 %.",
            "study",
        )
        self._window = gauge(
            "prediction_window_observations", "Observations in that window.", "study"
        )
        self._gain_predicted = gauge(
            "gain_predicted_ratio",
            "Gain over the incumbent that candidates promised which have been run since; "
            "0.04 is 4 %.",
            "study",
        )
        self._gain_realised = gauge(
            "gain_realised_ratio", "Gain that the same candidates showed.", "study"
        )
        self._recommendations = counter(
            "recommendations",
            "Recommendations by what was said: issued, renewed, withdrawn.",
            "study",
            "change",
        )
        self._candidates = counter(
            "candidates", "Candidates in issued recommendations by kind.", "study", "kind"
        )
        self._aside = gauge(
            "study_set_aside",
            "1 for a study that is not tuned any more because it ended the tuner too often.",
            "study",
        )
        self._restarts = counter("tuner_restarts", "Tuner processes replaced, by why.", "why")
        # publish
        self._messages = counter("published_messages", "Messages sent, by kind.", "kind")
        self._lost = counter(
            "unsendable_messages", "Messages that the stream can never take, let go.", "kind"
        )
        self._publish_s = seconds("publish", "From sending a batch until it was acknowledged.")
        self._waiting = gauge("outbox_messages", "Messages that wait to be published.")
        self._oldest = gauge(
            "outbox_oldest_seconds", "Age of the oldest message that waits to be published."
        )
        # all stages
        self._progress = gauge(
            "stage_last_progress_timestamp_seconds",
            "When a stage last finished a step, with or without work, since 1970.",
            "stage",
        )
        self._steps = counter("stage_steps", "Steps of a stage that had work.", "stage")
        self._reachable = gauge(
            "reachable", "1 when the stream or the store could be reached, else 0.", "what"
        )
        self._failures = counter(
            "unreachable", "Times that the stream or the store could not be reached.", "what"
        )

    def _family(
        self, kind: Any, name: str, about: str, labels: Sequence[str], **how: Any
    ) -> _Family:
        family = _Family(
            kind(f"tunerd_{name}", about, labels, registry=self.registry, **how), labels
        )
        self.families.append(family)
        return family

    def _counter(self, name: str, about: str, *labels: str) -> _Family:
        return self._family(Counter, name, about, labels)

    def _gauge(self, name: str, about: str, *labels: str) -> _Family:
        return self._family(Gauge, name, about, labels)

    def _seconds(self, name: str, about: str) -> _Family:
        return self._family(Histogram, f"{name}_seconds", about, (), buckets=BUCKETS_S)

    # -- what is heard ----------------------------------------------------------------------

    def _ingested(self, report: reports.Ingested) -> None:
        for study, count in report.accepted.items():
            self._accepted(self._study(study)).inc(count)
        for reason, count in report.rejected.items():
            self._rejected(self._reason(reason)).inc(count)
        self._records("accepted").inc(sum(report.accepted.values()))
        self._records("duplicate").inc(report.duplicates)
        self._records("rejected").inc(sum(report.rejected.values()))
        self._ingest_s().observe(report.seconds)

    def _lagging(self, report: reports.Lagging) -> None:
        self._lag().set(math.nan if report.records is None else report.records)

    def _stepped(self, report: reports.Stepped) -> None:
        study = self._study(report.study)
        self._learned(study).inc(report.observations)
        self._searched(study).inc(report.contexts_searched)
        self._rebuilt(study).inc(report.rebuilt)
        for change in ("issued", "renewed", "withdrawn"):
            self._recommendations(study, change).inc(getattr(report, change))
        for kind, count in report.candidates.items():
            self._candidates(study, kind).inc(count)
        if report.learn_s is not None:
            self._learn_s().observe(report.learn_s)
        if report.search_s is not None:
            self._search_s().observe(report.search_s)
        if study != OTHER:  # a gauge of several studies together would tell nothing
            self._gauges(study, report)

    def _gauges(self, study: str, report: reports.Stepped) -> None:
        self._sequence.show(report.sequence, study)
        self._unlearned.show(report.waiting, study)
        self._active.show(report.contexts_active, study)
        self._gain_predicted.show(report.gain_predicted, study)
        self._gain_realised.show(report.gain_realised, study)
        if report.scores is not None:
            self._window.show(report.scores.observations, study)
            self._kendall.show(report.scores.kendall, study)
            self._spearman.show(report.scores.spearman, study)
            self._pearson.show(report.scores.pearson, study)
            self._mape.show(report.scores.mape, study)

    def _published(self, report: reports.Published) -> None:
        for kind, count in report.messages.items():
            self._messages(kind).inc(count)
        self._publish_s().observe(report.seconds)

    def _unsendable(self, report: reports.Unsendable) -> None:
        self._lost(report.kind).inc()

    def _outbox(self, report: reports.Outbox) -> None:
        self._waiting().set(report.waiting)
        self._oldest().set(report.oldest_s)

    def _progressed(self, report: reports.Progressed) -> None:
        self._progress(report.stage).set(self._clock())
        self._steps(report.stage).inc(report.worked)

    def _reached(self, report: reports.Reached) -> None:
        self._reachable(report.what).set(report.ok)
        self._failures(report.what).inc(not report.ok)

    def _tuner_replaced(self, report: reports.TunerReplaced) -> None:
        self._restarts(report.why).inc()

    def _set_aside(self, report: reports.SetAside) -> None:
        self._aside(self._study(report.study)).set(report.aside)

    def _study_gone(self, report: reports.StudyGone) -> None:
        self._study.known.discard(report.study)
        for family in self.families:
            family.forget("study", report.study)


_INTRODUCTION = f"""\
# Metrics

<!-- Made by `tunerd schema metrics --markdown`; a test compares the two. -->

`GET /metrics` on the daemon's HTTP port (`[http]` in [settings](settings.md)), in the text format
of Prometheus or as OpenMetrics. At most {MOST_STUDIES} studies have series of their own, further
ones are counted under `study="{OTHER}"` and have no gauges. A study's series disappear when it ends
or another instance takes it over. The process's own memory, processor time and open files are
there as `process_*`.

| name | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """``docs/metrics.md``."""
    lines = [_INTRODUCTION]
    for family in Metrics().families:
        (described,) = family.metric.describe()
        name = described.name + ("_total" if described.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{name}` | {described.type} | {labels} | {described.documentation} |\n")
    return "".join(lines)
