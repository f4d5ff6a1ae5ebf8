"""Metrics: what the stages report can be read off, with bounded labels."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tunerd.metrics import MOST_STUDIES, Metrics, metrics_page
from tunerd.reports import (
    Began,
    Ingested,
    Lagging,
    Outbox,
    Progressed,
    Published,
    Reached,
    Ready,
    Report,
    Scores,
    SetAside,
    Stepped,
    StudyGone,
    TunerReplaced,
    dump_report,
    load_report,
)

DOCS = Path(__file__).parent.parent / "docs"

REPORTS: list[Report] = [
    Ingested(accepted={"a": 3, "b": 1}, duplicates=2, rejected={"not JSON": 1}, seconds=0.2),
    Lagging(records=7),
    Stepped(
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
        scores=Scores(observations=40, kendall=0.5, spearman=0.6, pearson=0.7, mape=0.1),
        gain_predicted=0.04,
        gain_realised=-0.01,
    ),
    Published(messages={"recommendation": 2, "rejected": 1}, seconds=0.05),
    Outbox(waiting=9, oldest_s=1.5),
    Progressed(stage="tune"),
    Progressed(stage="tune", worked=False),
    Reached(what="stream", ok=False),
    TunerReplaced(why="died"),
    SetAside(study="a"),
    Ready(),
    Began(study="a"),
]


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    text, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_reports_can_be_read_off() -> None:
    metrics = Metrics(clock=lambda: 123.0)
    for report in REPORTS:
        metrics.hear(report)
    found = samples(metrics)
    expected = {
        ("tunerd_ingest_records_total", ("accepted",)): 4,
        ("tunerd_ingest_records_total", ("duplicate",)): 2,
        ("tunerd_ingest_records_total", ("rejected",)): 1,
        ("tunerd_ingest_rejected_total", ("not JSON",)): 1,
        ("tunerd_observations_total", ("b",)): 1,
        ("tunerd_ingest_batch_seconds_count", ()): 1,
        ("tunerd_stream_lag_records", ()): 7,
        ("tunerd_learned_sequence", ("a",)): 3,
        ("tunerd_unlearned_observations", ("a",)): 4,
        ("tunerd_search_seconds_sum", ()): 0.3,
        ("tunerd_prediction_kendall_tau", ("a",)): 0.5,
        ("tunerd_prediction_mape_ratio", ("a",)): 0.1,
        ("tunerd_gain_realised_ratio", ("a",)): -0.01,
        ("tunerd_candidates_total", ("exploit", "a")): 4,
        ("tunerd_recommendations_total", ("issued", "a")): 2,
        ("tunerd_models_rebuilt_total", ("a",)): 1,
        ("tunerd_published_messages_total", ("recommendation",)): 2,
        ("tunerd_outbox_messages", ()): 9,
        ("tunerd_outbox_oldest_seconds", ()): 1.5,
        ("tunerd_stage_last_progress_timestamp_seconds", ("tune",)): 123,
        ("tunerd_stage_steps_total", ("tune",)): 1,
        ("tunerd_reachable", ("stream",)): 0,
        ("tunerd_unreachable_total", ("stream",)): 1,
        ("tunerd_tuner_restarts_total", ("died",)): 1,
        ("tunerd_study_set_aside", ("a",)): 1,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not [name for name, _ in found if name.endswith("_created")]


def test_what_nobody_measured_is_not_zero() -> None:
    metrics = Metrics()
    assert math.isnan(samples(metrics)[("tunerd_stream_lag_records", ())])
    metrics.hear(Lagging(records=3))
    metrics.hear(Lagging(records=None))
    assert math.isnan(samples(metrics)[("tunerd_stream_lag_records", ())])


def test_a_score_that_is_no_longer_defined_disappears() -> None:
    metrics = Metrics()
    name = ("tunerd_prediction_kendall_tau", ("a",))
    metrics.hear(Stepped(study="a", sequence=1, scores=Scores(observations=2, kendall=0.5)))
    assert samples(metrics)[name] == 0.5
    metrics.hear(Stepped(study="a", sequence=2))
    assert samples(metrics)[name] == 0.5
    metrics.hear(Stepped(study="a", sequence=3, scores=Scores(observations=3)))
    assert name not in samples(metrics)


def test_studies_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(MOST_STUDIES + 3):
        metrics.hear(Stepped(study=f"s{number}", sequence=1, observations=2))
    found = samples(metrics)
    learned = {labels: v for (name, labels), v in found.items() if "learned_obs" in name}
    assert len(learned) == MOST_STUDIES + 1
    assert learned[("_other",)] == 6
    assert ("tunerd_learned_sequence", ("_other",)) not in found


def test_a_study_that_is_gone_makes_room() -> None:
    metrics = Metrics()
    for report in REPORTS:
        metrics.hear(report)
    metrics.hear(StudyGone(study="a"))
    assert not [labels for _, labels in samples(metrics) if "a" in labels]
    assert ("tunerd_observations_total", ("b",)) in samples(metrics)
    for number in range(MOST_STUDIES - 1):
        metrics.hear(Stepped(study=f"s{number}", sequence=1))
    assert ("tunerd_learned_sequence", (f"s{MOST_STUDIES - 2}",)) in samples(metrics)


def test_reasons_are_bounded() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.hear(Ingested(rejected={f"reason {number}": 1}, seconds=0.0))
    reasons = [name for name, _ in samples(metrics) if name == "tunerd_ingest_rejected_total"]
    assert len(reasons) <= 51


def test_openmetrics_on_request() -> None:
    text, content_type = Metrics().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_reports_survive_the_pipe(report: Report) -> None:
    line = dump_report(report)
    assert b"\n" not in line
    assert load_report(line) == report


@given(st.floats() | st.none())
def test_any_score_survives_the_pipe(value: float | None) -> None:
    report = Stepped(study="a", sequence=1, scores=Scores(observations=1, kendall=value))
    read = load_report(dump_report(report))
    assert isinstance(read, Stepped)
    assert read.scores is not None
    defined = value is not None and math.isfinite(value)
    assert read.scores.kendall == (value if defined else None)


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert (DOCS / "metrics.md").read_text() == metrics_page()
