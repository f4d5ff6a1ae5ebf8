"""Real programs, tuned for five minutes against their own defaults: no simulator.

    make demo-real                                  # or: python examples/real/demo.py --seconds 120

Each program is run again and again through ``tunerd exec``, as a person would type it, with a
daemon of its own that learns from every run. What must not get worse is held by a guard: the speed
of what compresses, the mistakes of what was trained. At the end defaults and what was found are
measured anew, in turns.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tunerd.client import Recommendations
from tunerd.exec.fill import fill
from tunerd.exec.local import stop

HERE = Path(__file__).parent
CHECKS = 7
"""Runs of the defaults, and of what was found, in turns at the end. The best of each counts: other
work on the machine can only make a run slower."""
CORPUS_BYTES = 24_000_000
CHANGED = 0.1
"""Share of the files that are others the next night."""


@dataclass
class Program:
    """One program to tune."""

    name: str
    title: str
    defaults: str
    """What runs without tunerd, for a person."""
    plain: list[str]
    """The command with its own defaults."""
    command: list[str]
    """The command with ``{name}`` where something is tuned."""
    metrics: dict[str, str]
    """What it prints, by name."""
    objective: str
    guard: str | None
    """Metric that must not get worse than with the defaults."""
    parameters: str
    baseline: str
    goal: str = "minimize"
    unit: str = "s"
    better: str = "as fast"
    """What a gain is: so many times …"""
    bound: str = "max"
    """Of the guard: ``max`` or ``min``."""
    slack: float = 1.002
    """So many times the default's is the bound; rounding, where nothing else is meant."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def default_config(self) -> dict[str, Any]:
        """The baseline's values."""
        found: dict[str, Any] = tomllib.loads(f"config = {{ {self.baseline} }}")["config"]
        return found

    @property
    def best(self) -> Callable[[Sequence[float]], float]:
        return min if self.goal == "minimize" else max

    def times(self, default: float, value: float) -> float:
        """How many times as good."""
        return default / value if self.goal == "minimize" else value / default

    def shown(self, value: float) -> str:
        return f"{value:,.3f} {self.unit}" if value < 10 else f"{value:,.0f} {self.unit}"

    def broken(self, value: float, limit: float | None) -> bool:
        """Whether the guard's metric is beyond its bound."""
        if limit is None:
            return False
        return value > limit if self.bound == "max" else value < limit

    def study(self, limit: float | None) -> str:
        guard = (
            f"guards.{self.guard} = {{ {self.bound} = {limit:.6g} }}\n" if limit is not None else ""
        )
        return (
            f'schema = 1\nname = "{self.name}"\nmode = "publish"\nexplore_share = 0.9\n'
            f'objective = {{ metric = "{self.objective}", goal = "{self.goal}" }}\n'
            f"{guard}{self.parameters}\n[[baseline]]\nconfig = {{ {self.baseline} }}\n"
        )

    def options(self) -> list[str]:
        how = {self.objective: ":min" if self.goal == "minimize" else ":max"}
        named = (f"{name}{how.get(name, '')}={regex}" for name, regex in self.metrics.items())
        return [part for one in named for part in ("--metric", one)]


@dataclass
class Run:
    """One run, as its event tells it."""

    at_s: float
    value: float | None
    """The objective; None where it failed or broke the guard."""
    kind: str


@dataclass
class Found:
    """What came of one program."""

    program: Program
    default: float
    took_s: float
    """One run by default."""
    limit: float | None
    """Of the guard's metric."""
    runs: list[Run] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    checked: dict[str, list[float]] = field(default_factory=dict)
    guards: dict[str, list[float]] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """How many times as good as the defaults, of the best of each; 1 where these stay."""
        if not self.config:
            return 1.0
        default, found = (self.program.best(self.checked[one]) for one in ("default", "found"))
        return self.program.times(default, found)

    def dump(self) -> dict[str, Any]:
        """For ``result.json``."""
        return {
            "defaults": self.program.defaults,
            "gain": round(self.gain, 4),
            "runs": len(self.runs),
            "config": self.config,
            "measured_anew": self.checked,
            "guard": self.guards,
        }


