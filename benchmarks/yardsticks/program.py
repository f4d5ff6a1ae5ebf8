"""How good tunerd is, and how good others are: predictions and closed loops, peers in the same run.

::

    python -m benchmarks.yardsticks                       # everything, an hour on two cores
    python -m benchmarks.yardsticks --resume              # where the last run was killed
    python -m benchmarks.yardsticks --resume --again committee --best committee --check
    python -m benchmarks.yardsticks --data FOLDER         # any tables: NAME.csv[.gz], NAME.json

Predictors are asked about every table with jobs left out at random (five folds, 5 % of the jobs
known, 30 to 300 jobs known), by time, by group and by scale; optimizers play closed loops from
nothing and with all other contexts known (:mod:`benchmarks.yardsticks.plan`). Same jobs, same
splits, same random starts, same batches. Each cell becomes a line of ``results.jsonl`` in the
folder ``--out``, as soon as it is done; ``python -m benchmarks.report`` makes pages of them.

The yardsticks judge themselves: an oracle must get τ 1 and regret 0, a predictor that was taught
shuffled outcomes τ 0 and the regret of a random order. ``--best NAME`` holds a predictor of
tunerd's, or ``tunerd`` in closed loops, to be beaten by nobody.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers import OPTIMIZERS, PREDICTORS
from benchmarks.side_by_side import side_by_side
from benchmarks.tables import DATA
from benchmarks.yardsticks.bars import hold_all
from benchmarks.yardsticks.plan import DRAWS, MODES, Cell, Description, cells, describe, table_names
from benchmarks.yardsticks.results import is_answered, read_results

__all__ = ["main"]

FOLDER = Path(__file__).parent.parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments(argv)
    if not (names := options.tables or table_names(options.data)):
        print(f"skipped: no tables in {options.data} (--data says where they are)")
        return 1 if options.check else 0
    described = [describe(name, options.data) for name in names]
    _say_what_is_missing()
    wanted = cells(
        described,
        only=options.only,
        who=options.who,
        modes=options.modes,
        seeds=options.seeds,
        draws=options.draws,
        quick=options.quick,
    )
    out: Path = options.out or FOLDER / ("yardsticks-quick" if options.quick else "yardsticks")
    file = out / "results.jsonl"
    there = read_results(file) if options.resume else {}
    if file.exists() and not options.resume:
        if not options.quick:
            print(f"{file} exists: --resume goes on with it, --out names another", file=sys.stderr)
            return 2
        file.unlink()
    out.mkdir(parents=True, exist_ok=True)
    todo = [
        cell
        for cell in wanted
        if not is_answered(there.get(cell.name), cell) or cell.who in options.again
    ]
    print(f"{len(wanted)} cells, {len(wanted) - len(todo)} of them in {file}", flush=True)
    _measure(todo, described, options, file)
    return hold_all(wanted, read_results(file), options)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.yardsticks", description=__doc__, formatter_class=_Plain
    )
    parser.add_argument("--quick", action="store_true", help="little of everything: 3 minutes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of results.jsonl")
    parser.add_argument("--resume", action="store_true", help="keep the cells that are there")
    parser.add_argument("--again", nargs="+", default=[], metavar="NAME", help="but measure these")
    parser.add_argument("--only", choices=["predict", "loop"], help="half of it")
    parser.add_argument("--tables", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument(
        "--who", "--peers", nargs="+", default=[], metavar="NAME", help="only these answer or play"
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        default=["none", "others"],
        choices=sorted(MODES),
        help="closed loops: " + "; ".join(f"{mode} = {text}" for mode, text in MODES.items()),
    )
    parser.add_argument("--seeds", type=int, default=3, help="of closed loops")
    parser.add_argument(
        "--draws",
        type=int,
        default=DRAWS,
        help="of the few jobs known: more tell smaller differences between predictors",
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="side by side; 1 measures in this process"
    )
    parser.add_argument(
        "--best",
        nargs="+",
        default=[],
        metavar="NAME",
        help="bars: no peer significantly better in any cell, each worse on the mean over cells",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the bars there")
    return parser.parse_args(argv)


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


def _say_what_is_missing() -> None:
    everyone = {**PREDICTORS, **OPTIMIZERS}
    missing = [name for name, peer in everyone.items() if not peer.installed]
    if missing:
        print(f"not installed: {', '.join(missing)} (pip install -e '.[peers]')", file=sys.stderr)


def _measure(
    todo: Sequence[Cell],
    described: Sequence[Description],
    options: argparse.Namespace,
    file: Path,
) -> None:
    tables = {one.name: one for one in described}
    started = last = time.monotonic()
    if file.exists() and not file.read_text().endswith("\n"):
        with file.open("a") as log:
            log.write("\n")  # after a line that a kill cut short
    with file.open("a") as log:
        for count, line in enumerate(_lines(todo, tables, options), 1):
            log.write(json.dumps(line, separators=(",", ":")) + "\n")
            log.flush()
            if "error" in line:
                print(f"  {line['cell']}: {line['error']}", flush=True)
            now = time.monotonic()
            if now - last > 10 or count == len(todo):
                last = now
                left = (now - started) / count * (len(todo) - count)
                said = f"{count}/{len(todo)} cells, {now - started:.0f} s, about {left:.0f} s left"
                print(f"  {said}: {line['cell']}", flush=True)


def _lines(
    todo: Sequence[Cell], tables: Mapping[str, Description], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Results as they come."""
    from benchmarks.yardsticks.cells import died, run

    work = partial(_run, tables=tables, data=options.data.resolve())
    if options.processes == 1:
        for cell in todo:
            yield run(cell, tables[cell.table], options.data)
        return
    for cell, line in side_by_side(work, todo, options.processes):
        yield line or died(cell)


def _run(cell: Cell, tables: Mapping[str, Description], data: Path) -> dict[str, Any]:
    from benchmarks.yardsticks.cells import run

    return run(cell, tables[cell.table], data)
