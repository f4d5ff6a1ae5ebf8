"""The experiments of CubicML (arXiv 2409.04585), made anew: ``docs/paper.md`` and its pictures.

::

    python -m benchmarks.paper                    # everything, under half an hour on two cores
    python -m benchmarks.paper --quick            # little of everything: three minutes
    python -m benchmarks.paper --only figure3     # one part anew, the others as they were
    python -m benchmarks.paper --render           # the page from what is published, nothing is run
    python -m benchmarks.paper --check            # exit 1 when a bar is missed

Each experiment is a task with a seed; results go to the file ``--results`` as they come, and a run
that was killed goes on there. What is published lies in ``benchmarks/paper/published.json``: the
page is written from it alone. Without the tables (``--data``) the parts on them are left out.
"""

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.paper import ads, tables
from benchmarks.paper.bars import hold
from benchmarks.paper.page import write
from benchmarks.paper.sizes import FULL, QUICK, Sizes
from benchmarks.side_by_side import side_by_side
from benchmarks.tables import DATA
from benchmarks.yardsticks.plan import table_names
from tunerd import __version__

__all__ = ["PARTS", "PUBLISHED", "main", "measure", "planned"]

PUBLISHED = Path(__file__).parent / "published.json"
RESULTS = Path(__file__).parents[1] / "results"
DOCS = Path(__file__).parents[2] / "docs"
DIGITS = 6
"""After the point, in results."""
LAYOUT = 1
"""Of the file of results; another one is not read."""

