"""A described table that nobody measured: failures, dates, repeats and missing values."""

import csv
import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["NAME", "write_table"]

NAME = "made_up"
CLUSTERS = {"old": 1.0, "new": 0.4, "lab": 0.7}
GPUS = (8, 64)
TP, MICRO_BATCH = (1, 2, 4, 8), (1, 2, 4, 8, 16)
KERNEL = {"plain": 1.0, "fused": 0.85, "experimental": 1.1}


def write_table(folder: Path, jobs: int = 420, seed: int = 0) -> Path:
    """Write ``made_up.csv.gz`` and ``made_up.json``; returns the folder."""
    rng = np.random.default_rng(seed)
    rows = [_job(rng, number) for number in range(jobs)]
    with gzip.open(folder / f"{NAME}.csv.gz", "wt", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    columns = [
        {"name": "finished", "role": "timestamp", "type": "datetime"},
        {"name": "cluster", "role": "context", "type": "category"},
        {"name": "gpus", "role": "context", "type": "int"},
        {"name": "tp", "role": "tunable", "type": "int"},
        {"name": "micro batch", "role": "tunable", "type": "int"},
        {"name": "kernel", "role": "tunable", "type": "category"},
        {"name": "checkpointing", "role": "tunable", "type": "bool"},
        {"name": "state", "role": "status", "type": "category"},
        {"name": "seconds", "role": "objective", "type": "float", "unit": "s", "direction": "min"},
        {"name": "who", "role": "auxiliary", "type": "string"},
    ]
    about = {"name": NAME, "measured": False, "columns": columns}
    (folder / f"{NAME}.json").write_text(json.dumps(about))
    return folder


def _job(rng: np.random.Generator, number: int) -> dict[str, Any]:
    cluster, gpus = rng.choice(list(CLUSTERS)), int(rng.choice(GPUS))
    tp, micro_batch = int(rng.choice(TP)), int(rng.choice(MICRO_BATCH))
    kernel, checkpointing = rng.choice(list(KERNEL)), bool(rng.random() < 0.5)
    fits = micro_batch / tp * (0.5 if checkpointing else 1.0) <= 4
    crashed = not fits or rng.random() < 0.03
    seconds = (
        100 / gpus * CLUSTERS[cluster] * KERNEL[kernel] * (1.3 if checkpointing else 1.0)
        * (1 + abs(np.log2(tp) - np.log2(gpus) / 3) / 4) * (1 + 1 / micro_batch)
    )  # fmt: skip
    finished = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=number // 3)
    return {
        "finished": finished.strftime("%Y-%m-%dT%H:%M:%S"),
        "cluster": cluster,
        "gpus": gpus,
        "tp": tp,
        # Some jobs do not say.
        "micro batch": "" if rng.random() < 0.02 else micro_batch,
        "kernel": kernel,
        "checkpointing": checkpointing,
        "state": ("infeasible" if not fits else "FAILED") if crashed else "ok",
        "seconds": "" if crashed else f"{seconds * rng.lognormal(0, 0.02):.4f}",
        "who": rng.choice(["ann", "bob"]),
    }
