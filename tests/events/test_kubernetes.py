"""States of Kubernetes' Jobs and Kueue's Workloads become halves, each once."""

from typing import Any

import pytest

from tests.events.reading import half, read
from tests.events.samples import JOB, WORKLOAD, changed, condition
from tunerd.core.observation import Observation
from tunerd.events import Rejection
from tunerd.events.half import AttemptKey
from tunerd.events.joining import AttemptHalves, attempt_event_id

UID = JOB["metadata"]["uid"]
RUNNING = changed(JOB, status={"startTime": "2026-11-20T08:00:00Z", "active": 2, "ready": 1})
SUSPENDED = changed(
    JOB,
    status={
        "startTime": "2026-11-20T08:00:00Z",
        "conditions": [condition("Suspended", "JobSuspended", "2026-11-20T09:00:00Z")],
    },
)


def job_with(*conditions: dict[str, Any], **paths: Any) -> dict[str, Any]:
    return changed(JOB, status__conditions=list(conditions), **paths)


def workload_with(*conditions: dict[str, Any], **paths: Any) -> dict[str, Any]:
    return changed(WORKLOAD, status__conditions=list(conditions), **paths)


def test_a_finished_job_is_the_half_that_kubernetes_knows() -> None:
    seen = half(JOB)
    assert seen.key == AttemptKey("kubernetes", UID, 1)
    assert (seen.type, seen.study) == ("completed", "llm")
    assert {name: value for name, value in seen.fields.items() if name != "study"} == {
        "status": "succeeded",
        "submitted_at": "2026-11-20T07:55:00Z",
        "started_at": "2026-11-20T08:00:00Z",
        "finished_at": "2026-11-20T10:30:00Z",
        "gpus": 16,
        "context": {"gpu": "H100", "n_gpus": 16},
        "config": {"tp": 8, "precision": "bf16"},
        "recommendation_id": "r-51f2f8a3d2c95c4c0a7e",
        "candidate_id": "c-0e6f7d1a53b6c1f2d9aa",
        "labels": {"job_name": "ml/pretrain-7", "reason": "CompletionsReached"},
    }


def test_with_the_trainers_half_it_is_a_job_however_often_it_is_seen() -> None:
    report = {
        "schema": "tunerd.job/1",
        "type": "reported",
        "source": "trainer/kubernetes",
        "event_id": "t",
        "job_id": UID,
        "metrics": {"tokens_per_second": 412.7},
    }
    made = AttemptHalves()
    outcomes = []
    for seen_at in range(10):  # as the object changes, and after the watch began anew
        for state in (RUNNING, JOB):
            record = changed(state, metadata__resourceVersion=str(seen_at), status__ready=seen_at)
            outcomes.append(made.add(half(record)))
            event = {"type": "ADDED" if seen_at == 5 else "MODIFIED", "object": record}
            outcomes.append(made.add(half(event)))
    assert (outcomes.count("fresh"), set(outcomes)) == (2, {"fresh", "duplicate"})
    assert made.missing == ("reported",)
    made.add(half(report))
    job = made.observation(half(JOB).key, attempt_event_id(half(JOB).key))
    assert isinstance(job, Observation)
    assert (job.study, job.config["tp"], job.metrics) == ("llm", 8, {"tokens_per_second": 412.7})


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("BackoffLimitExceeded", "failed"),
        ("DeadlineExceeded", "timeout"),
        ("PodFailurePolicy", "failed"),
        ("FailedIndexes", "failed"),
    ],
)
def test_why_a_job_failed(reason: str, status: str) -> None:
    seen = half(job_with(condition("Failed", reason, "2026-11-20T09:30:00Z")))
    assert (seen.fields["status"], seen.fields["labels"]["reason"]) == (status, reason)
    assert seen.fields["finished_at"] == "2026-11-20T09:30:00Z"


def test_a_condition_that_does_not_hold_says_nothing() -> None:
    seen = half(job_with(condition("Complete", "x", "2026-11-20T09:30:00Z", status="False")))
    assert seen.type == "started"


def test_a_job_that_waits_or_runs_is_the_half_that_begins() -> None:
    waits = half(changed(JOB, spec__suspend=True, status={}))
    assert (waits.type, waits.study, "started_at" in waits.fields) == ("started", "llm", False)
    assert half(RUNNING).fields["started_at"] == "2026-11-20T08:00:00Z"
    assert half(RUNNING) == half(changed(RUNNING, status__active=1, status__ready=2))


def test_a_suspended_run_is_an_attempt_that_was_preempted() -> None:
    seen = half(SUSPENDED)
    assert (seen.type, seen.fields["status"]) == ("completed", "preempted")
    assert seen.key.job_id == f"{UID}@2026-11-20T08:00:00Z"
    assert half(changed(SUSPENDED, metadata__resourceVersion="9")) == seen
    again = half(changed(SUSPENDED, status__startTime="2026-11-20T12:00:00Z"))
    assert again.key != seen.key
    assert half(JOB).key.job_id == UID
    made = AttemptHalves()
    made.add(seen)
    assert made.missing == ()  # it counts by itself, and says nothing against the configuration


