"""Tables sketched by their columns alone: ``name:role:kind`` with values drawn at random.

Roles: c context, t tunable, o objective, x auxiliary, s status, d timestamp. Kinds: what follows =
are the values; ``pow`` powers of two, ``grid`` and ``big`` a few numbers, ``f`` fractions, ``b``
switches, ``bit`` 0 and 1, ``one`` a constant, ``u`` an id, ``t`` a time, ``m`` and ``M`` measured
(float and int), ``r`` a float drawn at random.
"""

import random
from datetime import datetime, timedelta
from typing import Any

from tests.lab.tables.synthetic import Made

__all__ = ["SKETCHES", "sketched"]

ROLES = {
    "c": "context",
    "t": "tunable",
    "o": "objective",
    "x": "auxiliary",
    "s": "status",
    "d": "timestamp",
}

SKETCHES = {
    "scout": "workload:c:cat framework:c:=spark|hadoop machine_type:t:=m4.large|c4.xlarge"
    " machine_count:t:grid input_size:c:=bigdata|huge timestamp:d:t elapsed_time:o:m"
    " completed:s:b cost_usd:o:m",
    "hibench": "Type:c:cat Date:d:t Input_data_size:c:big Duration(s):o:m"
    " Throughput(bytes/s):o:m Throughput/node:o:m",
    "plans": "job_name:x:u inst_num:t:pow plan_cpu:t:grid plan_mem:t:grid plan_gpu:t:grid"
    " gpu_type:c:=V100|T4|P100 group:x:cat start_time:d:t end_time:d:t"
    " status:s:=Terminated|Failed duration_min:o:m",
    "autotuned": "exp_name:x:u zero_stage:t:bit micro_batch_size:t:pow gas:t:pow throughput:o:m"
    " flops:o:m latency:o:m forward_latency:x:m",
    "shared": "model:c:cat batch_size:t:pow worker_type:c:=v100|p100|k80 scale_factor:c:pow"
    " consolidated:t:b steps_per_s:o:m",
    "blocks": "device:c:cat dtype:c:=fp16|bf16 M:c:big N:c:big K:c:big BLOCK_M:t:pow"
    " BLOCK_N:t:pow BLOCK_K:t:pow GROUP_M:t:pow num_warps:t:pow num_stages:t:grid ms:o:m"
    " tflops:o:m",
    "cache": "clients:c:grid data_size:c:big keyspace:c:big pipeline:t:pow io_threads:t:pow"
    " maxmemory_policy:t:cat appendfsync:t:=always|everysec|no rps:o:m p50_latency_ms:x:m"
    " p99_latency_ms:x:m",
    "tracked": "trial_id:x:u date:d:t config/lr:t:r config/batch_size:t:pow"
    " config/num_layers:t:grid time_total_s:x:m training_iteration:x:one samples_per_sec:o:m"
    " hostname:x:cat node_ip:x:cat done:x:b",
    "flow": "case:c:cat n_cells:c:big partitioner:t:=metis|scotch n_procs:c:pow nodes:c:pow"
    " linear_solver:t:=gmres|bicgstab preconditioner:t:=ilu|amg cfl:t:f relaxation_factor:t:f"
    " wall_time_s:o:m iterations:x:M residual:x:m",
    "etl": "pipeline:c:cat rows_in:c:big parallelism:t:pow batch_rows:t:grid"
    " compression:t:=none|gzip|zstd checkpoint_interval_s:t:grid"
    " state_backend:t:=rocksdb|heap records_per_s:o:m lag_s:x:m cpu_cores_used:x:m job_uuid:x:u",
    "diffusion": "model:c:=sdxl|sd15|flux resolution:c:pow batch:t:pow scheduler:t:cat"
    " steps:t:grid dtype:t:=fp16|bf16 compile:t:b attention:t:=sdpa|xformers vae_tiling:t:b"
    " images_per_min:o:m latency_s:o:m vram_gb:x:m",
    "experts": "arch:c:cat n_experts:c:pow top_k:c:bit hidden_dim:c:pow world_size:c:pow"
    " ep:t:pow tp:t:pow capacity_factor:t:f a2a_impl:t:=nccl|deepep overlap_comm:t:b step_ms:o:m"
    " tokens_per_sec_per_gpu:o:m drop_rate:x:m aux_loss:x:m",
    "jvm": "benchmark:c:cat jdk:c:cat gc:t:=G1|Parallel|ZGC heap_gb:t:grid"
    " MaxGCPauseMillis:t:grid ParallelGCThreads:t:pow TieredCompilation:t:b score_ops_ms:o:m"
    " gc_pause_p99_ms:x:m fork:x:grid",
    "web": "endpoint:c:cat rps_target:c:grid worker_processes:t:pow worker_connections:t:pow"
    " keepalive_timeout:t:grid sendfile:t:=on|off gzip_comp_level:t:grid instance:c:cat"
    " p99_ms:o:m throughput_rps:o:m error_pct:x:m",
}

_VALUES: dict[str, list[Any]] = {
    "pow": [1, 2, 4, 8, 16],
    "grid": [3, 5, 10, 20, 50],
    "f": [0.1, 0.25, 0.5, 0.8],
    "b": [True, False],
    "bit": [0, 1],
    "big": [10**6 * many for many in (1, 4, 16, 64)],
    "one": [8],
}


def sketched(name: str, rows: int = 300) -> Made:
    """A table of a sketch; what is measured follows what went in."""
    rng = random.Random(name)
    columns = [column.split(":") for column in SKETCHES[name].split()]
    values = {
        column: kind[1:].split("|")
        if kind.startswith("=")
        else _VALUES.get(kind, [f"{column[:3]}{letter}" for letter in "abcd"])
        for column, _, kind in columns
    }
    records = []
    for number in range(rows):
        record: dict[str, Any] = {}
        speed = 1.0
        for column, role, _ in columns:
            record[column] = rng.choice(values[column])
            speed *= 1 + 0.3 * values[column].index(record[column]) if role in "ct" else 1.0
        for column, _, kind in columns:
            match kind:
                case "m":
                    record[column] = speed * rng.lognormvariate(0, 0.1)
                case "M":
                    record[column] = int(1e5 * speed * rng.lognormvariate(0, 0.1))
                case "r":
                    record[column] = 10 ** rng.uniform(-5, -2)
                case "u":
                    record[column] = f"run-{number:05}"
                case "t":
                    record[column] = (datetime(2025, 1, 1) + timedelta(minutes=number)).isoformat()  # noqa: DTZ001
        records.append(record)
    roles = {column: ROLES[role] for column, role, _ in columns}
    objective = next(column for column, role, _ in columns if role == "o")
    return Made(records, roles, objective, "any")