# -- the programs -------------------------------------------------------------------------------


def corpus(target: Path) -> None:
    """Two nightly backups in one archive: files of this Python's own packages, and the next night
    the same, but for a tenth of them, which others took the place of."""
    rng = random.Random(1)
    files = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*"))
    files = [file for file in files if file.is_file() and file.stat().st_size < 2_000_000]
    rng.shuffle(files)
    kept: list[Path] = []
    size = 0
    while files and size < CORPUS_BYTES // 2:
        kept.append(files.pop())
        size += kept[-1].stat().st_size
    with tarfile.open(target, "w") as archive:
        for night in ("monday", "tuesday"):
            for number, file in enumerate(kept):
                changed = night == "tuesday" and files and rng.random() < CHANGED
                archive.add(files.pop() if changed else file, f"{night}/{number}-{file.name}")


def compress(folder: Path) -> Program | None:
    """zstd's own benchmark, on an archive of real files."""
    if shutil.which("zstd") is None:
        return None
    file = str(folder / "backups.tar")
    corpus(Path(file))
    return Program(
        name="compress",
        title="zstd on two nightly backups, at most half as long again as by default",
        defaults="zstd -3, one thread",
        plain=["zstd", "-b3", "-i0", file],
        command=["zstd", "-b{level}", "-i0", "-T{threads}", "--{matching}={window}", file],
        metrics={
            "mb_per_s": r"\(x?[0-9.]+\),? +([0-9.]+) MB/s",
            "ratio": r"\(x?([0-9.]+)\)",
        },
        objective="ratio",
        goal="maximize",
        unit="times smaller",
        better="as small",
        guard="mb_per_s",
        bound="min",
        slack=1 / 1.5,
        # A window of 2^21 bytes is the default's; with a larger one the other night is in it.
        # `--long` looks for matches that are far away, too, which `--zstd=wlog` does not.
        parameters=(
            "[parameters]\n"
            'level = { type = "int", low = 1, high = 9 }\n'
            'threads = { type = "int", values = [1, 2] }\n'
            'window = { type = "int", low = 20, high = 27 }\n'
            'matching = { type = "category", values = ["zstd=wlog", "long"] }\n'
        ),
        baseline="level=3, threads=1, window=21, matching='zstd=wlog'",
    )


def train(folder: Path) -> Program | None:
    """LightGBM's own training, no worse than by default."""
    script, blocks = str(HERE / "train.py"), str(folder / "blocks.npz")
    subprocess.run([sys.executable, script, blocks, "--prepare"], check=True)
    plain = [sys.executable, script, blocks]
    tuned = ("num_threads", "max_bin", "num_leaves", "learning_rate", "min_data_in_leaf")
    return Program(
        name="train",
        title="LightGBM training, no more mistakes than by default",
        defaults="LightGBM's defaults, all cores",
        plain=plain,
        command=[*plain, *(f"{name}={{{name}}}" for name in tuned)],
        metrics={"train_s": r"trained in ([0-9.]+) s", "wrong": r"([0-9.]+) % wrong"},
        objective="train_s",
        guard="wrong",
        parameters=(
            "[parameters]\n"
            'num_threads = { type = "int", values = [1, 2] }\n'
            'max_bin = { type = "int", low = 15, high = 255, scale = "log" }\n'
            'num_leaves = { type = "int", low = 4, high = 63, scale = "log" }\n'
            'learning_rate = { type = "float", low = 0.05, high = 0.8, scale = "log" }\n'
            'min_data_in_leaf = { type = "int", low = 5, high = 200, scale = "log" }\n'
        ),
        baseline=(
            f"num_threads={min(2, os.cpu_count() or 1)}, max_bin=255, num_leaves=31, "
            "learning_rate=0.1, min_data_in_leaf=20"
        ),
        environment={"OMP_NUM_THREADS": str(os.cpu_count() or 1)},
    )