def test_of_a_queued_job_the_workload_says_that_it_was_evicted() -> None:
    labels = {**JOB["metadata"]["labels"], "kueue.x-k8s.io/queue-name": "gpu"}
    assert half(changed(SUSPENDED, metadata__labels=labels)).type == "started"
    seen = half(WORKLOAD)
    assert seen.key == AttemptKey("kubernetes", f"{UID}@2026-11-20T09:00:00Z", 1)
    assert (seen.type, seen.fields["status"]) == ("completed", "preempted")
    assert seen.fields["labels"] == {
        "job_name": "pretrain-7",
        "queue": "gpu",
        "reason": "Preempted",
    }


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("PodsReadyTimeout", "preempted"),
        ("NodeFailures", "node_failure"),
        ("Deactivated", "cancelled"),
        ("DeactivatedDueToMaximumExecutionTimeExceeded", "timeout"),
        ("InactiveWorkload", "cancelled"),
    ],
)
def test_why_a_workload_was_evicted(reason: str, status: str) -> None:
    seen = half(workload_with(condition("Evicted", reason, "2026-11-20T09:00:00Z")))
    assert seen.fields["status"] == status


@pytest.mark.parametrize(
    ("reason", "message", "status"),
    [
        ("Succeeded", "", "succeeded"),
        ("Failed", "", "failed"),
        ("AdmissionChecksRejected", "", "cancelled"),
        ("JobFinished", "Job finished successfully", "succeeded"),
        ("JobFinished", "Job has reached the specified backoff limit", "failed"),
        ("JobFinished", "Pods succeeded: 2/2.", "succeeded"),
        ("JobFinished", "Job did not finish successfully", "failed"),
        ("JobFinished", "The job has not completed", "failed"),
        ("JobFinished", "RayJob failed to complete", "failed"),
        ("JobFinished", "unsuccessful", "failed"),
        ("JobFinished", "incomplete", "failed"),
        ("FailedToStart", "1 of 2 pods completed", "failed"),
    ],
)
def test_how_a_workload_finished(reason: str, message: str, status: str) -> None:
    ended = condition("Finished", reason, "2026-11-20T10:30:01Z", message=message)
    evicted = condition("Evicted", "Preempted", "2026-11-20T09:00:00Z", status="False")
    seen = half(workload_with(evicted, ended))
    assert (seen.key.job_id, seen.fields["status"]) == (UID, status)


def test_an_admitted_workload_is_the_half_that_begins() -> None:
    seen = half(workload_with(condition("Admitted", "Admitted", "2026-11-20T08:00:00Z")))
    assert (seen.type, seen.fields["started_at"]) == ("started", "2026-11-20T08:00:00Z")


def test_what_is_deleted_before_its_end_was_cancelled() -> None:
    gone = changed(RUNNING, metadata__deletionTimestamp="2026-11-20T08:30:00Z")
    seen = half({"type": "DELETED", "object": gone})
    assert (seen.fields["status"], seen.key.job_id) == ("cancelled", UID)
    assert half({"type": "DELETED", "object": JOB}) == half(JOB)


def test_annotations_name_job_attempt_and_cluster_and_win_over_labels() -> None:
    notes = {
        "tunerd.dev/study": "other",
        "tunerd.dev/job-id": "train-7",
        "tunerd.dev/attempt": "3",
        "tunerd.dev/cluster": "west",
        "tunerd.dev/context": '{"gpu": "A100", "n": [1, 2]}',
        "tunerd.dev/duration-metric": "wall_s",
    }
    seen = half(changed(JOB, metadata__annotations=notes))
    assert seen.key == AttemptKey("west", "train-7", 3)
    assert (seen.study, seen.fields["context"]) == ("other", {"gpu": "A100", "n": [1, 2]})
    assert seen.fields["metrics"] == {"wall_s": 9000.0}


def test_a_job_without_a_word_for_tunerd_waits_for_other_halves() -> None:
    seen = half(changed(JOB, metadata__annotations=None, metadata__labels=None))
    assert seen.study is None
    assert not {"context", "config"} & seen.fields.keys()


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "kind"),
        ({"type": "BOOKMARK", "object": {"kind": "Job"}}, "type"),
        ({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1"}}, "type"),
        ({"type": "ADDED", "object": {"kind": "Pod", "apiVersion": "v1"}}, "object.kind"),
        ({"apiVersion": "v1", "kind": "List", "items": [JOB, JOB]}, "items"),
        (changed(JOB, metadata__uid=None), "metadata.uid"),
        (changed(JOB, metadata__uid={"a": 1}), "metadata.uid"),
    ],
)
def test_what_is_no_job_says_why(record: dict[str, Any], field: str) -> None:
    seen = read(record)
    assert isinstance(seen, Rejection)
    assert seen.field == field


def test_a_list_with_one_job_is_that_job() -> None:
    assert half({"apiVersion": "v1", "kind": "List", "items": [JOB]}) == half(JOB)


@pytest.mark.parametrize(
    ("completed", "metrics"),
    [
        ("2026-11-20T08:00:07Z", {"wall_s": 7.0}),
        ("2026-11-20T08:00:00Z", {"wall_s": 1.0}),  # times are whole seconds; 0 is no speed
        ("2026-11-20T07:59:00Z", None),  # or it would be the fastest job of all
    ],
)
def test_a_duration_is_never_zero_or_less(completed: str, metrics: Any) -> None:
    job = changed(
        JOB,
        metadata__annotations={"tunerd.dev/study": "s", "tunerd.dev/duration-metric": "wall_s"},
        status__completionTime=completed,
    )
    assert half(job).fields.get("metrics") == metrics
