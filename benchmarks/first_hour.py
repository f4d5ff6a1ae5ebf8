"""From a table of old jobs to a first recommendation: init, check, import, report.

For every described table in a folder, in a new folder with no daemon and nothing put right by
hand: the four commands as a person types them, how long each takes, and what the report then says.
Which columns a person would have to put right says ``python -m benchmarks.roles``.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kit import Bars, arguments, counted
from benchmarks.tables import DATA

MOST_S = 600.0
QUICK = ("vtrain_megatron",)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", help="which ones; else all")
    options = parser.parse_args(argv)
    bars = Bars("first_hour")
    found = sorted(path.stem for path in options.data.glob("*.json"))
    tables = options.tables or (QUICK if options.quick else found)
    if not found:
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    for table in counted("tables", tables):
        print(table)
        with tempfile.TemporaryDirectory() as folder:
            walk(bars, table, options.data / f"{table}.csv.gz", Path(folder))
    return bars.end(options)


def walk(bars: Bars, table: str, file: Path, folder: Path) -> None:
    """One table, in a folder of its own."""
    (folder / "studies").mkdir()
    (folder / "tunerd.toml").write_text("[http]\nenabled = false\n")
    study = table.replace("_", "-")
    began = time.perf_counter()
    for name, *rest in (
        ("init", str(file), "--yes", "--name", study, "--out", f"studies/{study}.toml"),
        ("check",),
        ("import", study, str(file)),
        ("report", study, "--json"),
    ):
        started = time.perf_counter()
        said = tunerd(folder, name, *rest)
        bars.say(f"{table}: tunerd {name}", time.perf_counter() - started, "s")
        if said is None:
            bars.hold(f"{table}: tunerd {name}", 0, False, "exit code 0")
            return
    report: dict[str, Any] = json.loads(said or "{}")
    advised = sum(bool(context["advice"]) for context in report["contexts"])
    history = report["history"]
    bars.say(f"{table}: jobs learned, contexts", f"{history['jobs']}, {history['contexts']}")
    bars.hold(
        f"{table}: contexts with a recommendation (50 are listed)",
        advised,
        advised > 0,
        "at least one",
    )
    quality = history["fresh"] or {}
    for figure in ("kendall", "coverage"):
        estimate = quality.get(figure) or {}
        bars.say(f"{table}: {figure} of jobs before they were learned", estimate.get("value"))
    seconds = time.perf_counter() - began
    bars.hold(f"{table}: all four", seconds, seconds < MOST_S, f"under {MOST_S:g} s", "s")


def tunerd(folder: Path, *arguments: str) -> str | None:
    """What a command printed; None, and what it complained about, when it failed."""
    done = subprocess.run(
        [sys.executable, "-m", "tunerd", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        return None
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
