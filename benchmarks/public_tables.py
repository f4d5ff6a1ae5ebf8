"""Makes tables for the yardsticks of public repositories that you have cloned.

They are of other kinds than the five that the project is measured on, and tables to learn from by
now: that ``committee`` asks extra trees comes from ``heffte_polaris``, that random forests speak
beside a process alone from that and ``multi_cloud_time``. Clone one or both into a folder, and::

    python -m benchmarks.public_tables CLONES FOLDER
    python -m benchmarks.yardsticks --data FOLDER --out RESULTS

- ``multi_cloud_time`` and ``multi_cloud_cost``, of github.com/IBM/multi-cloud-configuration-dataset
  (Lazuka et al., IEEE CLOUD 2022): 30 Dask workloads on 88 clusters of three cloud providers; some
  fail
- ``heffte_polaris``, of github.com/tlranda/ytopt-libensemble-data: Fourier transforms of several
  sizes on 1 to 16 nodes of Polaris, single noisy runs of configurations that an optimizer chose

The tables are their owners', under their terms, and no part of tunerd.
"""

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["main"]

Row = Mapping[str, object]
Roles = Mapping[str, tuple[str, str]]
"""Column → its role and type."""

CLOUD = Path("multi-cloud-configuration-dataset/multi-cloud-configuration.csv")
CLOUD_ROLES: Roles = {
    "task": ("context", "category"),
    "dataset": ("context", "category"),
    "provider": ("tunable", "category"),
    "family": ("tunable", "category"),
    "kind": ("tunable", "category"),
    "vcpu": ("tunable", "int"),
    "nodes": ("tunable", "int"),
    "status": ("status", "category"),
}
HEFFTE = Path("ytopt-libensemble-data/ytopt-libe-heffte/polaris")
HEFFTE_ROLES: Roles = {
    "nodes": ("context", "int"),
    "size": ("context", "int"),
    "precision": ("context", "category"),
    "reorder": ("tunable", "category"),
    "all_to_all": ("tunable", "category"),
    "point_to_point": ("tunable", "category"),
    "layout": ("tunable", "category"),
    "real_to_complex": ("tunable", "category"),
    "topology_in": ("tunable", "float"),
    "topology_out": ("tunable", "float"),
    "threads": ("tunable", "float"),
    "status": ("status", "category"),
}
MOST_THREADS = 16
"""Some files give threads as their number, some as a share of this."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path, help="folder with the repositories")
    parser.add_argument("folder", type=Path, help="where the tables go")
    options = parser.parse_args(argv)
    cloud, heffte = options.clones / CLOUD, options.clones / HEFFTE
    found = 0
    if cloud.exists():
        for goal, column in (("time", "target_runtime"), ("cost", "target_cost")):
            rows = list(cloud_rows(cloud, goal, column))
            found += written(options.folder, f"multi_cloud_{goal}", CLOUD_ROLES, rows, goal, "min")
    if heffte.exists():
        rows = list(heffte_rows(heffte))
        found += written(options.folder, "heffte_polaris", HEFFTE_ROLES, rows, "gflops", "max")
    if not found:
        print(f"neither {cloud} nor {heffte} has rows: clone a repository first", file=sys.stderr)
        return 2
    return 0


def cloud_rows(path: Path, goal: str, column: str) -> Iterator[Row]:
    """Each provider has columns of its own, empty for the others."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            dataset, _, task = row["workload"].partition("-")
            provider, ran = row["provider"], row["status"] == "ok"
            yield {
                "task": task,
                "dataset": dataset,
                "provider": provider,
                "family": provider + whole(row[f"{provider}_family"]),
                "kind": provider + whole(row.get(f"{provider}_type") or ""),
                "vcpu": whole(row[f"{provider}_vcpu"]),
                "nodes": whole(row["nodes"]),
                "status": "ok" if ran else "failed",
                goal: row[column] if ran else "",
            }


def heffte_rows(folder: Path) -> Iterator[Row]:
    """The results of each size and number of nodes, a file each; 1 is written where a run failed,
    and speeds below 0, for an optimizer that minimizes."""
    for path in sorted(folder.glob("Polaris_*n_*a/results.csv")):
        named = re.fullmatch(r"Polaris_(\d+)n_(\d+)a", path.parent.name)
        if named is None:
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                threads, speed = float(row["p9"]), -float(row["FLOPS"])
                words = [row[f"p{i}"].strip().lstrip("-") or "default" for i in range(2, 7)]
                yield {
                    "nodes": int(named[1]),
                    "size": int(named[2]),
                    "precision": row["p0"],
                    **dict(zip(list(HEFFTE_ROLES)[3:8], words, strict=True)),
                    "topology_in": row["p7"],
                    "topology_out": row["p8"],
                    "threads": threads / MOST_THREADS if threads > 1 else threads,
                    "status": "ok" if speed > 0 else "failed",
                    "gflops": speed if speed > 0 else "",
                }


def whole(text: str) -> str:
    """``1.0`` is ``1``, as tables with gaps write it."""
    return text.strip().removesuffix(".0")


def written(
    folder: Path, name: str, roles: Roles, rows: Sequence[Row], goal: str, direction: str
) -> int:
    """Write NAME.csv and NAME.json, tell so, and return how many rows there are."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [*roles, goal])
        table.writeheader()
        table.writerows(rows)
    columns = [{"name": c, "role": role, "type": kind} for c, (role, kind) in roles.items()]
    columns.append({"name": goal, "role": "objective", "type": "float", "direction": direction})
    described = {"name": name, "columns": columns}
    (folder / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")
    print(f"{folder / name}.csv: {len(rows):,} rows")
    return len(rows)


if __name__ == "__main__":
    sys.exit(main())