def database(folder: Path, stack: ExitStack) -> Program | None:
    """PostgreSQL under pgbench: how many connections, and how they speak."""
    binaries = _postgres()
    if binaries is None or shutil.which("pgbench") is None:
        return None
    port = stack.enter_context(_server(folder, binaries))
    here = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
    subprocess.run(["pgbench", "-i", "-q", "-s", "5", *here], check=True, capture_output=True)
    pgbench = ["pgbench", "-n", "-S", "-T", "1"]
    return Program(
        name="database",
        title="PostgreSQL under pgbench -S, latency at most three times the default's",
        defaults="pgbench's defaults: one connection, simple protocol",
        plain=[*pgbench, *here],
        command=[*pgbench, "-c", "{clients}", "-j", "{threads}", "-M", "{protocol}", *here],
        metrics={"tps": "tps = ([0-9.]+)", "latency_ms": "latency average = ([0-9.]+) ms"},
        objective="tps",
        unit="tps",
        goal="maximize",
        guard="latency_ms",
        slack=3.0,
        parameters=(
            "[parameters]\n"
            'clients = { type = "int", low = 1, high = 32, scale = "log" }\n'
            'threads = { type = "int", low = 1, high = 4 }\n'
            'protocol = { type = "category", values = ["simple", "extended", "prepared"] }\n'
            '[constraints]\nno_idle_threads = "threads <= clients"\n'
        ),
        baseline='clients=1, threads=1, protocol="simple"',
    )


