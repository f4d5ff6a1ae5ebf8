"""How fast numpy finds nearest neighbours, by how it is asked: real jobs for a first study.

A job has `points` points in `dims` dimensions, far from the origin as coordinates on a map are. It
finds the nearest other point of each. However that is computed, the answer is the same, up to
rounding; the speed is not. Small chunks waste time in Python. Large ones do not fit into the cache,
or break the memory limit. The fastest way may lose digits. Each job runs in a process of its own,
with 256 MiB to itself.

    python examples/measure.py new-jobs.csv            # 200 jobs, one to two minutes
"""

import argparse
import csv
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CONTEXTS = [{"points": points, "dims": dims} for points in (1000, 3000) for dims in (3, 24)]
SPACE: dict[str, list[Any]] = {
    "method": ["broadcast", "by_dimension", "dot"],
    "chunk": [8, 32, 128, 512, 2048],
    "dtype": ["float64", "float32"],
    "reuse": [False, True],
}
HABIT = {"method": "dot", "chunk": 2048, "dtype": "float64", "reuse": False}
"""What people launch who know the formula and have not looked further."""
HABITUAL = 0.3
LIMIT_MIB = 256
SHORTEST_S = 0.1
"""A job goes on for so long, in processor time: a busy machine does not make it slower."""
CHECKED = 50
"""Points whose neighbours are compared with the exact ones."""


def run_job(context: dict[str, Any], config: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """One job in a process of its own: how it ended, and what was measured."""
    command = [sys.executable, __file__, "--job", json.dumps(context | config)]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(  # noqa: S603 - our own interpreter and file
        command, capture_output=True, text=True, check=False, env=alone
    )
    if done.returncode:
        return ("out_of_memory" if "MemoryError" in done.stderr else "failed"), {}
    return "succeeded", json.loads(done.stdout)


def job(points: int, dims: int, method: str, chunk: int, dtype: str, reuse: bool) -> dict[str, Any]:
    """What runs in that process."""
    import numpy as np

    exact = np.random.default_rng(points + dims).normal(200.0, 1.0, (points, dims))
    data = exact.astype(dtype)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = in_use + LIMIT_MIB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    rounds, begin = 0, time.process_time()
    while (seconds := time.process_time() - begin) < SHORTEST_S:
        nearest = np.concatenate([*_nearest(data, method, chunk, reuse)])
        rounds += 1
    rows = np.arange(min(CHECKED, points))
    squares = ((exact[rows, None] - exact[None]) ** 2).sum(2)
    squares[rows, rows] = np.inf
    best, found = squares.min(1) ** 0.5, squares[rows, nearest[rows]] ** 0.5
    return {
        "mpairs_per_s": round(rounds * points**2 / seconds / 1e6, 3),
        "distance_error": round(float((found / best - 1.0).mean()), 6),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _nearest(data: Any, method: str, chunk: int, reuse: bool) -> Iterator[Any]:
    """The nearest other point of each, a chunk of points at a time."""
    import numpy as np

    points, dims = data.shape
    chunk = min(chunk, points)
    norms = (data**2).sum(1)
    shape = (chunk, points, dims) if method == "broadcast" else (chunk, points)
    kept = np.empty(shape, data.dtype) if reuse else None
    for first in range(0, points, chunk):
        some = data[first : first + chunk]
        out = None if kept is None else kept[: len(some)]
        if method == "broadcast":
            apart = np.subtract(some[:, None], data[None], out=out)
            squares = np.multiply(apart, apart, out=apart if reuse else None).sum(2)
        elif method == "dot":
            squares = np.matmul(some, data.T, out=out)
            squares *= -2.0
            squares += norms[None]
        else:
            squares = np.zeros((len(some), points), data.dtype) if out is None else out
            squares[...] = 0.0
            for one in range(dims):
                apart = some[:, one, None] - data[None, :, one]
                squares += apart * apart
        own = np.arange(len(some))
        squares[own, first + own] = np.inf
        yield squares.argmin(1)


def write_table(path: Path, jobs: int, seed: int) -> None:
    """Measure so many jobs as people would launch them: often the habit, else anything."""
    drawn = random.Random(seed)
    names = ["job_id", "finished_at", "user", "status", *CONTEXTS[0], *SPACE]
    names += ["mpairs_per_s", "distance_error", "peak_mib"]
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, names)
        table.writeheader()
        for number in range(jobs):
            context = CONTEXTS[number % len(CONTEXTS)]
            other = {name: drawn.choice(values) for name, values in SPACE.items()}
            config = HABIT if drawn.random() < HABITUAL else other
            status, metrics = run_job(context, config)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            who = {"job_id": f"nn-{number:03}", "finished_at": now, "user": f"user-{number % 5}"}
            table.writerow({**who, "status": status, **context, **config, **metrics})
            print(f"{number + 1} of {jobs}: {status} {metrics}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", type=Path, help="where to write the jobs")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(job(**given.job)))
    elif given.table:
        write_table(given.table, given.jobs, given.seed)
    else:
        parser.error("say where to write the table")
