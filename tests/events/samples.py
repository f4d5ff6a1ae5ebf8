"""Records as other tools write them, with made-up values: one or more of each event format.

Where their formats are defined:

- Slurm 21.08 to 24.11, ``sacct --json``: ``PARSER_ARRAY(JOB)`` in
  ``src/plugins/data_parser/v0.0.39/parsers.c`` and v0.0.40 to v0.0.42, before 23.02
  ``parse_job`` in ``src/plugins/openapi/dbv0.0.38/parse.c``. ``sacct -P``: ``fields`` in
  ``src/sacct/sacct.c``.
- Kubernetes 1.27 to 1.34: ``JobStatus`` in ``staging/src/k8s.io/api/batch/v1/types.go``.
- Kueue 0.9 to 0.14: ``WorkloadStatus`` in ``apis/kueue/v1beta1/workload_types.go``.
- Ray 2.60: ``JobDetails`` in ``python/ray/dashboard/modules/job/pydantic_models.py``;
  ``ExportSubmissionJobEventData`` in
  ``src/ray/protobuf/export_api/export_submission_job_event.proto``;
  ``JsonLoggerCallback`` in ``python/ray/tune/logger/json.py``.
- MLflow 2 and 3: ``Run`` in ``mlflow/protos/service.proto``.
- wandb 0.22: ``Run`` in ``wandb/apis/public/runs.py``; ``RUN_FRAGMENT`` there has those of
  GraphQL.
- CloudEvents 1.0.2: ``cloudevents/formats/json-format.md`` in cloudevents/spec.
"""

import copy
from typing import Any

from tests.broken_events import good_event
from tests.events.test_slurm import ENDED

__all__ = [
    "JOB",
    "MLFLOW",
    "RAY_EXPORT",
    "RAY_JOB",
    "RAY_RESULT",
    "SACCT",
    "SACCT_21",
    "SACCT_ROW",
    "SAMPLES",
    "WANDB",
    "WANDB_GRAPHQL",
    "WORKLOAD",
    "changed",
    "condition",
]

Record = dict[str, Any]


def changed(record: Record, /, **paths: Any) -> Record:
    """A copy with other values; ``__`` stands for a dot, None takes away."""
    made = copy.deepcopy(record)
    for path, value in paths.items():
        *parents, name = path.split("__")
        inner = made
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is None:
            inner.pop(name, None)
        else:
            inner[name] = value
    return made


def _none(number: int = 0) -> Record:
    return {"set": False, "infinite": False, "number": number}


def _number(number: int) -> Record:
    return {"set": True, "infinite": False, "number": number}


SACCT: Record = {  # 23.11 and later
    "account": "llm",
    "comment": {"administrator": "", "job": "", "system": ""},
    "allocation_nodes": 3,
    "array": {
        "job_id": 0,
        "limits": {"max": {"running": {"tasks": 0}}},
        "task_id": _none(),
        "task": "",
    },
    "association": {
        "account": "llm",
        "cluster": "cluster-a",
        "partition": "",
        "user": "ada",
        "id": 7,
    },
    "block": "",
    "cluster": "cluster-a",
    "constraints": "",
    "container": "",
    "derived_exit_code": {
        "status": ["SUCCESS"],
        "return_code": _number(0),
        "signal": {"id": _none(), "name": ""},
    },
    "time": {
        "elapsed": 9000,
        "eligible": 1795161300,
        "end": 1795170600,
        "planned": _number(300),
        "start": 1795161600,
        "submission": 1795161300,
        "suspended": 0,
        "system": {"seconds": 12, "microseconds": 5},
        "limit": _number(1440),
        "total": {"seconds": 9100, "microseconds": 5},
        "user": {"seconds": 9088, "microseconds": 0},
    },
    "exit_code": {
        "status": ["SUCCESS"],
        "return_code": _number(0),
        "signal": {"id": _none(), "name": ""},
    },
    "extra": "",
    "failed_node": "",
    "flags": ["STARTED_ON_BACKFILL", "START_RECEIVED"],
    "group": "ml",
    "het": {"job_id": 0, "job_offset": _none()},
    "job_id": 4711,
    "name": "pretrain",
    "licenses": "",
    "nodes": "gpu[01-02,07]",
    "partition": "gpu",
    "hold": False,
    "priority": _number(4294901758),
    "qos": "normal",
    "qosreq": "",
    "required": {"CPUs": 192, "memory_per_cpu": _none(), "memory_per_node": _number(1048576)},
    "kill_request_user": "",
    "restart_cnt": 0,
    "reservation": {"id": 0, "name": ""},
    "script": "",
    "state": {"current": ["COMPLETED"], "reason": "None"},
    "steps": [{"state": ["COMPLETED"], "step": {"id": "4711.batch", "name": "batch"}}],
    "submit_line": "sbatch --export=TOKEN=secret train.sh",
    "tres": {
        "allocated": [
            {"type": "cpu", "name": "", "id": 1, "count": 192},
            {"type": "mem", "name": "", "id": 2, "count": 3145728},
            {"type": "node", "name": "", "id": 4, "count": 3},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 24},
            {"type": "gres", "name": "gpu:h100", "id": 1002, "count": 24},
        ],
        "requested": [],
    },
    "used_gres": "",
    "user": "ada",
    "wckey": {"wckey": "", "flags": []},
    "working_directory": "/home/ada/run",
}