def _postgres() -> Path | None:
    """Where PostgreSQL's programs are."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@contextmanager
def _server(folder: Path, binaries: Path) -> Iterator[int]:
    """A PostgreSQL of the demo's own, on a free port of this machine; as root it runs as postgres,
    since it refuses to run as root."""
    user = "postgres" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="tunerd-demo-postgres-"))
    if user:
        shutil.chown(home, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    data = str(home / "data")
    initdb = [str(binaries / "initdb"), "-D", data, "-U", "postgres", "-A", "trust"]
    server: subprocess.Popen[bytes] | None = None
    try:
        subprocess.run(initdb, check=True, cwd=home, user=user, stdout=subprocess.DEVNULL)
        with (folder / "postgres.log").open("wb") as log:
            server = subprocess.Popen(
                [
                    *(str(binaries / "postgres"), "-D", data, "-p", str(port)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
                ],
                cwd=home,
                user=user,
                stdout=log,
                stderr=log,
            )
        _wait_for(port)
        yield port
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)
        shutil.rmtree(home, ignore_errors=True)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    ready = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ready, check=False).returncode:
        if time.monotonic() > deadline:
            raise SystemExit("PostgreSQL did not start; see postgres.log")
        time.sleep(0.1)


# -- the demo -----------------------------------------------------------------------------------


class Demo:
    """Everything in one folder, the daemon's too."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self.folder, self.seconds, self.seed = folder, seconds, seed
        self.began = time.monotonic()
        own = {name: value for name, value in os.environ.items() if not name.startswith("TUNERD_")}
        self.environment = own | {"XDG_STATE_HOME": str(folder / "state")}
        self.stream = folder / "state" / "tunerd" / "local" / "data" / "stream"

    def left(self) -> float:
        """Seconds of the demo that are left, without those for the last measurements."""
        return self.seconds - (time.monotonic() - self.began)

    def run(self) -> list[Found]:
        """Prepare, tune in turns, measure anew."""
        with ExitStack() as stack:
            stack.callback(stop, self.stream.parent.parent)
            programs = self._programs(stack)
            found = self._begin(programs)
            self.began = time.monotonic()  # a busy machine may take minutes until here
            check_s = sum(2 * CHECKS * one.took_s for one in found)
            number = 0
            while self.left() > check_s:
                for one in found:
                    self._run_once(one, number)
                    number += 1
                _show(found, self.left() - check_s)
            _end_line()
            for one in found:
                config = self._recommended(one.program)
                # The defaults themselves may be the best that is known.
                one.config = {} if config == one.program.default_config else config
            for _ in range(CHECKS):
                for one in found:
                    self._check(one)
        return found

    def _programs(self, stack: ExitStack) -> list[Program]:
        made = [compress(self.folder), train(self.folder), database(self.folder, stack)]
        for name, one in zip(("zstd", "LightGBM", "PostgreSQL with pgbench"), made, strict=True):
            if one is None:
                print(f"{name} is not installed here: left out")
        return [one for one in made if one is not None]

    def _begin(self, programs: Sequence[Program]) -> list[Found]:
        """Measure the defaults in turns, and write the studies that they bound: one busy spell of
        the machine then falls upon one run of each, and the median leaves it out."""
        measured: dict[str, list[dict[str, float]]] = {one.name: [] for one in programs}
        for _ in range(3):
            for program in programs:
                measured[program.name].append(self._measure(program, program.plain))
        return [self._bound(program, measured[program.name]) for program in programs]

    def _bound(self, program: Program, measured: Sequence[dict[str, float]]) -> Found:
        """Write the study; the guard's bound is the median of the defaults."""
        default, took_s = (
            statistics.median(one[name] for one in measured)
            for name in (program.objective, "wall_s")
        )
        limit = None
        if program.guard is not None:
            limit = statistics.median(one[program.guard] for one in measured) * program.slack
        (self.folder / f"{program.name}.toml").write_text(program.study(limit))
        print(f"\n{program.title}")
        print(f"  {program.defaults}: {program.shown(default)}")
        print(f"  $ {shlex.join(['tunerd', *self._arguments(program)])}")
        return Found(program, default, took_s, limit)

    def _arguments(self, program: Program) -> list[str]:
        study = os.path.relpath(self.folder / f"{program.name}.toml")
        return ["exec", "--local", "--study", study, *program.options(), "--", *program.command]

    def _run_once(self, found: Found, number: int) -> None:
        program = found.program
        line = [sys.executable, "-m", "tunerd", *self._arguments(program)]
        line[4:4] = ["--job-id", f"{self.seed}-{number}"]
        with (self.folder / f"{program.name}.log").open("ab") as log:
            subprocess.run(
                line,
                env=self.environment | program.environment,
                stdout=log,
                stderr=log,
                check=False,
            )
        event = self._last_event()
        value = event["metrics"].get(program.objective)
        guarded = event["metrics"].get(program.guard or "", 0.0)
        if event["status"] != "succeeded" or program.broken(guarded, found.limit):
            value = None
        at_s = time.monotonic() - self.began
        found.runs.append(Run(at_s, value, event["labels"]["kind"]))

    def _last_event(self) -> dict[str, Any]:
        lines = (self.stream / "tunerd.jobs.jsonl").read_text().splitlines()
        event: dict[str, Any] = json.loads(lines[-1])
        return event

    def _recommended(self, program: Program) -> dict[str, Any]:
        """What tunerd advises: the first candidate that gains even at the low end of its
        band, else the incumbent."""
        recommendations = Recommendations.follow_jsonl(self.stream)
        recommendations.catch_up()
        message = recommendations.find(program.name) or {"candidates": [], "incumbent": None}
        for candidate in sorted(message["candidates"], key=lambda one: int(one["rank"])):
            if (candidate.get("gain") or {}).get("low", -1.0) > 0:
                return dict(candidate["config"])
        incumbent = message["incumbent"]
        return dict(incumbent["config"]) if incumbent else {}

    def _check(self, found: Found) -> None:
        program = found.program
        tuned = fill(program.command, found.config, {}).arguments if found.config else program.plain
        for name, command in (("default", program.plain), ("found", tuned)):
            metrics = self._measure(program, command)
            found.checked.setdefault(name, []).append(metrics[program.objective])
            if program.guard:
                found.guards.setdefault(name, []).append(metrics[program.guard])

    def _measure(self, program: Program, command: Sequence[str]) -> dict[str, float]:
        begin = time.perf_counter()
        done = subprocess.run(
            command,
            env=self.environment | program.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found = {"wall_s": time.perf_counter() - begin}
        for name, pattern in program.metrics.items():
            printed = [float(one) for one in re.findall(pattern, done.stdout + done.stderr)]
            assert printed, done.stdout + done.stderr
            best = program.best if name == program.objective else statistics.median
            found[name] = best(printed)
        return found


def _show(found: Sequence[Found], left: float) -> None:
    if sys.stdout.isatty():
        parts = []
        for one in found:
            known = [run.value for run in one.runs if run.value is not None]
            best = one.program.best(known) if known else one.default
            parts.append(f"{one.program.name} {one.program.times(one.default, best):.2f}x")
        print(
            f"\r  {max(0, left):4.0f} s left; best run so far: {', '.join(parts)} ",
            end="",
            flush=True,
        )


def _end_line() -> None:
    if sys.stdout.isatty():
        print()


def tell(found: Sequence[Found], seconds: float) -> None:
    """What was won, in a few lines."""
    print(f"\nAfter {seconds / 60:.1f} minutes, measured anew, the best of {CHECKS} each in turns:")
    for one in found:
        program = one.program
        default, tuned = (program.best(one.checked[name]) for name in ("default", "found"))
        if not one.config:
            print(
                f"  {program.name:9} {program.shown(default):>10}: the defaults stay, nothing ",
                end="",
            )
            print(f"better was found in {len(one.runs)} runs")
            continue
        print(
            f"  {program.name:9} {program.shown(default):>10} -> {program.shown(tuned):>10}   "
            f"{one.gain:.2f} times {program.better}, {len(one.runs)} runs"
        )
        if one.guards:
            before, after = (statistics.median(one.guards[name]) for name in ("default", "found"))
            print(f"            {program.guard} {before:g} -> {after:g}")
        values = ", ".join(f"{name}={value}" for name, value in one.config.items())
        print(f"            {values}")


def plot(found: Sequence[Found], file: Path) -> None:
    """Every run, and how the best came down."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(
        1, len(found), figsize=(4.6 * len(found), 4.9), layout="constrained", squeeze=False
    )
    for axes, one in zip(all_axes[0], found, strict=True):
        program = one.program
        ran = [run for run in one.runs if run.value is not None]
        axes.axhline(1.0, color="#616161", ls="--", lw=1.2, label="its defaults")
        speeds = [program.times(one.default, run.value or 1.0) for run in ran]
        colors = ["#90a4ae" if run.kind in ("explore", "confirm") else "#1565c0" for run in ran]
        axes.scatter([run.at_s for run in ran], speeds, s=14, c=colors)
        broke = [run.at_s for run in one.runs if run.value is None]
        axes.plot(
            broke,
            [0.0] * len(broke),
            "x",
            color="#c62828",
            ms=5,
            label="failed, or guard broken",
        )
        axes.plot([], [], "o", color="#1565c0", ms=4, label="recommended")
        axes.plot([], [], "o", color="#90a4ae", ms=4, label="tried")
        axes.axhline(
            one.gain,
            color="#2e7d32",
            lw=1.6,
            label=f"found, measured anew: {one.gain:.2f}x" if one.config else "nothing better",
        )
        axes.set_title(program.title.replace(", ", "\n", 1), fontsize=10)
        axes.set_xlabel("seconds since the demo began")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_ylim(bottom=0)
        axes.legend(
            frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16)
        )
    all_axes[0][0].set_ylabel("times as good as by default")
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="once all is prepared")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a new one; for everything that it writes")
    given = parser.parse_args()
    now = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    folder = (given.folder or Path(f"tunerd-demo-real-{now}")).absolute()
    folder.mkdir(parents=True)
    print(f"Tuning real programs for {given.seconds / 60:g} minutes, in {os.path.relpath(folder)}")
    demo = Demo(folder, given.seconds, given.seed)
    found = demo.run()
    tell(found, time.monotonic() - demo.began)
    plot(found, folder / "demo.png")
    result = {one.program.name: one.dump() for one in found}
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nThe plot: {os.path.relpath(folder / 'demo.png')}")


if __name__ == "__main__":
    main()
