"""Tables of old jobs from fields of all kinds, made up, with the role of each column.

None of them is one of the measured tables. Roles are those of the measured tables' descriptions:
context, tunable, objective, status, timestamp, auxiliary.
"""

import csv
import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = ["MAKERS", "Made", "make"]

Record = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """A table, what its columns are, and what its objective should be taken for."""

    records: list[Record]
    roles: Mapping[str, str]
    objective: str
    goal: str


MAKERS: dict[str, Callable[[random.Random], Made]] = {}
START = datetime(2026, 3, 1, tzinfo=UTC)


def _maker(function: Callable[[random.Random], Made]) -> Callable[[random.Random], Made]:
    MAKERS[function.__name__] = function
    return function


def make(name: str, seed: int = 0) -> Made:
    return MAKERS[name](random.Random(seed))


def write(made: Made, path: Path) -> Path:
    """As CSV, or as JSON lines by the suffix."""
    with path.open("w", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(record) + "\n" for record in made.records)
        else:
            writer = csv.DictWriter(file, list(made.roles))
            writer.writeheader()
            writer.writerows(made.records)
    return path


def _roles(**columns: str) -> dict[str, str]:
    return {
        name: role for role, names in columns.items() for name in names.split() if role and name
    }


def _ordered(record: Record, roles: Mapping[str, str]) -> dict[str, str]:
    return {name: roles[name] for name in record}


def _noise(rng: random.Random, share: float = 0.05) -> float:
    return math.exp(rng.gauss(0, share))


@_maker
def spark(rng: random.Random) -> Made:
    """Spark SQL on a rented cluster."""
    roles = _roles(
        context="query scale_factor_gb",
        tunable="instance_type executor_instances executor_cores executor_memory_gb"
        " spark.sql.shuffle.partitions spark.serializer spark.shuffle.compress memory_fraction",
        objective="duration_s",
        status="final_status",
        timestamp="submit_time end_time",
        auxiliary="app_id user gc_time_s shuffle_read_gb",
    )
    records = []
    for number in range(400):
        size = rng.choice([30, 100, 300])
        instances, cores = rng.choice([2, 4, 8, 16]), rng.choice([1, 2, 4])
        partitions = rng.choice([50, 100, 200, 400, 800])
        failed = rng.random() < 0.05
        start = START + timedelta(minutes=11 * number)
        duration = 20 + size * 9 / (instances * cores) ** 0.8 * (
            1 + abs(math.log(partitions / 200))
        )
        duration *= _noise(rng)
        records.append({
            "app_id": f"application_17{number:06}",
            "user": rng.choice(["ana", "bo", "chi"]),
            "submit_time": start.isoformat(),
            "end_time": (start + timedelta(seconds=duration)).isoformat(),
            "query": rng.choice(["q3", "q9", "q21"]),
            "scale_factor_gb": size,
            "instance_type": rng.choice(["m5.xlarge", "r5.xlarge", "c5.2xlarge"]),
            "executor_instances": instances,
            "executor_cores": cores,
            "executor_memory_gb": rng.choice([4, 8, 16]),
            "spark.sql.shuffle.partitions": partitions,
            "spark.serializer": rng.choice(["java", "kryo"]),
            "spark.shuffle.compress": rng.random() < 0.5,
            "memory_fraction": rng.choice([0.4, 0.5, 0.6, 0.7, 0.8]),
            "final_status": "FAILED" if failed else "SUCCEEDED",
            "duration_s": "" if failed else round(duration, 2),
            "gc_time_s": "" if failed else round(duration * 0.07 * _noise(rng, 0.4), 3),
            "shuffle_read_gb": "" if failed else round(size * 0.31 * _noise(rng), 3),
        })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "duration_s", "minimize")