SACCT_21: Record = {  # 21.08 and 22.05: plain numbers and nulls
    **SACCT,
    "array": {
        "job_id": 4700,
        "limits": {"max": {"running": {"tasks": 0}}},
        "task": None,
        "task_id": 11,
    },
    "comment": {"administrator": None, "job": None, "system": None},
    "exit_code": {"status": "SUCCESS", "return_code": 0},
    "het": {"job_id": 0, "job_offset": None},
    "restart_cnt": None,
    "state": {"current": "COMPLETED", "reason": "None"},
    "steps": [],
    "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "id": 1002, "count": 8}]},
}

SACCT_ROW: Record = {
    "JobID": "4711",
    "JobIDRaw": "4711",
    "Cluster": "cluster-a",
    "JobName": "pretrain",
    "User": "ada",
    "Account": "llm",
    "Partition": "gpu",
    "QOS": "normal",
    "Submit": "2026-11-20T07:55:00",
    "Start": "2026-11-20T08:00:00",
    "End": "2026-11-20T10:30:00",
    "Elapsed": "02:30:00",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "AllocTRES": "billing=192,cpu=192,gres/gpu:h100=24,gres/gpu=24,mem=3T,node=3",
    "NodeList": "gpu[01-02,07]",
    "MaxRSS": "3532K",
}


def condition(kind: str, reason: str, at: str, status: str = "True", message: str = "") -> Record:
    """One of ``status.conditions``."""
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": at,
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }


JOB: Record = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "pretrain-7",
        "namespace": "ml",
        "uid": "0f6b3c1e-58f4-4d0f-8a86-3f2b8a5d1c11",
        "resourceVersion": "123456",
        "generation": 1,
        "creationTimestamp": "2026-11-20T07:55:00Z",
        "labels": {"tunerd.dev/study": "llm", "team": "pretraining"},
        "annotations": {
            "tunerd.dev/context.gpu": "H100",
            "tunerd.dev/context.n_gpus": "16",
            "tunerd.dev/config": '{"tp": 8, "precision": "bf16"}',
            "tunerd.dev/recommendation-id": "r-51f2f8a3d2c95c4c0a7e",
            "tunerd.dev/candidate-id": "c-0e6f7d1a53b6c1f2d9aa",
        },
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    },
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "suspend": False,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "train",
                        "image": "example.org/train:1.0",
                        "args": ["--tp=8"],
                        "resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Ti"}},
                    }
                ],
            }
        },
    },
    "status": {
        "conditions": [
            condition("SuccessCriteriaMet", "CompletionsReached", "2026-11-20T10:29:59Z"),
            condition("Complete", "CompletionsReached", "2026-11-20T10:30:00Z"),
        ],
        "startTime": "2026-11-20T08:00:00Z",
        "completionTime": "2026-11-20T10:30:00Z",
        "succeeded": 2,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    },
}

