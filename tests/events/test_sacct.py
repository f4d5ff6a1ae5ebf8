"""Slurm's accounting becomes the same halves as its records of completion."""

from typing import Any

import pytest

from tests.events.reading import half, reason
from tests.events.samples import SACCT, SACCT_21, SACCT_ROW, changed
from tests.events.test_slurm import ENDED


def test_it_says_what_jobcomp_says_of_the_same_job() -> None:
    told = half(ENDED)
    for record in (SACCT, SACCT_ROW):
        seen = half(record)
        assert (seen.key, seen.type) == (told.key, "completed")
        for name in ("status", "started_at", "finished_at", "gpus", "user", "nodes"):
            assert seen.fields[name] == told.fields[name], name
        for name, value in told.fields["labels"].items():
            assert seen.fields["labels"][name] == value
        assert seen.fields["labels"]["elapsed_s"] == 9000
        assert "secret" not in repr(seen)


def test_sizes_are_bytes() -> None:
    assert half(SACCT_ROW).fields["labels"]["max_rss_bytes"] == 3532 * 1024


def test_older_versions_have_plain_numbers() -> None:
    seen = half(SACCT_21)
    assert seen.key.job_id == "4700_11"
    assert (seen.fields["gpus"], seen.fields["labels"]["exit_code"]) == (8, "0:0")


@pytest.mark.parametrize(
    ("paths", "job_id"),
    [
        ({"array__job_id": 4700, "array__task_id": {"set": True, "number": 3}}, "4700_3"),
        ({"array__job_id": 4700, "array__task_id": {"set": True, "number": 0}}, "4700_0"),
        ({"array__job_id": 4700, "array__task_id": 4294967294}, "4711"),
        ({"het__job_id": 4710, "het__job_offset": {"set": True, "number": 1}}, "4710+1"),
        ({"het__job_id": 4711, "het__job_offset": 0}, "4711+0"),
    ],
)
def test_tasks_and_parts_are_jobs_of_their_own(paths: dict[str, Any], job_id: str) -> None:
    assert half(changed(SACCT, **paths)).key.job_id == job_id


def test_a_requeued_job_is_another_attempt() -> None:
    assert half(changed(SACCT, restart_cnt=2)).key.attempt == 3
    assert half(SACCT_ROW | {"Restarts": "2"}).key.attempt == 3


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("CANCELLED by 1001", "cancelled"),
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("PREEMPTED", "preempted"),
        ("REQUEUED", "cancelled"),
        ("NODE_FAIL", "node_failure"),
        ("TIMEOUT", "timeout"),
    ],
)
def test_states(state: str, status: str) -> None:
    assert half(changed(SACCT, state__current=state.split())).fields["status"] == status
    assert half(SACCT_ROW | {"State": state}).fields["status"] == status


def test_a_step_out_of_memory_says_why_the_job_failed() -> None:
    steps = [{"state": "FAILED"}, {"state": ["OUT_OF_MEMORY"]}, None, 3]
    record = changed(SACCT, state__current=["FAILED"], steps=steps)
    assert half(record).fields["status"] == "out_of_memory"
    assert half(changed(record, state__current=["COMPLETED"])).fields["status"] == "succeeded"


def test_what_has_not_ended_is_the_half_that_begins() -> None:
    waits = half(changed(SACCT, state__current=["PENDING"], time__end=0))
    assert (waits.type, "started_at" in waits.fields) == ("started", False)
    runs = half(SACCT_ROW | {"State": "RUNNING", "End": "Unknown"})
    assert (runs.type, runs.fields["started_at"]) == ("started", "2026-11-20T08:00:00Z")


@pytest.mark.parametrize(
    "words",
    [
        ["REQUEUED", "PENDING"],
        ["PENDING", "REQUEUED"],
        ["REQUEUED", "RUNNING"],
        ["RUNNING", "REQUEUED"],
        ["REQUEUED", "REQUEUE_HOLD"],
        ["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"],
    ],
)
def test_a_job_that_was_sent_back_into_the_queue_has_not_ended(words: list[str]) -> None:
    row = SACCT_ROW | {"End": "Unknown", "Restarts": "1"}
    shown = [row | {"State": state} for state in (words, " ".join(words), ",".join(words))]
    for record in (changed(SACCT, state__current=words, time__end=0, restart_cnt=1), *shown):
        seen = half(record)
        assert (seen.type, seen.key.attempt, "status" in seen.fields) == ("started", 2, False)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["REQUEUED"], "cancelled"),
        (["PREEMPTED", "REQUEUED"], "preempted"),
        (["REQUEUED", "NODE_FAIL"], "node_failure"),
        (["COMPLETED", "COMPLETING"], "succeeded"),
    ],
)
def test_the_attempt_that_was_sent_back_ended_as_its_state_says(
    words: list[str], status: str
) -> None:
    assert half(changed(SACCT, state__current=words)).fields["status"] == status
    assert half(SACCT_ROW | {"State": words}).fields["status"] == status


def test_an_end_follows_from_start_and_duration() -> None:
    record = {name: value for name, value in SACCT_ROW.items() if name != "End"}
    assert half(record).fields["finished_at"] == "2026-11-20T10:30:00+00:00"
    assert "finished_at" in reason(record | {"Elapsed": "soon"})


def test_seconds_since_1970_are_times_too() -> None:
    seen = half(SACCT_ROW | {"Start": "1795161600", "End": "1795170600"})
    assert seen.fields["finished_at"] == "2026-11-20T10:30:00Z"


def test_what_cannot_be_used_says_why() -> None:
    assert reason({"meta": {}, "jobs": [SACCT, SACCT]}).startswith(
        "jobs: holds 2 records; send each by itself: sacct --json | jq"
    )
    assert "is a step" in reason(SACCT_ROW | {"JobID": "4711.batch"})
    assert reason(SACCT_ROW | {"State": "LOST"}).startswith("State: expected a state")
    assert reason(SACCT_ROW | {"JobID": None}).startswith("JobID: expected the number of a job")
    assert reason(changed(SACCT, state__current=[])).startswith("state: expected a state")


def test_the_same_job_seen_again_is_the_same_half() -> None:
    later = changed(SACCT, priority={"set": False}, submit_line="sbatch other.sh")
    assert half(later) == half(SACCT)
    assert half(changed(SACCT, time__end=1795170601)).event_id != half(SACCT).event_id