@_maker
def postgres(rng: random.Random) -> Made:
    """A database under a benchmark."""
    roles = _roles(
        context="benchmark warehouses clients ram_gb pg_version",
        tunable="shared_buffers_mb work_mem_mb effective_io_concurrency random_page_cost"
        " max_wal_size_gb wal_compression jit checkpoint_timeout_s",
        objective="tps",
        timestamp="run_at",
        auxiliary="run_id p95_latency_ms cache_hit_ratio",
    )
    records = []
    for number in range(300):
        buffers, clients = rng.choice([128, 512, 2048, 8192, 16384]), rng.choice([16, 64, 256])
        tps = 900 * math.log2(buffers) * clients**0.3 * _noise(rng)
        records.append({
            "run_id": number + 1,
            "run_at": (START + timedelta(hours=number)).strftime("%Y-%m-%d %H:%M:%S"),
            "benchmark": rng.choice(["tpcc", "ycsb-a"]),
            "warehouses": rng.choice([100, 1000]),
            "clients": clients,
            "ram_gb": rng.choice([32, 64]),
            "pg_version": rng.choice(["15.4", "16.1.0"]),
            "shared_buffers_mb": buffers,
            "work_mem_mb": rng.choice([4, 16, 64, 256]),
            "effective_io_concurrency": rng.choice([1, 16, 128, 256]),
            "random_page_cost": rng.choice([1.0, 1.1, 2.0, 4.0]),
            "max_wal_size_gb": rng.choice([1, 4, 16]),
            "wal_compression": rng.choice(["off", "lz4", "zstd"]),
            "jit": rng.choice(["on", "off"]),
            "checkpoint_timeout_s": rng.choice([300, 900, 1800]),
            "tps": round(tps, 1),
            "p95_latency_ms": round(clients / tps * 1500 * _noise(rng), 3),
            "cache_hit_ratio": round(1 - 0.3 / math.log2(buffers) * _noise(rng), 5),
        })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "tps", "maximize")


@_maker
def serving(rng: random.Random) -> Made:
    """Serving language models: records in JSON lines, out of memory among the speeds."""
    roles = _roles(
        context="model gpu request_rate input_len output_len",
        tunable="tensor_parallel_size max_num_seqs max_num_batched_tokens gpu_memory_utilization"
        " enable_prefix_caching kv_cache_dtype enforce_eager",
        objective="output_tokens_per_s",
        status="status",
        auxiliary="p99_ttft_ms mean_tpot_ms peak_memory_gib",
    )
    records = []
    for _ in range(350):
        model = rng.choice(["llama-3-8b", "llama-3-70b", "mixtral-8x7b"])
        parallel, seqs = rng.choice([1, 2, 4, 8]), rng.choice([32, 64, 128, 256, 512])
        oom = model == "llama-3-70b" and parallel < 4
        speed = 300 * parallel**0.8 * math.log2(seqs) * _noise(rng)
        records.append({
            "model": model,
            "gpu": rng.choice(["A100-80GB", "H100"]),
            "request_rate": rng.choice([1, 4, 16, 64]),
            "input_len": rng.choice([128, 1024, 4096]),
            "output_len": rng.choice([128, 512]),
            "tensor_parallel_size": parallel,
            "max_num_seqs": seqs,
            "max_num_batched_tokens": rng.choice([2048, 4096, 8192, 16384]),
            "gpu_memory_utilization": rng.choice([0.8, 0.85, 0.9, 0.95]),
            "enable_prefix_caching": rng.random() < 0.5,
            "kv_cache_dtype": rng.choice(["auto", "fp8"]),
            "enforce_eager": rng.random() < 0.3,
            "status": "oom" if oom else "ok",
            "output_tokens_per_s": None if oom else speed,
            "p99_ttft_ms": None if oom else 90 * _noise(rng, 0.4),
            "mean_tpot_ms": None if oom else 1e4 / speed * _noise(rng),
            "peak_memory_gib": None if oom else 40 + 39 * rng.random(),
        })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "output_tokens_per_s", "maximize")