WORKLOAD: Record = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {
        "name": "job-pretrain-7-3e1f2",
        "namespace": "ml",
        "uid": "5b0e3f0a-7c4d-4b4c-9d3e-2a1b0c9d8e7f",
        "creationTimestamp": "2026-11-20T07:55:01Z",
        "labels": {"kueue.x-k8s.io/job-uid": JOB["metadata"]["uid"]},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "pretrain-7",
                "uid": JOB["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "spec": {
        "active": True,
        "queueName": "gpu",
        "priority": 0,
        "podSets": [{"name": "main", "count": 2, "template": JOB["spec"]["template"]}],
    },
    "status": {
        "admission": {
            "clusterQueue": "all",
            "podSetAssignments": [{"name": "main", "flavors": {"nvidia.com/gpu": "h100"}}],
        },
        "conditions": [
            condition("QuotaReserved", "Pending", "2026-11-20T09:00:00Z", "False"),
            condition("Admitted", "NoReservation", "2026-11-20T09:00:00Z", "False"),
            condition("Evicted", "Preempted", "2026-11-20T09:00:00Z"),
            condition("Preempted", "InClusterQueue", "2026-11-20T09:00:00Z"),
            condition("Requeued", "Preempted", "2026-11-20T09:00:00Z"),
        ],
        "requeueState": {"count": 1},
        "schedulingStats": {
            "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
        },
    },
}

RAY_JOB: Record = {
    "type": "SUBMISSION",
    "job_id": "02000000",
    "submission_id": "raysubmit_WvK1dvJnX9dEjjQZ",
    "driver_info": {"id": "02000000", "node_ip_address": "10.0.0.4", "pid": "4711"},
    "status": "SUCCEEDED",
    "entrypoint": "python train.py",
    "message": "Job finished successfully.",
    "error_type": None,
    "start_time": 1795161600000,
    "end_time": 1795170600000,
    "metadata": {
        "tunerd.study": "llm",
        "tunerd.context.gpu": "H100",
        "tunerd.context.n_gpus": "16",
        "tunerd.config": '{"tp": 8}',
        "owner": "ada",
    },
    "runtime_env": {"env_vars": {"TOKEN": "secret"}},
    "driver_agent_http_address": "http://10.0.0.4:52365",
    "driver_node_id": "8f0c6f8b2f",
    "driver_exit_code": 0,
}

RAY_EXPORT: Record = {
    "event_id": "A7D15b2a19F6C0E2d1",
    "timestamp": 1795170600,
    "source_type": "EXPORT_SUBMISSION_JOB",
    "event_data": {
        "submission_job_id": "raysubmit_WvK1dvJnX9dEjjQZ",
        "status": "SUCCEEDED",
        "entrypoint": "python train.py",
        "message": "Job finished successfully.",
        "start_time": "1795161600000",  # as protobuf writes 64 bits
        "end_time": "1795170600000",
        "metadata": RAY_JOB["metadata"],
        "runtime_env_json": '{"env_vars": {"TOKEN": "secret"}}',
        "driver_exit_code": 0,
    },
}

RAY_RESULT: Record = {
    "tokens_per_second": 412.7,
    "loss": 2.5,
    "timestamp": 1795170600,
    "checkpoint_dir_name": "checkpoint_000009",
    "should_checkpoint": True,
    "done": True,
    "training_iteration": 10,
    "trial_id": "4c8a5_00000",
    "date": "2026-11-20_10-30-00",
    "time_this_iter_s": 60.1,
    "time_total_s": 601.5,
    "pid": 4711,
    "hostname": "gpu01",
    "node_ip": "10.0.0.4",
    "config": {
        "train_loop_config": {
            "tp": 8,
            "gpu": "H100",
            "tunerd": {"study": "llm", "context": ["gpu"], "job_id": "raysubmit_WvK1dvJnX9dEjjQZ"},
        }
    },
    "time_since_restore": 601.5,
    "iterations_since_restore": 10,
}

