"""Measures a table of real jobs: small trainings with torch, in many configurations.

Each run is a process (or two) of its own, with a limit of time and memory that some break. Contexts
take turns; configurations are drawn at random, some are repeats and some what people launch without
thinking. A run during which others worked on this machine is measured again later, up to three
times; ``foreign_utilization`` says how much they did. The program may be interrupted: it appends to
the table, and goes on where it was. Disturbed runs that a table holds are measured anew then::

    python -m benchmarks.measure training.csv                # 1,600 jobs, a second each or more
    python -m benchmarks.measure training.csv --quick        # 20 jobs, to see that it works
    python -m benchmarks.measure training.csv --summary      # what a table holds, measures nothing
    tunerd simulate examples/training.toml training.csv
"""

import argparse
import csv
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads.machine import (
    CONTEXTS,
    FOREIGN,
    STUDY,
    Limits,
    Outcome,
    alone,
    machine,
)
from tunerd.cli.progress import Show, progress
from tunerd.core.observation import Value
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study

__all__ = ["PlannedJob", "columns", "main", "planned", "read_rows", "undisturbed"]

TABLE = Path(__file__).parent / "results" / "training.csv"
JOBS, QUICK = 1_600, 20
REPEATED, HABITUAL = 0.08, 0.05
"""Shares of the jobs: an earlier configuration of the context again; what people launch."""
MEASURED = ("samples_per_s", "peak_memory_mib", "steps", "wall_time_s", "foreign_utilization")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PlannedJob:
    """One row of the table to be."""

    job_id: str
    context: Mapping[str, Value]
    config: Mapping[str, Value]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "table", type=Path, nargs="?", default=TABLE, help="a CSV file, new or begun"
    )
    parser.add_argument("--jobs", type=int, help=f"{JOBS} unless you say")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK} jobs, none of them measured again"
    )
    parser.add_argument("--summary", action="store_true", help="say what the table holds")
    options = parser.parse_args(argv)
    if not options.summary:
        study = parse_study(STUDY.read_text())
        plan = planned(study, options.jobs or (QUICK if options.quick else JOBS), options.seed)
        try:
            measure(
                options.table,
                study,
                plan,
                Limits(tries=1, patience_s=0.0) if options.quick else Limits(),
            )
        except ModuleNotFoundError as error:
            print(f"skipped: {error}", file=sys.stderr)
            return 0 if options.quick else 1
        except KeyboardInterrupt:
            print(f"interrupted; the same command goes on with {options.table}", file=sys.stderr)
            return 130
    summarize(read_rows(options.table))
    return 0


def planned(study: Study, jobs: int, seed: int) -> list[PlannedJob]:
    """The jobs of a table: of a longer one the first are the same."""
    plan: list[PlannedJob] = []
    for number in range(jobs):
        context = CONTEXTS[number % len(CONTEXTS)]
        rng = np.random.default_rng([seed, number])
        earlier = plan[number % len(CONTEXTS) :: len(CONTEXTS)]
        lot = rng.random()
        if lot < REPEATED and earlier:
            config = earlier[int(rng.integers(len(earlier)))].config
        elif lot < REPEATED + HABITUAL:
            config = dict(study.baseline(context) or {})
        else:
            space = SearchSpace(study, context)
            config = space.decode(space.sample(1, rng)[0])
        plan.append(PlannedJob(f"training-{seed}-{number:05}", context, config))
    return plan


def columns(study: Study) -> list[str]:
    """What the table is made of."""
    tuned = (parameter.name for parameter in study.parameters)
    return ["job_id", "finished_at", "status", "reason", *CONTEXTS[0], *tuned, *MEASURED]


def measure(table: Path, study: Study, plan: Sequence[PlannedJob], limits: Limits) -> None:
    """Append to the table what of the plan it does not have."""
    names = columns(study)
    table.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for row in read_rows(table) if alone(row)]
    _write(table, names, rows)
    known = {row["job_id"] for row in rows}
    left = [job for job in plan if job.job_id not in known]
    with (
        table.open("a", newline="") as file,
        machine(limits) as cluster,
        progress() as show,
    ):
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        for job, outcome in undisturbed(cluster.run, left, limits.tries, show):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            row = {"job_id": job.job_id, "finished_at": now, **job.context, **job.config}
            writer.writerow({**row, **_rounded(outcome)})
            file.flush()


def undisturbed(
    run: Callable[[Mapping[str, Value], Mapping[str, Value]], Outcome],
    jobs: Sequence[PlannedJob],
    tries: int,
    show: Show,
) -> Iterator[tuple[PlannedJob, Outcome]]:
    """Each job with its outcome, as it was while others left the machine alone.

    A disturbed run waits for its turn after all others: whoever disturbs it does so for a while.
    After so many ``tries`` the least disturbed counts.
    """
    left, disturbed = list(jobs), dict[str, Outcome]()
    show("jobs", 0, len(jobs))
    for turn in range(tries):
        waiting, left = left, []
        for at, job in enumerate(waiting, 1):
            outcome = run(job.context, job.config)
            before = disturbed.get(job.job_id, outcome)
            outcome = min(outcome, before, key=lambda one: float(one["foreign_utilization"]))
            if alone(outcome) or turn == tries - 1:
                yield job, outcome
            else:
                disturbed[job.job_id] = outcome
                left.append(job)
                show("disturbed, to be measured again", len(left), 0)
            show("jobs", len(jobs) - len(left) - len(waiting) + at, len(jobs))


def read_rows(table: Path) -> list[dict[str, str]]:
    """The rows of a table, which need not exist; a line that was cut off is none."""
    text = table.read_text() if table.exists() else ""
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))


def _write(table: Path, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    part = table.with_name(f".{table.name}.part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(table)


def _rounded(outcome: Outcome) -> dict[str, Any]:
    """Four digits of a speed are more than it has."""
    speed = outcome.get("samples_per_s")
    return outcome | ({} if speed is None else {"samples_per_s": float(f"{speed:.5g}")})


def summarize(rows: Sequence[Row]) -> None:
    """What a table holds, how well it repeats itself, and how much others disturbed it."""
    if not rows:
        print("no rows")
        return
    counted = Counter(row["status"] for row in rows)
    print(f"{len(rows):,} jobs: " + ", ".join(f"{n:,} {status}" for status, n in counted.items()))
    disturbed = sum(not alone(row) for row in rows)
    print(f"{disturbed:,} while others used more than {FOREIGN:.0%} of the machine")
    seconds = statistics.mean(float(row["wall_time_s"]) for row in rows)
    print(f"{seconds:.2f} s each, all in")
    for context in CONTEXTS:
        mine = [row for row in rows if all(row[k] == str(v) for k, v in context.items())]
        speeds: dict[tuple[str, ...], list[float]] = {}
        for row in mine:
            if row["status"] == "succeeded":
                key = tuple(row[name] for name in list(row)[4 + len(context) : -len(MEASURED)])
                speeds.setdefault(key, []).append(float(row["samples_per_s"]))
        every = [speed for values in speeds.values() for speed in values]
        apart = [max(v) / min(v) - 1.0 for v in speeds.values() if len(v) > 1]
        print(
            f"  {' '.join(map(str, context.values())):24} {len(mine):4} jobs, "
            f"{len(speeds):4} configurations ran, {min(every, default=0):8,.0f} to "
            f"{max(every, default=0):8,.0f} samples/s; repeats differ by "
            f"{statistics.median(apart) if apart else 0:.1%} in the median"
        )


if __name__ == "__main__":
    sys.exit(main())