@_maker
def kernels(rng: random.Random) -> Made:
    """A kernel tuner's log: short names, powers of two."""
    roles = _roles(
        context="device kernel M N K",
        tunable="block_size_x block_size_y tile_size_x tile_size_y MWG VWM use_padding unroll",
        objective="time_ms GFLOPS",
        status="valid",
        auxiliary="registers_per_thread compile_time_s",
    )
    records = []
    for _ in range(600):
        m, n, k = rng.choice([(1024,) * 3, (4096,) * 3, (512, 8192, 512)])
        x, y = rng.choice([16, 32, 64, 128, 256]), rng.choice([1, 2, 4, 8, 16])
        valid = x * y <= 1024
        time = m * n * k / 1e9 * (1 + abs(math.log2(x * y / 256)) / 3) * _noise(rng, 0.03)
        records.append({
            "device": rng.choice(["RTX 3090", "MI100"]),
            "kernel": rng.choice(["gemm", "gemm_batched"]),
            "M": m,
            "N": n,
            "K": k,
            "block_size_x": x,
            "block_size_y": y,
            "tile_size_x": rng.choice([1, 2, 4, 8]),
            "tile_size_y": rng.choice([1, 2, 4, 8]),
            "MWG": rng.choice([16, 32, 64, 128]),
            "VWM": rng.choice([1, 2, 4, 8]),
            "use_padding": rng.choice([0, 1]),
            "unroll": rng.choice([0, 1, 4]),
            "valid": valid,
            "time_ms": time if valid else "",
            "GFLOPS": 2e-6 * m * n * k / time if valid else "",
            "registers_per_thread": rng.randrange(24, 255) if valid else "",
            "compile_time_s": 1.4 * _noise(rng, 0.2),
        })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "GFLOPS", "maximize")


@_maker
def slurm(rng: random.Random) -> Made:
    """An MPI code under Slurm, as an accounting dump joined with its log."""
    roles = _roles(
        context="Partition Mesh NNodes",
        tunable="TasksPerNode OMPThreads Preconditioner BlockingFactor AsyncIO MpiAlgorithm",
        objective="StepTime",
        status="State",
        timestamp="Start End",
        auxiliary="JobID User Account MaxRSS NodeList ExitCode",
    )
    records = []
    for number in range(500):
        nodes, tasks = rng.choice([1, 2, 4, 8, 16]), rng.choice([8, 16, 32, 64])
        state = rng.choices(["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL"], [90, 4, 4, 2])[0]
        start = START + timedelta(minutes=7 * number)
        done = state == "COMPLETED"
        cells = rng.choice([1_000_000, 8_000_000, 64_000_000])
        records.append({
            "JobID": str(4_100_000 + 3 * number),
            "User": rng.choice(["mara", "li", "okoro"]),
            "Account": rng.choice(["phys", "chem"]),
            "Partition": rng.choice(["cpu", "bigmem"]),
            "NNodes": nodes,
            "NodeList": f"n[{number % 40:03}-{number % 40 + nodes:03}]",
            "Start": start.strftime("%Y-%m-%dT%H:%M:%S"),
            "End": (start + timedelta(minutes=6)).strftime("%Y-%m-%dT%H:%M:%S"),
            "Mesh": f"{round(cells ** (1 / 3))}^3",
            "TasksPerNode": tasks,
            "OMPThreads": 128 // tasks,
            "Preconditioner": rng.choice(["jacobi", "ilu0", "amg"]),
            "BlockingFactor": rng.choice([4, 8, 16, 32, 64]),
            "AsyncIO": rng.choice(["yes", "no"]),
            "MpiAlgorithm": rng.choice(["ring", "tree", "rabenseifner"]),
            "State": state,
            "ExitCode": "0:0" if done else "1:0",
            "StepTime": f"{cells / nodes / 4e6 * _noise(rng, 0.1):.4f}" if done else "",
            "MaxRSS": rng.randrange(1_000_000, 90_000_000) if done else "",
        })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "StepTime", "minimize")