MLFLOW: Record = {
    "info": {
        "run_uuid": "5f1c2d3e4b5a69788796a5b4c3d2e1f0",
        "experiment_id": "3",
        "run_name": "bold-crane-7",
        "user_id": "",
        "status": "FINISHED",
        "start_time": 1795161600000,
        "end_time": 1795170600000,
        "artifact_uri": "s3://secret/3/5f1c/artifacts",
        "lifecycle_stage": "active",
        "run_id": "5f1c2d3e4b5a69788796a5b4c3d2e1f0",
    },
    "data": {
        "metrics": [
            {"key": "train/tokens/s", "value": 412.7, "timestamp": 1795170000000, "step": 5000},
            {"key": "loss", "value": "NaN", "timestamp": 1795170000000, "step": 5000},
            {"key": "system/gpu_0_power_usage_watts", "value": 700, "timestamp": 1, "step": 90000},
        ],
        "params": [
            {"key": "gpu", "value": "H100"},
            {"key": "n_gpus", "value": "16"},
            {"key": "tp", "value": "8"},
            {"key": "fused", "value": "True"},
            {"key": "sharding", "value": '["FULL_SHARD", "NO_SHARD"]'},
            {"key": "precision", "value": "bf16"},
        ],
        "tags": [
            {"key": "mlflow.user", "value": "ada"},
            {"key": "mlflow.source.name", "value": "train.py"},
            {"key": "tunerd.study", "value": "llm"},
            {"key": "tunerd.context", "value": "gpu, n_gpus"},
        ],
    },
    "inputs": {},
}

WANDB: Record = {
    "id": "1a2b3c4d",
    "name": "swift-river-12",
    "state": "finished",
    "config": {
        "tp": 8,
        "precision": "bf16",
        "optimizer": {"name": "adamw", "betas": [0.9, 0.95]},
        "gpu": "H100",
        "tunerd": {"study": "llm", "context": ["gpu"]},
        "_wandb": {"cli_version": "0.22.0"},
    },
    "summary": {
        "tokens_per_second": 412.7,
        "eval/loss": 2.5,
        "_step": 5000,
        "_runtime": 9000.5,
        "_timestamp": 1795170600.0,
        "_wandb": {"runtime": 9000},
        "table": {"_type": "table-file"},
    },
    "created_at": "2026-11-20T08:00:00",
    "heartbeat_at": "2026-11-20T10:31:00",
    "user": {"username": "ada"},
    "project": "llm",
    "tags": ["pretraining"],
}

WANDB_GRAPHQL: Record = {
    "id": "UnVuOnYxOjFhMmIzYzRkOmxsbTphZGE=",
    "name": "1a2b3c4d",
    "displayName": "swift-river-12",
    "state": "crashed",
    "config": '{"tp": {"value": 8, "desc": null}, "tunerd": {"value": {"study": "llm"}}}',
    "summaryMetrics": '{"tokens_per_second": 400.5, "_timestamp": 1795170000.5}',
    "createdAt": "2026-11-20T08:00:00Z",
    "heartbeatAt": "2026-11-20T10:31:00Z",
    "project": {"name": "llm"},
    "user": {"username": "ada"},
}


SAMPLES: dict[str, list[Record]] = {
    "cloudevents-structured": [
        {"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data": good_event("ce")}
    ],
    "slurm-jobcomp": [ENDED, ENDED | {"state": "RUNNING", "@end": "Unknown"}],
    "sacct-json": [SACCT, SACCT_21, {"meta": {"slurm": {}}, "jobs": [SACCT], "errors": []}],
    "sacct-row": [SACCT_ROW],
    "kubernetes": [JOB, WORKLOAD, {"type": "MODIFIED", "object": JOB}],
    "ray-job": [RAY_JOB, RAY_EXPORT],
    "ray-result": [RAY_RESULT],
    "mlflow": [MLFLOW, {"runs": [MLFLOW]}, {"run": MLFLOW}],
    "wandb": [WANDB, WANDB_GRAPHQL],
}
"""By the format's name."""
