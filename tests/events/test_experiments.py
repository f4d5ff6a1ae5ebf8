"""Runs of experiment trackers and of Ray become halves: what was launched, and how fast it was."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.events.reading import half, reason
from tests.events.samples import (
    MLFLOW,
    RAY_EXPORT,
    RAY_JOB,
    RAY_RESULT,
    WANDB,
    WANDB_GRAPHQL,
    changed,
)
from tunerd.core.observation import Observation
from tunerd.events.half import AttemptKey
from tunerd.events.joining import AttemptHalves, attempt_event_id

Record = dict[str, Any]


def job(*records: Record) -> Observation:
    made = AttemptHalves()
    for record in records:
        made.add(half(record))
    assert made.missing == ()
    key = half(records[0]).key
    whole = made.observation(key, attempt_event_id(key))
    assert isinstance(whole, Observation), whole
    return whole


# -- MLflow -------------------------------------------------------------------------------------


def test_a_run_of_mlflow_is_a_whole_job_by_itself() -> None:
    seen = job(MLFLOW)
    assert half(MLFLOW).key == AttemptKey("mlflow", MLFLOW["info"]["run_id"], 1)
    assert (seen.study, seen.status.value, seen.user) == ("llm", "succeeded", "ada")
    assert seen.finished_at == datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    assert seen.context == {"gpu": "H100", "n_gpus": 16}
    assert seen.config == {
        "tp": 8,
        "fused": True,
        "sharding": ["FULL_SHARD", "NO_SHARD"],
        "precision": "bf16",
    }
    assert seen.metrics == {"train/tokens/s": 412.7}
    assert half(MLFLOW).steps == 5000


def test_a_run_that_goes_on_reports_and_is_corrected_by_its_end() -> None:
    running = changed(MLFLOW, info__status="RUNNING", info__end_time=None)
    assert (half(running).type, half(running).study) == ("reported", "llm")
    begun = changed(running, data__metrics=[])
    assert half(begun).type == "started"
    assert job(begun, running, MLFLOW) == job(MLFLOW)


@pytest.mark.parametrize(("word", "status"), [("FAILED", "failed"), ("KILLED", "cancelled")])
def test_how_a_run_of_mlflow_ended(word: str, status: str) -> None:
    assert half(changed(MLFLOW, info__status=word)).fields["status"] == status


def test_tags_join_a_run_with_what_the_scheduler_tells() -> None:
    tags = [
        {"key": "tunerd.job_id", "value": "4711"},
        {"key": "tunerd.cluster", "value": "cluster-a"},
        {"key": "tunerd.attempt", "value": "2"},
        {"key": "tunerd.context.gpu", "value": "A100"},
        {"key": "tunerd.recommendation_id", "value": "r-1"},
    ]
    seen = half(changed(MLFLOW, data__tags=tags))
    assert seen.key == AttemptKey("cluster-a", "4711", 2)
    assert seen.fields["context"] == {"gpu": "A100"}
    assert seen.fields["recommendation_id"] == "r-1"


def test_what_mlflow_sends_that_is_no_job_says_why() -> None:
    assert reason({"runs": [MLFLOW, MLFLOW]}).startswith("runs: holds 2 records; send each")
    assert reason(changed(MLFLOW, info__status="WEIRD")).startswith("info.status: expected one of")
    assert reason(changed(MLFLOW, info__lifecycle_stage="deleted")) == (
        "info.lifecycle_stage: somebody deleted this run"
    )
    assert reason(changed(MLFLOW, info__end_time=None)).startswith("finished_at: is missing")


def test_a_text_that_no_event_may_hold_is_left_out() -> None:
    params = [{"key": "prompt", "value": "x" * 6_000}, {"key": "tp", "value": "4"}, None, 3]
    assert half(changed(MLFLOW, data__params=params)).fields["config"] == {"tp": 4}


# -- W&B ----------------------------------------------------------------------------------------


def test_a_run_of_wandb_is_a_whole_job_by_itself() -> None:
    seen = job(WANDB)
    assert half(WANDB).key == AttemptKey("wandb", "1a2b3c4d", 1)
    assert (seen.study, seen.status.value, seen.user) == ("llm", "succeeded", "ada")
    assert seen.context == {"gpu": "H100"}
    assert seen.config == {
        "tp": 8,
        "precision": "bf16",
        "optimizer.name": "adamw",
        "optimizer.betas": [0.9, 0.95],
    }
    assert seen.metrics == {"tokens_per_second": 412.7, "eval_loss": 2.5}
    assert seen.measured_s == 9000.5


def test_the_graphql_api_has_texts() -> None:
    seen = job(WANDB_GRAPHQL)
    assert (seen.config, seen.context, seen.study) == ({"tp": 8}, {}, "llm")
    assert (seen.status.value, seen.metrics) == ("failed", {"tokens_per_second": 400.5})
    assert half(WANDB_GRAPHQL).key.job_id == half(WANDB).key.job_id
    assert half(WANDB_GRAPHQL).fields["labels"]["run_name"] == "swift-river-12"
    hostile = changed(WANDB_GRAPHQL, config='{"tunerd": {"study": "a\\u0000b"}, "\\u0000": 1}')
    assert half(hostile).study is None


@pytest.mark.parametrize(
    ("state", "kind", "status"),
    [
        ("killed", "completed", "cancelled"),
        ("preempted", "completed", "preempted"),
        ("running", "reported", None),
    ],
)
def test_states_of_wandb(state: str, kind: str, status: str | None) -> None:
    seen = half(changed(WANDB, state=state))
    assert (seen.type, seen.fields.get("status")) == (kind, status)


def test_a_run_without_its_last_report_ended_when_it_was_heard_of() -> None:
    seen = half(changed(WANDB, summary={"tokens_per_second": 1.0}))
    assert seen.fields["finished_at"] == "2026-11-20T10:31:00Z"
    assert reason(changed(WANDB, state="odd")).startswith("state: expected one of finished")


@pytest.mark.parametrize("nothing", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_missing_wherever_it_stands(nothing: float) -> None:
    config = {**WANDB["config"], "lr": nothing, "nested": {"decay": nothing}, "betas": [nothing, 1]}
    summary = {**WANDB["summary"], "loss": nothing, "_step": nothing, "deep": {"x": nothing}}
    seen, known = job(changed(WANDB, config=config, summary=summary, group=nothing)), job(WANDB)
    assert (seen.config, seen.metrics) == (known.config, known.metrics)
    assert (seen.context, seen.finished_at) == (known.context, known.finished_at)
    texts = changed(
        WANDB_GRAPHQL,
        config=json.dumps({"tp": 8, "lr": nothing, "tunerd": {"study": "llm"}}),
        summaryMetrics=json.dumps(
            {"tokens_per_second": 400.5, "_timestamp": 1795170000.5, "loss": nothing}
        ),
    )
    seen = job(texts)
    assert (seen.config, seen.study) == ({"tp": 8}, "llm")
    assert seen.metrics == {"tokens_per_second": 400.5}


# -- Ray ----------------------------------------------------------------------------------------


def test_a_job_of_ray_is_the_half_that_ray_knows_however_it_is_told() -> None:
    seen = half(RAY_JOB)
    assert seen.key == AttemptKey("ray", "raysubmit_WvK1dvJnX9dEjjQZ", 1)
    assert (seen.type, seen.study, seen.fields["status"]) == ("completed", "llm", "succeeded")
    assert seen.fields["context"] == {"gpu": "H100", "n_gpus": 16}
    assert seen.fields["config"] == {"tp": 8}
    assert seen.fields["finished_at"] == "2026-11-20T10:30:00Z"
    assert half(RAY_EXPORT) == seen


def test_with_the_result_it_is_a_job() -> None:
    seen = job(RAY_JOB, changed(RAY_RESULT, done=False))
    assert (seen.job_id, seen.metrics["tokens_per_second"]) == ("raysubmit_WvK1dvJnX9dEjjQZ", 412.7)


@pytest.mark.parametrize(
    ("paths", "kind", "status"),
    [
        ({"status": "PENDING"}, "started", None),
        ({"status": "RUNNING", "end_time": None}, "started", None),
        ({"status": "STOPPED"}, "completed", "cancelled"),
        ({"status": "FAILED", "message": "exit code 1"}, "completed", "failed"),
        (
            {"status": "FAILED", "message": "torch.OutOfMemoryError: CUDA out of memory."},
            "completed",
            "out_of_memory",
        ),
    ],
)
def test_states_of_ray(paths: Record, kind: str, status: str | None) -> None:
    seen = half(changed(RAY_JOB, **paths))
    assert (seen.type, seen.fields.get("status")) == (kind, status)
    assert ("started_at" in seen.fields) == (paths["status"] != "PENDING")


def test_the_time_that_a_job_ran_may_be_its_metric() -> None:
    metadata = {**RAY_JOB["metadata"], "tunerd.duration_metric": "wall_s"}
    assert job(changed(RAY_JOB, metadata=metadata)).metrics == {"wall_s": 9000.0}
    failed = half(changed(RAY_JOB, metadata=metadata, status="FAILED", message="x"))
    assert "metrics" not in failed.fields


def test_a_result_of_ray_train() -> None:
    seen = job(changed(RAY_RESULT, config__train_loop_config__tunerd__job_id=None))
    assert (seen.job_id, seen.status.value, seen.study) == ("4c8a5_00000", "succeeded", "llm")
    assert (seen.context, seen.config) == ({"gpu": "H100"}, {"tp": 8})
    assert seen.metrics == {"tokens_per_second": 412.7, "loss": 2.5}
    report = half(changed(RAY_RESULT, done=False))
    assert (report.type, report.steps, report.fields["measured_s"]) == ("reported", 10, 601.5)


@pytest.mark.parametrize("nothing", [float("nan"), float("inf"), -float("inf")])
def test_a_result_of_a_training_that_diverged_is_read(nothing: float) -> None:
    config = {**RAY_RESULT["config"], "grad_clip": nothing}
    seen = job(changed(RAY_RESULT, config=config, loss=nothing, time_total_s=nothing))
    known = job(RAY_RESULT)
    assert (seen.context, seen.config) == (known.context, known.config)
    assert seen.metrics == {"tokens_per_second": 412.7}
    metadata = {
        "tunerd.study": "llm",
        "tunerd.context": "{}",
        "tunerd.config": json.dumps({"tp": 8, "lr": nothing}),
    }
    assert half(changed(RAY_JOB, metadata=metadata)).fields["config"] == {"tp": 8}


def test_what_ray_sends_that_is_no_job_says_why() -> None:
    assert reason(changed(RAY_JOB, status="LOST")).startswith("status: expected one of PENDING")
    bad = changed(RAY_EXPORT, event_data__submission_job_id=None)
    assert reason(bad).startswith("event_data.submission_job_id: expected a text, got null")
    assert reason(changed(RAY_RESULT, trial_id={}, config={})).startswith(
        "trial_id: expected a text"
    )
