"""What the benchmarks share: a broker, a daemon, and bars that may be missed.

Every benchmark is a program: ``python -m benchmarks.NAME``. ``--quick`` runs it on little, to see
that it works; ``--check`` exits 1 when a bar is missed and says which.
"""

import argparse
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers import tied
from tests.servers.kafka import KafkaServer
from tunerd.cli.progress import progress, track
from tunerd.core.observation import Observation, Value
from tunerd.core.space import SearchSpace
from tunerd.lab.simulation.simulator import SimulatedRun

__all__ = [
    "Bars",
    "Daemon",
    "arguments",
    "counted",
    "kafka_broker",
    "make_topic",
    "observation",
    "peak_mib",
    "percentile",
    "resident_mib",
    "running",
]

T = TypeVar("T")


def counted(what: str, items: Collection[T]) -> Iterator[T]:
    """The items of a long loop; how many are done, and how long the rest takes, is told."""
    with progress() as show:
        yield from track(items, what, len(items), show)


@dataclass
class Bars:
    """Collects figures and holds some against bars."""

    title: str
    missed: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def say(self, name: str, value: object, unit: str = "") -> None:
        """A figure without a bar."""
        self.figures[name] = value
        print(f"  {name:58} {_shown(value):>12} {unit}", flush=True)

    def hold(self, name: str, value: float, ok: bool, bar: str, unit: str = "") -> None:
        """A figure with a bar; ``ok`` says whether it is kept."""
        self.figures[name] = value
        mark = "ok" if ok else "MISSED"
        print(f"  {name:58} {_shown(value):>12} {unit:8} bar: {bar}: {mark}", flush=True)
        if not ok:
            self.missed.append(f"{name}: {_shown(value)} {unit} (bar: {bar})")

    def end(self, options: argparse.Namespace) -> int:
        """Write the figures where they are wanted; the exit code."""
        if options.json:
            told = {"benchmark": self.title, "quick": options.quick, "figures": self.figures}
            told |= {"missed": self.missed, "machine": platform.machine(), "cores": os.cpu_count()}
            options.json.write_text(json.dumps(told, indent=2) + "\n")
        for line in self.missed:
            print(f"{self.title}: MISSED {line}", file=sys.stderr)
        return 1 if self.missed and options.check else 0


def _shown(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value}"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs already")
    return parser


@contextmanager
def kafka_broker(options: argparse.Namespace) -> Iterator[str]:
    """The address of a real Kafka: the one named, or one started for this run."""
    if options.bootstrap:
        yield options.bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        server = KafkaServer(Path(folder) / "broker")
        server.start()
        try:
            yield server.bootstrap
        finally:
            server.stop()


@dataclass
class Daemon:
    """A daemon as an operator runs it: its own process, a settings file, a folder of studies."""

    folder: Path
    studies: Mapping[str, str]
    """Text by name."""
    bootstrap: str | None = None
    name: str = "bench"
    store_url: str = ""
    settings: str = ""
    """Further lines of the settings file, whole sections."""
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        (self.folder / "studies").mkdir(parents=True, exist_ok=True)
        for name, text in self.studies.items():
            (self.folder / "studies" / f"{name}.toml").write_text(text)
        self.port = free_port()
        stream = 'kind = "jsonl"'
        if self.bootstrap:
            stream = f'kind = "kafka"\n[stream.kafka]\nbootstrap_servers = "{self.bootstrap}"'
        store = f'[store]\nurl = "{self.store_url}"\n' if self.store_url else ""
        self.file = self.folder / "tunerd.toml"
        self.file.write_text(
            f'name = "{self.name}"\ndata_dir = "data"\nstudies = "studies"\n'
            f"[stream]\n{stream}\n{store}"
            f'[topics]\njobs = "{self.jobs}"\nrecommendations = "{self.recommendations}"\n'
            f'rejected = "{self.rejected}"\nrequests = "{self.requests}"\n'
            f"[http]\nport = {self.port}\n{self.settings}\n"
        )

    @property
    def jobs(self) -> str:
        """Topic."""
        return f"{self.name}.jobs"

    @property
    def requests(self) -> str:
        """Topic."""
        return f"{self.name}.requests"

    @property
    def recommendations(self) -> str:
        """Topic."""
        return f"{self.name}.recommendations"

    @property
    def rejected(self) -> str:
        """Topic."""
        return f"{self.name}.rejected"

    def spawn(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start it; it dies with the thread that calls this."""
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*tied(), sys.executable, "-m", "tunerd", "run"),
                    *("--settings", str(self.file), *arguments),
                ],
                stdout=log,
                stderr=log,
            )
        return self.process

    def start(self, *arguments: str, ready_s: float = 60.0) -> None:
        """Start it and wait until it is ready."""
        process = self.spawn(*arguments)
        deadline = time.monotonic() + ready_s
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"the daemon ended; see {self.folder / 'daemon.log'}")
            with suppress(URLError, OSError), urlopen(self.url("/readyz"), timeout=2):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the daemon is not ready; see {self.folder / 'daemon.log'}")

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def url(self, path: str) -> str:
        """Where its HTTP answers."""
        return f"http://127.0.0.1:{self.port}{path}"

    def metrics(self) -> dict[str, float]:
        """Everything on /metrics; names include the labels."""
        with urlopen(self.url("/metrics"), timeout=5) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def metric(self, name: str, default: float = 0.0) -> float:
        """One figure, or the default while it is not there."""
        with suppress(URLError, OSError):
            return self.metrics().get(name, default)
        return default

    def wait_for(self, name: str, least: float, timeout_s: float) -> None:
        """Wait until a figure has reached a value; how far it is is told meanwhile."""
        started = time.monotonic()
        with progress() as show:
            while (value := self.metric(name)) < least:
                if time.monotonic() > started + timeout_s:
                    raise RuntimeError(f"{name} is {value}, not {least}, in {timeout_s} s")
                show(name, value, least)
                time.sleep(0.2)

    @property
    def tuner_pid(self) -> int | None:
        """Process id of the tuner process."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = children.read_text().split() if children.exists() else []
        return int(found[0]) if found else None


@contextmanager
def running(daemon: Daemon) -> Iterator[Daemon]:
    """A daemon that is started, and stopped at the end."""
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def make_topic(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    """Create a topic before the daemon does, with as many copies as the brokers give by default; of
    settings, ``_`` stands for ``.``."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, -1, config=settings)])[name].result(30)


def observation(
    space: SearchSpace, config: Mapping[str, Value], outcome: SimulatedRun, sequence: int
) -> Observation:
    """A simulated job as the daemon would have heard of it, one a minute."""
    return Observation(
        study=space.study.name,
        source="benchmark",
        event_id=str(sequence),
        job_id=str(sequence),
        status=outcome.status,
        finished_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=sequence),
        context=space.context,
        config=dict(config),
        metrics=outcome.metrics,
        sequence=sequence,
    )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def peak_mib(pid: int) -> float:
    """The most resident memory that a process ever had, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not pass (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