@_maker
def compilers(rng: random.Random) -> Made:
    """Flags of a compiler over a set of programs, every flag with every program."""
    roles = _roles(
        context="program input_size cpu",
        tunable="opt_level vectorize unroll_factor inline_threshold lto prefetch",
        objective="exec_time_s",
        auxiliary="seed compile_time_s code_size_bytes instructions",
    )
    records = []
    for program in ("bzip2", "gcc", "mcf", "namd"):
        for level in ("-O1", "-O2", "-O3", "-Ofast"):
            for unroll in (1, 2, 4, 8):
                for _ in range(6):
                    time = 10 * len(program) / (1 + len(level) / 10) * _noise(rng, 0.08)
                    records.append({
                        "program": program,
                        "input_size": rng.choice(["test", "train", "ref"]),
                        "cpu": "EPYC 9654",
                        "seed": rng.randrange(10**6),
                        "opt_level": level,
                        "vectorize": rng.choice([True, False]),
                        "unroll_factor": unroll,
                        "inline_threshold": rng.choice([25, 225, 500, 1000]),
                        "lto": rng.choice(["none", "thin", "full"]),
                        "prefetch": rng.choice([True, False]),
                        "exec_time_s": round(time, 4),
                        "compile_time_s": round(2 + unroll * _noise(rng, 0.2), 3),
                        "code_size_bytes": int(50_000 * _noise(rng, 0.3)),
                        "instructions": int(1e9 * _noise(rng, 0.5)),
                    })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "exec_time_s", "minimize")


