"""Slurm's own records of jobs become halves of events.

The samples have the fields that Slurm 23.11 writes in ``jobcomp_common_job_record_to_data``, with
made-up values.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.events.reading import NOW, half, read
from tunerd.core.observation import Observation, Status
from tunerd.events import JobHalf, Rejection, read_job
from tunerd.events.joining import AttemptHalves, attempt_event_id
from tunerd.events.slurm import MOST_HOSTS, STATUSES, hosts

ENDED: dict[str, Any] = {
    "jobid": 4711,
    "container": None,
    "username": "ada",
    "user_id": 1001,
    "groupname": "ml",
    "group_id": 100,
    "@start": "2026-11-20T08:00:00",
    "@end": "2026-11-20T10:30:00",
    "elapsed": 9000,
    "partition": "gpu",
    "alloc_node": "login1",
    "nodes": "gpu[01-02,07]",
    "total_cpus": 192,
    "total_nodes": 3,
    "derived_ec": "0:0",
    "exit_code": "0:0",
    "state": "COMPLETED",
    "failed_node": None,
    "cpu_hours": 480.0,
    "@submit": "2026-11-20T07:55:00",
    "@eligible": "2026-11-20T07:55:00",
    "@queue_wait": 300,
    "work_dir": "/home/ada/run",
    "std_err": "/home/ada/run/err",
    "std_in": "/dev/null",
    "std_out": "/home/ada/run/out",
    "cluster": "cluster-a",
    "qos": "normal",
    "ntasks": 24,
    "ntasks_per_node": 8,
    "cpus_per_task": 8,
    "time_limit": 86400,
    "job_name": "pretrain",
    "tres_req": "cpu=192,mem=3T,node=3,billing=192,gres/gpu=24",
    "tres_alloc": "cpu=192,mem=3T,node=3,billing=192,gres/gpu=24,gres/gpu:h100=24",
    "account": "llm",
    "script": "#!/bin/bash\nexport TOKEN=secret\nsrun train\n",
    "parent_accounts": "/root/llm",
}


def test_a_record_is_the_half_that_slurm_knows() -> None:
    seen = half(ENDED)
    assert (seen.key.cluster, seen.key.job_id, seen.key.attempt) == ("cluster-a", "4711", 1)
    assert seen.type == "completed"
    assert seen.study is None
    assert seen.fields == {
        "status": "succeeded",
        "submitted_at": "2026-11-20T07:55:00Z",
        "started_at": "2026-11-20T08:00:00Z",
        "finished_at": "2026-11-20T10:30:00Z",
        "gpus": 24,
        "user": "ada",
        "nodes": ["gpu01", "gpu02", "gpu07"],
        "labels": {
            "job_name": "pretrain",
            "partition": "gpu",
            "account": "llm",
            "qos": "normal",
            "exit_code": "0:0",
        },
    }
    assert "secret" not in repr(seen)


@pytest.mark.parametrize(("state", "status"), STATUSES.items())
def test_states_are_told_apart(state: str, status: str) -> None:
    assert half(ENDED | {"state": state}).fields["status"] == status
    assert half(ENDED | {"state": f"{state} by 1001"}).fields["status"] == status


@pytest.mark.parametrize("state", ["RESIZING", "SUSPENDED", "PENDING", "", None, 3])
def test_what_is_no_end_is_rejected_and_says_why(state: object) -> None:
    seen = read(ENDED | {"state": state})
    assert isinstance(seen, Rejection)
    assert seen.field == "state"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"array_job_id": 4700, "array_task_id": 11}, "4700_11"),
        ({"array_job_id": 4700, "array_task_id": 0}, "4700_0"),
        ({"het_job_id": 4711, "het_job_offset": 1}, "4711+1"),
        ({"array_job_id": None, "array_task_id": None}, "4711"),
    ],
)
def test_tasks_and_parts_are_jobs_of_their_own(more: dict[str, Any], name: str) -> None:
    assert half(ENDED | more).key.job_id == name


def test_a_job_that_was_cancelled_while_it_waited_has_no_start() -> None:
    gone = {"state": "CANCELLED", "@start": "Unknown", "nodes": "(null)", "tres_alloc": None}
    seen = half(ENDED | gone)
    assert not {"started_at", "nodes", "gpus"} & seen.fields.keys()
    assert seen.fields["status"] == "cancelled"


def test_the_record_of_a_start_is_the_half_that_begins() -> None:
    seen = half(ENDED | {"state": "RUNNING", "@end": "Unknown"})
    assert (seen.type, seen.at[:19]) == ("started", "2026-11-20T08:00:00")
    assert not {"status", "finished_at"} & seen.fields.keys()


def test_an_end_without_its_time_is_rejected() -> None:
    seen = read(ENDED | {"@end": "Unknown"})
    assert isinstance(seen, Rejection)
    assert seen.field == "finished_at"


def test_told_again_it_is_the_same_half() -> None:
    assert half(ENDED) == half(dict(reversed(ENDED.items())))


def test_with_the_trainers_half_it_is_a_job() -> None:
    trainer = {
        "schema": "tunerd.job/1",
        "type": "reported",
        "source": "torch/cluster-a",
        "event_id": "t-1",
        "study": "llm",
        "job_id": "4711",
        "context": {"gpu": "H100"},
        "config": {"tp": 8},
        "metrics": {"tokens_per_second": 412.7},
    }
    halves = [half(ENDED), half(trainer)]
    assert halves[0].key == halves[1].key
    made = AttemptHalves()
    for one in halves:
        made.add(one)
    job = made.observation(halves[0].key, attempt_event_id(halves[0].key))
    assert isinstance(job, Observation)
    assert (job.study, job.job_id, job.status) == ("llm", "4711", Status.SUCCEEDED)
    assert (job.gpus, job.metrics) == (24, {"tokens_per_second": 412.7})


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("gpu[08-10]", ["gpu08", "gpu09", "gpu10"]),
        ("rack[0-1]node[1-2],login", ["rack0node1", "rack0node2", "rack1node1", "rack1node2"]),
        ("n1", ["n1"]),
        ("", []),
        ("n[5-1]", ["n5-1"]),
        ("n[a-b]", ["na-b"]),
    ],
)
def test_lists_of_hosts(nodes: str, names: list[str]) -> None:
    assert hosts(nodes)[: len(names)] == names


@pytest.mark.parametrize(
    "nodes", ["n[1-999999999]", "a[1-999999999]b[5-1]", "a[1]" * 20_000, "[" * 20_000]
)
def test_no_list_of_hosts_takes_long(nodes: str) -> None:
    assert len(hosts(nodes)) <= MOST_HOSTS


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@pytest.mark.slow
@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from([*ENDED, "array_job_id", "restart_cnt"]), SIMPLE))
def test_whatever_a_record_holds_it_is_a_half_or_has_a_reason(changes: dict[str, Any]) -> None:
    record = json.dumps(ENDED | changes).encode()
    assert isinstance(read_job(record, (), NOW), JobHalf | Rejection)
