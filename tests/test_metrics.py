"""Metrics: what the stages report can be read off, with bounded labels."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tunerd.metrics import MOST_STUDIES, MetricsExporter, metrics_page
from tunerd.telemetry import (
    AttemptBacklog,
    BatchIngested,
    ConsumerLag,
    DependencyUnreachable,
    MessagesPublished,
    OutboxBacklog,
    PrequentialScores,
    PrometheusAsked,
    Report,
    RequestBacklog,
    RequestsAnswered,
    RequestsIngested,
    StageProgressed,
    StageStarting,
    StepCommitted,
    StepStarted,
    StudyBacklog,
    StudyLoaded,
    StudyRelearned,
    StudyReleased,
    StudySetAside,
    TunerMemory,
    TunerReady,
    TunerRestarted,
    dump_report,
    load_report,
)

DOCS = Path(__file__).parent.parent / "docs"

REPORTS: list[Report] = [
    BatchIngested(
        accepted={"a": 3, "b": 1},
        duplicates=2,
        rejected={"value": 1},
        halves=5,
        joined={"ended": 2, "running": 1},
        seconds=0.2,
    ),
    AttemptBacklog(waiting=4, incomplete=2),
    PrometheusAsked(points=7),
    PrometheusAsked(failed=True),
    ConsumerLag(records=7),
    RequestsIngested(accepted={"a": 2}, duplicates=1, rejected={"study": 1}, seconds=0.01),
    RequestBacklog(requests=3),
    RequestsAnswered(study="a", outcomes={"published": 1, "nothing": 1}, seconds=(0.2, 0.4)),
    StepCommitted(
        study="a",
        observations=3,
        sequence=3,
        waiting=4,
        learn_s=0.1,
        search_s=0.3,
        contexts_searched=2,
        contexts_active=5,
        rebuilt=True,
        issued=2,
        renewed=1,
        candidates={"exploit": 4, "explore": 1},
        scores=PrequentialScores(
            observations=40,
            kendall=0.5,
            spearman=0.6,
            pearson=0.7,
            mape=0.1,
            coverage=0.75,
            noise=0.02,
            repeats=9,
        ),
        gain_predicted=0.04,
        gain_realised=-0.01,
        overrated=0.02,
        introductions={"promoted": 1},
        contexts_foreseen={"foreseen": 2, "came": 1},
        rebuilds_failed=1,
        gain_jobs=12,
        running=4,
        proposed=1,
        suggested=3,
        paused=True,
        following={"followed": 2, "unasked": 1},
        outside={"tp": 2, "": 1},
        unusable={"missing": 2, "impossible": 3, "implausible": 1},
    ),
    StudyBacklog(
        study="a",
        sequence=3,
        waiting=6,
        last_at=99.0,
        recommended={"n=8": {"tp": 4.0}},
        foreseen={"n=~": {"n": {"0.5": 4.0}}},
        signals_shifted=2,
    ),
    MessagesPublished(messages={"recommendation": 2, "rejected": 1}, seconds=0.05),
    OutboxBacklog(waiting=9, oldest_s=1.5),
    TunerMemory(resident_bytes=10**8),
    StageStarting(stage="publish"),
    StageProgressed(stage="tune"),
    StageProgressed(stage="tune", worked=False),
    StageProgressed(stage="ingest"),
    DependencyUnreachable(stage="ingest", what="stream", problem="no broker"),
    TunerRestarted(why="died"),
    StudySetAside(study="a"),
    StudyRelearned(study="a", why="a checkpoint is damaged"),
    StudyLoaded(study="c", sequence=5),
    TunerReady(),
    StepStarted(study="a"),
]


def samples(metrics: MetricsExporter) -> dict[tuple[str, tuple[str, ...]], float]:
    text, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_reports_can_be_read_off() -> None:
    metrics = MetricsExporter(clock=lambda: 123.0)
    for report in REPORTS:
        metrics.hear(report)
    found = samples(metrics)
    expected = {
        ("tunerd_overrated_ratio", ("a",)): 0.02,
        ("tunerd_introductions_total", ("promoted", "a")): 1,
        ("tunerd_foreseen_contexts_total", ("foreseen", "a")): 2,
        ("tunerd_foreseen_contexts_total", ("came", "a")): 1,
        ("tunerd_ingest_records_total", ("accepted",)): 4,
        ("tunerd_ingest_records_total", ("duplicate",)): 2,
        ("tunerd_ingest_records_total", ("rejected",)): 1,
        ("tunerd_ingest_rejected_total", ("value",)): 1,
        ("tunerd_observations_total", ("b",)): 1,
        ("tunerd_ingest_batch_seconds_count", ()): 1,
        ("tunerd_ingest_rejected_total", ("study",)): 1,
        ("tunerd_stream_lag_records", ()): 7,
        ("tunerd_prometheus_points_total", ()): 7,
        ("tunerd_prometheus_questions_total", ("answered",)): 1,
        ("tunerd_prometheus_questions_total", ("failed",)): 1,
        ("tunerd_ingest_records_total", ("half",)): 5,
        ("tunerd_attempts_joined_total", ("running",)): 1,
        ("tunerd_attempts_waiting", ()): 4,
        ("tunerd_attempts_incomplete", ()): 2,
        ("tunerd_requests_total", ("accepted",)): 2,
        ("tunerd_requests_total", ("duplicate",)): 1,
        ("tunerd_requests_total", ("rejected",)): 1,
        ("tunerd_requests_unanswered", ()): 3,
        ("tunerd_requests_answered_total", ("published", "a")): 1,
        ("tunerd_request_answer_seconds_count", ()): 2,
        ("tunerd_learned_sequence", ("a",)): 3,
        ("tunerd_unlearned_observations", ("a",)): 6,
        ("tunerd_last_observation_timestamp_seconds", ("a",)): 99,
        ("tunerd_signals_shifted", ("a",)): 2,
        ("tunerd_search_seconds_sum", ()): 0.3,
        ("tunerd_prediction_kendall_tau", ("a",)): 0.5,
        ("tunerd_prediction_mape_ratio", ("a",)): 0.1,
        ("tunerd_prediction_coverage_ratio", ("a",)): 0.75,
        ("tunerd_job_noise_ratio", ("a",)): 0.02,
        ("tunerd_gain_realised_ratio", ("a",)): -0.01,
        ("tunerd_gain_jobs", ("a",)): 12,
        ("tunerd_jobs_total", ("followed", "a")): 2,
        ("tunerd_outside_jobs_total", ("tp", "a")): 2,
        ("tunerd_outside_jobs_total", ("_other", "a")): 1,
        ("tunerd_unusable_objectives_total", ("a", "missing")): 2,
        ("tunerd_unusable_objectives_total", ("a", "impossible")): 3,
        ("tunerd_unusable_objectives_total", ("a", "implausible")): 1,
        ("tunerd_recommended_contexts", ("running", "a")): 4,
        ("tunerd_recommended_contexts", ("proposed", "a")): 1,
        ("tunerd_study_paused", ("a",)): 1,
        ("tunerd_candidates_total", ("exploit", "a")): 4,
        ("tunerd_recommendations_total", ("issued", "a")): 2,
        ("tunerd_recommendations_total", ("suggested", "a")): 3,
        ("tunerd_models_rebuilt_total", ("a",)): 1,
        ("tunerd_rebuilds_failed_total", ("a",)): 1,
        ("tunerd_published_messages_total", ("recommendation",)): 2,
        ("tunerd_outbox_messages", ()): 9,
        ("tunerd_outbox_oldest_seconds", ()): 1.5,
        ("tunerd_stage_last_progress_timestamp_seconds", ("tune",)): 123,
        ("tunerd_stage_steps_total", ("tune",)): 1,
        ("tunerd_stage_last_progress_timestamp_seconds", ("publish",)): 123,
        ("tunerd_tuner_resident_memory_bytes", ()): 1e8,
        ("tunerd_reachable", ("ingest", "stream")): 0,
        ("tunerd_reachable", ("ingest", "store")): 1,
        ("tunerd_reachable", ("tune", "store")): 1,
        ("tunerd_unreachable_total", ("stream",)): 1,
        ("tunerd_tuner_restarts_total", ("died",)): 1,
        ("tunerd_study_set_aside", ("a",)): 1,
        ("tunerd_studies_learned_anew_total", ("a",)): 1,
        ("tunerd_study_set_aside", ("c",)): 0,
        ("tunerd_learned_sequence", ("c",)): 5,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not [name for name, _ in found if name.endswith("_created")]


def test_what_nobody_measured_is_not_zero() -> None:
    metrics = MetricsExporter()
    assert math.isnan(samples(metrics)[("tunerd_stream_lag_records", ())])
    metrics.hear(ConsumerLag(records=3))
    metrics.hear(ConsumerLag(records=None))
    assert math.isnan(samples(metrics)[("tunerd_stream_lag_records", ())])
    metrics.hear(OutboxBacklog(waiting=4, oldest_s=2.0))
    metrics.hear(OutboxBacklog(waiting=None))
    assert math.isnan(samples(metrics)[("tunerd_outbox_messages", ())])
    assert math.isnan(samples(metrics)[("tunerd_outbox_oldest_seconds", ())])


def test_what_can_be_reached_again_says_so() -> None:
    metrics = MetricsExporter()
    name = ("tunerd_reachable", ("publish", "store"))
    assert name not in samples(metrics)
    metrics.hear(DependencyUnreachable(stage="publish", what="store", problem="away"))
    assert samples(metrics)[name] == 0
    metrics.hear(StageProgressed(stage="publish", worked=False))
    assert samples(metrics)[name] == 1
    assert samples(metrics)[("tunerd_unreachable_total", ("store",))] == 1


def test_counters_begin_at_zero() -> None:
    """Prometheus sees no increase from a series that is not there to one that is 5."""
    metrics = MetricsExporter()
    assert samples(metrics)[("tunerd_tuner_restarts_total", ("deadline",))] == 0
    assert samples(metrics)[("tunerd_ingest_rejected_total", ("metrics",))] == 0
    assert ("tunerd_jobs_total", ("followed", "a")) not in samples(metrics)
    metrics.hear(StudyLoaded(study="a", sequence=7))
    found = samples(metrics)
    assert found[("tunerd_jobs_total", ("followed", "a"))] == 0
    assert found[("tunerd_learned_observations_total", ("a",))] == 0
    metrics.hear(StepCommitted(study="a", sequence=8, following={"followed": 1}))
    metrics.hear(StudyLoaded(study="a", sequence=8))  # the tuner process was replaced
    assert samples(metrics)[("tunerd_jobs_total", ("followed", "a"))] == 1


def test_a_study_that_is_not_ours_has_no_backlog_to_tell() -> None:
    metrics = MetricsExporter()
    name = ("tunerd_unlearned_observations", ("a",))
    metrics.hear(StudyBacklog(study="a", sequence=1, waiting=9))
    assert name not in samples(metrics)
    metrics.hear(StudyLoaded(study="a", sequence=1))
    metrics.hear(StudyBacklog(study="a", sequence=1, waiting=9))
    assert samples(metrics)[name] == 9
    metrics.hear(StudyReleased(study="a"))
    metrics.hear(StudyBacklog(study="a", sequence=1, waiting=9))
    assert name not in samples(metrics)


def test_recommended_numbers_are_those_of_now() -> None:
    metrics = MetricsExporter()
    metrics.hear(StudyLoaded(study="a", sequence=1))

    def shown(recommended: dict[str, dict[str, float]]) -> dict[tuple[str, ...], float]:
        metrics.hear(StudyBacklog(study="a", sequence=1, waiting=0, recommended=recommended))
        found = samples(metrics).items()
        return {labels: v for (name, labels), v in found if name == "tunerd_recommended_parameter"}

    assert shown({"n=8": {"tp": 4.0, "pp": 1.0}}) == {("n=8", "tp", "a"): 4, ("n=8", "pp", "a"): 1}
    assert shown({"n=8": {"tp": 8.0}, "": {"tp": 2.0}}) == {
        ("n=8", "tp", "a"): 8,
        ("", "tp", "a"): 2,
    }
    assert shown({}) == {}
    shown({"n=8": {"tp": 8.0}})
    metrics.hear(StudyReleased(study="a"))
    assert shown({"n=8": {"tp": 8.0}}) == {}  # another instance tells it


def test_a_score_that_is_no_longer_defined_disappears() -> None:
    metrics = MetricsExporter()
    name = ("tunerd_prediction_kendall_tau", ("a",))
    metrics.hear(
        StepCommitted(study="a", sequence=1, scores=PrequentialScores(observations=2, kendall=0.5))
    )
    assert samples(metrics)[name] == 0.5
    metrics.hear(StepCommitted(study="a", sequence=2))
    assert samples(metrics)[name] == 0.5
    metrics.hear(StepCommitted(study="a", sequence=3, scores=PrequentialScores(observations=3)))
    assert name not in samples(metrics)


def test_studies_beyond_the_bound_are_counted_together() -> None:
    metrics = MetricsExporter()
    for number in range(MOST_STUDIES + 3):
        outside = {f"p{number}": 1}
        metrics.hear(StepCommitted(study=f"s{number}", sequence=1, observations=2, outside=outside))
    found = samples(metrics)
    learned = {labels: v for (name, labels), v in found.items() if "learned_obs" in name}
    assert len(learned) == MOST_STUDIES + 1
    assert learned[("_other",)] == 6
    assert found["tunerd_outside_jobs_total", ("_other", "_other")] == 3
    assert ("tunerd_learned_sequence", ("_other",)) not in found


def test_a_study_that_is_gone_makes_room() -> None:
    metrics = MetricsExporter()
    for report in REPORTS:
        metrics.hear(report)
    metrics.hear(StudyReleased(study="a"))
    assert not [labels for _, labels in samples(metrics) if "a" in labels]
    assert ("tunerd_observations_total", ("b",)) in samples(metrics)
    for number in range(MOST_STUDIES - 2):  # b and c are there
        metrics.hear(StepCommitted(study=f"s{number}", sequence=1))
    assert ("tunerd_learned_sequence", (f"s{MOST_STUDIES - 3}",)) in samples(metrics)


def test_a_senders_own_fields_take_no_contracts_place() -> None:
    metrics = MetricsExporter()
    before = len(samples(metrics))
    for number in range(1000):
        metrics.hear(BatchIngested(rejected={f"made up {number}": 1}, seconds=0.0))
    metrics.hear(BatchIngested(rejected={"labels": 2}, seconds=0.0))
    metrics.hear(RequestsIngested(rejected={"requested_at": 3, "ce_id": 1}, seconds=0.0))
    found = samples(metrics)
    assert len(found) == before
    rejected = {labels[0]: n for (name, labels), n in found.items() if "ingest_rej" in name and n}
    assert rejected == {"_other": 1000, "labels": 2, "requested_at": 3, "ce_id": 1}


def test_openmetrics_on_request() -> None:
    text, content_type = MetricsExporter().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_reports_survive_the_pipe(report: Report) -> None:
    line = dump_report(report)
    assert b"\n" not in line
    assert load_report(line) == report


@given(st.floats() | st.none())
def test_any_score_survives_the_pipe(value: float | None) -> None:
    report = StepCommitted(
        study="a", sequence=1, scores=PrequentialScores(observations=1, kendall=value)
    )
    read = load_report(dump_report(report))
    assert isinstance(read, StepCommitted)
    assert read.scores is not None
    defined = value is not None and math.isfinite(value)
    assert read.scores.kendall == (value if defined else None)


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert (DOCS / "metrics.md").read_text() == metrics_page()