Results = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One measurement: a part, and what it is asked with."""

    part: str
    what: str
    """Function of the part."""
    seed: int = 0
    table: str = ""
    extra: str = ""

    @property
    def name(self) -> str:
        """Its key in the results."""
        return "/".join(str(one) for one in asdict(self).values() if one not in ("", 0))


PARTS: Mapping[str, str] = {
    "figure2a": "campaigns in the ads space",
    "figure2b": "accuracy in the ads space, and by the number of jobs",
    "figure3": "splits of public tables",
    "figure4": "accuracy on public tables by the number of jobs",
    "open": "what the paper leaves open",
    "ablations": "losses, ensembles, seeds and searchers",
}


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments(argv)
    sizes = QUICK if options.quick else FULL
    file: Path = options.results or (
        PUBLISHED if options.render else RESULTS / f"paper-{sizes.name}.json"
    )
    if not options.render:
        measure(file, sizes, options.data, options.only, options.processes, fresh=options.fresh)
    if not file.exists():
        print(f"no results in {file}: run without --render first", file=sys.stderr)
        return 2
    found = _read(file)
    docs: Path = options.docs or (DOCS if options.publish or options.render else file.parent)
    if options.publish:
        PUBLISHED.write_text(json.dumps(found) + "\n")
    print(f"written: {write(found, docs)}")
    missed = hold(found)
    for line in missed:
        print(f"paper: MISSED {line}", file=sys.stderr)
    return 1 if missed and options.check else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.paper", description=__doc__, formatter_class=_Plain
    )
    parser.add_argument("--quick", action="store_true", help="little of everything: 3 minutes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=list(PARTS),
        metavar="PART",
        help="run these parts anew: "
        + "; ".join(f"{name} = {text}" for name, text in PARTS.items()),
    )
    parser.add_argument("--render", action="store_true", help="run nothing, write the page")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--publish", action="store_true", help="keep the results, write docs/")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON of the results")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="folder of paper.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--processes", type=int, default=2, help="side by side")
    return parser.parse_args(argv)


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


# ── running ──────────────────────────────────────────────────────────────────────────────────


def planned(sizes: Sizes, data: Path, only: Sequence[str] = ()) -> list[Task]:
    """Everything that a run measures, what takes longest first within a part."""
    there = [name for name in table_names(data) if name in tables.LANGUAGE_MODELS]
    others = [name for name in table_names(data) if name not in tables.LANGUAGE_MODELS]
    tasks = [Task("figure2a", "space_facts")]
    tasks += [Task("figure2a", "campaign", seed) for seed in _seeds(sizes.campaigns)]
    tasks += [Task("figure2b", "accuracy", seed) for seed in _seeds(sizes.seeds)]
    tasks += [
        Task("figure3", "split", table=one.table, extra=f"{one.what} {one.split} {one.known}")
        for one in tables.questions([*there, *others], data)
        if one.what != "hardware"
    ]
    tasks += [Task("figure4", "curve", table=name) for name in there]
    tasks += [Task("open", "few_jobs", seed) for seed in _seeds(sizes.few_seeds)]
    tasks += [Task("open", "hardware", seed) for seed in _seeds(sizes.hardware_seeds)]
    tasks += [Task("open", "groups", table=name) for name in there]
    tasks += [
        Task("open", "split", table=one.table, extra=f"{one.what} {one.split} {one.known}")
        for one in tables.questions(there, data)
        if one.what == "hardware"
    ]
    tasks += [
        Task("open", "loops", table=name)
        for name in ("vtrain_megatron", "calculon_simulated_16k")
        if name in there
    ]
    tasks += [Task("ablations", "losses", seed) for seed in _seeds(sizes.seeds)]
    tasks += [Task("ablations", "searches", seed) for seed in _seeds(sizes.searches)]
    return [task for task in tasks if not only or task.part in only]


def _seeds(count: int) -> range:
    return range(1, count + 1)


def measure(
    file: Path,
    sizes: Sizes,
    data: Path,
    only: Sequence[str] = (),
    processes: int = 2,
    *,
    fresh: bool = False,
) -> None:
    """Run what is missing in ``file``; parts named in ``only`` are run anew."""
    found = _read(file) if file.exists() and not fresh else _empty(sizes)
    if found["size"] != sizes.name:
        raise SystemExit(f"{file} holds a run of size {found['size']}: name another, or --fresh")
    found |= {"sizes": asdict(sizes), "planned": len(planned(sizes, data))}
    wanted = planned(sizes, data, only)
    if only:
        for task in wanted:
            found["tasks"].pop(task.name, None)
    todo = [task for task in wanted if task.name not in found["tasks"]]
    missing = "" if table_names(data) else f"; no tables in {data}"
    print(f"{len(wanted)} tasks, {len(todo)} to run{missing}", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    started, before = time.monotonic(), found["seconds"]
    work = partial(_work, sizes=sizes, data=data)
    done = (
        side_by_side(work, todo, processes)
        if processes > 1
        else ((task, work(task)) for task in todo)
    )
    for count, (task, result) in enumerate(done, 1):
        print(f"  {count}/{len(todo)} {task.name}", flush=True)
        if result is None:
            print(f"  {task.name}: its process died", file=sys.stderr)
            continue
        found["tasks"][task.name] = result
        found["seconds"] = before + time.monotonic() - started
        file.write_text(json.dumps(found) + "\n")


def _work(task: Task, sizes: Sizes, data: Path) -> Results:
    started, cpu = time.perf_counter(), time.process_time()
    result = _answer(task, sizes, data)
    took = {"took": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    return {**asdict(task), **took, "result": _rounded(result)}


def _answer(task: Task, sizes: Sizes, data: Path) -> Results:
    match task.what:
        case "split":
            what, split, known = task.extra.split(" ")
            return tables.split(tables.Question(task.table, what, split, known), data, sizes)
        case "curve" | "groups" | "loops":
            asked: Results = getattr(tables, task.what)(task.table, data, sizes)
            return asked
        case _:
            played: Results = getattr(ads, task.what)(sizes, task.seed)
            return played


def _rounded(value: Any) -> Any:
    """Numbers to six digits after the point; what is not finite becomes null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.{DIGITS}g}") if abs(value) > 1 else round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value


def _empty(sizes: Sizes) -> Results:
    return {
        "layout": LAYOUT,
        "size": sizes.name,
        "sizes": asdict(sizes),
        "tunerd": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seconds": 0.0,
        "planned": 0,
        "tasks": {},
    }


def _read(file: Path) -> Results:
    found: Results = json.loads(file.read_text())
    if found.get("layout") != LAYOUT:
        raise SystemExit(f"{file} is of another layout: remove it, or name another")
    return found
