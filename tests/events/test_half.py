"""Halves of a job event: which events are halves, what they say, and why others are refused."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.broken_events import NOW, good_event
from tunerd.client import Choice, JobReporter
from tunerd.core.observation import Observation
from tunerd.events import JobHalf, Rejection, SignalPoint, half_schema, read_job

START: dict[str, Any] = {"type": "started", "context": {"gpu": "H100"}, "config": {"tp": 8}}
REPORT: dict[str, Any] = {"type": "reported", "metrics": {"tps": 3.5}, "steps": 100}
END: dict[str, Any] = {
    "type": "completed",
    "status": "failed",
    "finished_at": (NOW - timedelta(hours=1)).isoformat(),
}


def read(half: dict[str, Any], **changes: Any) -> JobHalf | Observation | SignalPoint | Rejection:
    names = {"schema": "tunerd.job/1", "event_id": "e", "job_id": "123_4", "source": "slurm/a"}
    return read_job(json.dumps({**names, **half, **changes}).encode(), (), NOW)


@pytest.mark.parametrize("half", [START, REPORT, END])
def test_each_type_is_a_half(half: dict[str, Any]) -> None:
    seen = read(half)
    assert isinstance(seen, JobHalf), seen
    assert (seen.type, seen.key) == (half["type"], ("a", "123_4", 1))
    assert {**seen.fields, "type": seen.type} == half
    assert seen.study is None


def test_a_whole_event_is_none_unless_it_says_so() -> None:
    def seen(**changes: Any) -> object:
        return type(read_job(json.dumps(good_event("e", **changes)).encode(), (), NOW))

    assert seen() is Observation
    assert seen(partial=False) is Observation
    assert seen(partial=True) is JobHalf
    assert seen(type=None, context=None, config=None) is JobHalf
    assert seen(context=None) is Rejection
    assert seen(config=None) is Rejection


@pytest.mark.parametrize(
    ("names", "cluster"),
    [
        ({"source": "slurm/a"}, "a"),
        ({"source": "torch/a"}, "a"),
        ({"source": "a"}, "a"),
        ({"source": "k8s/eu/a"}, "eu/a"),
        ({"source": None}, ""),
        ({"source": "slurm/"}, ""),
        ({"source": "trainer/", "cluster": ""}, ""),
        ({"source": "torch", "cluster": "a"}, "a"),
        ({"source": "torch/b", "cluster": "a"}, "a"),
        ({"source": "torch/b", "cluster": ""}, "b"),
    ],
)
def test_the_cluster_follows_from_the_source_unless_it_is_said(
    names: dict[str, Any], cluster: str
) -> None:
    seen = read(START, **names)
    assert isinstance(seen, JobHalf)
    assert seen.key.cluster == cluster


@pytest.mark.parametrize(
    ("half", "changes", "expected"),
    [
        (START, {"job_id": None}, "job_id: expected a text"),
        (START, {"schema": "tunerd.job/2"}, "schema: the text 'tunerd.job/2' is a version"),
        (START, {"study": ""}, "study: expected a text"),
        (START, {"cluster": 7}, "cluster: expected a text"),
        (START, {"config": [8]}, "config: expected an object, {…}, got a list"),
        (START, {"config": {"tp": {}}}, "config.tp: expected a number, text"),
        (START, {"started_at": "2026-11-22T12:00:00Z"}, "started_at: 2026-11-22T12:00:00+00:00 is"),
        (START, {"more": {"deep": "\0"}}, "more.deep: contains the character NUL"),
        (REPORT, {"metrics": None}, "metrics: is missing; a 'reported' half says"),
        (REPORT, {"metrics": {"tps": "fast"}}, "metrics.tps: expected a number"),
        (REPORT, {"steps": -1}, "steps: expected a whole number of steps"),
        (REPORT, {"steps": 2**70}, "steps: expected a whole number of steps"),
        (REPORT, {"reported_at": "today"}, "reported_at: expected an RFC 3339 time"),
        (END, {"status": None}, "status: is missing; expected one of succeeded"),
        (END, {"status": "running"}, "status: expected one of succeeded"),
        (END, {"finished_at": None}, "finished_at: is missing; expected an RFC 3339 time"),
        (END, {"finished_at": "2024-11-23T12:00:00Z"}, "finished_at: 2024-11-23T12:00:00+00:00 is"),
        (END, {"attempt": 0}, "attempt: expected a whole number from 1"),
    ],
)
def test_a_broken_half_is_rejected_with_a_reason(
    half: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    seen = read(half, **changes)
    assert isinstance(seen, Rejection), seen
    assert seen.reason.startswith(expected)


def test_only_an_end_says_how_it_ended() -> None:
    seen = read(REPORT, status="failed", finished_at=END["finished_at"])
    assert isinstance(seen, JobHalf)
    assert not seen.fields.keys() & {"status", "finished_at"}


def test_an_old_half_is_accepted_as_history() -> None:
    assert isinstance(read(END, finished_at="2024-11-23T12:00:00Z", history=True), JobHalf)


def test_a_metric_that_is_no_number_is_missing() -> None:
    seen = read(REPORT, metrics={"tps": "NaN", "loss": 2})
    assert isinstance(seen, JobHalf)
    assert seen.fields["metrics"] == {"tps": None, "loss": 2}


def test_the_schema_allows_what_is_read() -> None:
    definition = half_schema()["$defs"]["HalfEvent"]
    assert definition["required"] == ["schema", "event_id", "job_id"]


def test_the_client_sends_halves(tmp_path: Path) -> None:
    scheduler = JobReporter.jsonl(tmp_path, "jobs", source="slurm/a")
    trainer = JobReporter.jsonl(tmp_path, "jobs", source="torch")
    choice = Choice({"tp": 8}, "exploit", "r-1", "c-1")
    ids = [
        scheduler.started(
            study="llm", job_id="1", context={"gpu": "H100"}, config={"tp": 8}, choice=choice
        ),
        trainer.reported(job_id="1", cluster="a", metrics={"tps": 3.0}, steps=10, measured_s=2.5),
        trainer.reported(job_id="1", cluster="a", metrics={"tps": 3.5}, steps=20, measured_s=5.0),
        scheduler.completed(job_id="1", status="out_of_memory", gpus=8),
    ]
    assert len(set(ids)) == 4
    now = datetime.now(UTC)
    sent = (tmp_path / "jobs.jsonl").read_bytes().splitlines()
    seen = [read_job(raw, (), now) for raw in sent]
    halves = [one for one in seen if isinstance(one, JobHalf)]
    assert [one.event_id for one in halves] == ids
    assert {one.key for one in halves} == {("a", "1", 1)}
    assert [one.type for one in halves] == ["started", "reported", "reported", "completed"]
    assert halves[0].fields["recommendation_id"] == "r-1"
    assert [one.steps for one in halves] == [-1, 10, 20, -1]
    assert halves[3].fields["status"] == "out_of_memory"


def test_the_client_gives_the_same_half_the_same_id(tmp_path: Path) -> None:
    trainer = JobReporter.jsonl(tmp_path, "jobs", source="torch/a")
    report: dict[str, Any] = {"job_id": "1", "metrics": {"tps": 3.0}, "reported_at": NOW}
    assert trainer.reported(**report) == trainer.reported(**report)
    assert trainer.reported(**report) != trainer.reported(**report, attempt=2)
    assert trainer.reported(**report, event_id="mine") == "mine"


def test_the_client_refuses_what_is_of_no_use(tmp_path: Path) -> None:
    reporter = JobReporter.jsonl(tmp_path, "jobs")
    with pytest.raises(ValueError, match="status: expected one of succeeded"):
        reporter.completed(job_id="1", status="done")
    with pytest.raises(ValueError, match="started_at: needs a zone"):
        reporter.started(job_id="1", started_at=NOW.replace(tzinfo=None))
    with pytest.raises(ValueError, match="job_id: expected a text"):
        reporter.started(job_id="")