@_maker
def storage(rng: random.Random) -> Made:
    """Parallel file systems; units in brackets, as spreadsheets have them."""
    roles = {
        "Date": "timestamp",
        "System": "context",
        "Nodes": "context",
        "File size (GiB)": "context",
        "Access pattern": "context",
        "Stripe count": "tunable",
        "Stripe size (MiB)": "tunable",
        "Transfer size (KiB)": "tunable",
        "Collective buffering": "tunable",
        "Aggregators": "tunable",
        "API": "tunable",
        "Write bandwidth (MiB/s)": "objective",
        "Read bandwidth (MiB/s)": "objective",
        "Open time (s)": "auxiliary",
        "Comment": "auxiliary",
    }
    records = []
    for number in range(240):
        nodes, stripes = rng.choice([1, 4, 16, 64]), rng.choice([1, 4, 8, 16, -1])
        speed = 400 * nodes**0.6 * (12 if stripes < 0 else stripes) ** 0.5
        values: list[Any] = [
            (START + timedelta(days=number // 10)).strftime("%d.%m.%Y"),
            rng.choice(["lustre-a", "lustre-b"]),
            nodes,
            rng.choice([10, 100, 1000]),
            rng.choice(["file per process", "shared file"]),
            stripes,
            rng.choice([1, 4, 16]),
            rng.choice([64, 256, 1024, 4096]),
            rng.choice(["enable", "disable", "automatic"]),
            rng.choice([1, 2, 4]),
            rng.choice(["POSIX", "MPIIO", "HDF5"]),
            f"{speed * _noise(rng, 0.2):.2f}",
            f"{speed * 1.3 * _noise(rng, 0.2):.2f}",
            f"{0.3 * _noise(rng, 0.5):.4f}",
            rng.choice(["", "", "", "maintenance the day before, numbers look odd"]),
        ]
        records.append(dict(zip(roles, values, strict=True)))
    return Made(records, roles, "Write bandwidth (MiB/s)", "maximize")


@_maker
def tracked(rng: random.Random) -> Made:
    """Training runs exported from an experiment tracker; learning rates drawn at random."""
    roles = {
        "run_id": "auxiliary",
        "start_time": "timestamp",
        "status": "status",
        "tags.user": "auxiliary",
        "params.model_name": "context",
        "params.dataset": "context",
        "params.batch_size": "tunable",
        "params.lr": "tunable",
        "params.dropout": "tunable",
        "params.optimizer": "tunable",
        "params.num_workers": "tunable",
        "params.amp": "tunable",
        "params.seed": "auxiliary",
        "metrics.images_per_sec": "objective",
        "metrics.val_loss": "auxiliary",
        "metrics.epoch_time": "auxiliary",
    }
    records = []
    for number in range(260):
        batch, workers = rng.choice([32, 64, 128, 256]), rng.choice([2, 4, 8, 16])
        failed = rng.random() < 0.06
        speed = 220 * math.log2(batch) * workers**0.2 * _noise(rng)
        values = [
            f"{rng.getrandbits(128):032x}",
            1_772_000_000_000 + 600_000 * number,
            "FAILED" if failed else "FINISHED",
            rng.choice(["ana", "bo"]),
            rng.choice(["resnet50", "vit_b16"]),
            rng.choice(["imagenet", "places365"]),
            batch,
            10 ** rng.uniform(-4, -1),
            round(rng.uniform(0, 0.5), 4),
            rng.choice(["sgd", "adamw"]),
            workers,
            rng.random() < 0.5,
            rng.randrange(10**6),
            None if failed else speed,
            None if failed else 0.8 * _noise(rng, 0.3),
            None if failed else 1.28e6 / speed,
        ]
        records.append(dict(zip(roles, values, strict=True)))
    return Made(records, roles, "metrics.images_per_sec", "maximize")


@_maker
def mystery(rng: random.Random) -> Made:
    """Names that say nothing: only the numbers can tell."""
    roles = _roles(tunable="a b c d", objective="y")
    records: list[Record] = [
        {
            "a": rng.choice([1, 2, 4, 8]),
            "b": rng.choice([10, 20, 30, 40, 50]),
            "c": rng.choice(["red", "blue"]),
            "d": rng.random() < 0.5,
        }
        for _ in range(200)
    ]
    records = [r | {"y": (r["a"] ** 0.5 + r["b"] / 9) * _noise(rng)} for r in records]
    return Made(records, _ordered(records[0], roles), "y", "maximize")


@_maker
def brokers(rng: random.Random) -> Made:
    """A message broker under load."""
    roles = _roles(
        context="message_size_bytes partitions_total producers",
        tunable="num_io_threads num_network_threads batch_size linger_ms compression_type acks"
        " buffer_memory_mb socket_buffer_kb",
        objective="records_per_sec",
        auxiliary="avg_latency_ms p999_latency_ms cpu_util_pct trial",
    )
    records = []
    for number in range(320):
        batch, linger = rng.choice([16384, 65536, 262144]), rng.choice([0, 1, 5, 20])
        rate = 8e4 * math.log2(batch) * (1 + linger / 40) * _noise(rng)
        records.append({
            "trial": number % 4,
            "message_size_bytes": rng.choice([100, 1000, 10000]),
            "partitions_total": rng.choice([12, 48]),
            "producers": rng.choice([1, 8, 32]),
            "num_io_threads": rng.choice([4, 8, 16]),
            "num_network_threads": rng.choice([3, 6, 12]),
            "batch_size": batch,
            "linger_ms": linger,
            "compression_type": rng.choice(["none", "lz4", "zstd"]),
            "acks": rng.choice(["0", "1", "all"]),
            "buffer_memory_mb": rng.choice([32, 64, 128]),
            "socket_buffer_kb": rng.choice([128, 512, 1024]),
            "records_per_sec": round(rate, 1),
            "avg_latency_ms": round(9e5 / rate * _noise(rng), 3),
            "p999_latency_ms": round(9e6 / rate * _noise(rng), 3),
            "cpu_util_pct": round(min(99.9, 35 * _noise(rng, 0.3)), 2),
        })  # fmt: skip
    return Made(records, _ordered(records[0], roles), "records_per_sec", "maximize")
