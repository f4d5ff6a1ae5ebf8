"""How fast finished jobs come into history through a real Kafka, and what memory that takes.

Beside it, on the same topic and in turns, a loop that only polls, ``json.loads``es and inserts raw
rows (:mod:`benchmarks.raw_loop`): what no ingest can do without. Both are processes of their own
and are watched from outside, in their SQLite files, from the first commit to the last; starting
and joining the group do not count.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
from confluent_kafka import Producer

from benchmarks.kit import (
    Bars,
    Daemon,
    arguments,
    kafka_broker,
    make_topic,
    peak_mib,
    resident_mib,
)
from tests.broken_events import good_event
from tests.servers import tied
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study

STUDY = "llm-pretrain"
LEAST_SHARE = 0.5
"""Of the raw loop's events per second."""
MOST_MIB = 300.0
PARTITIONS = 6
CONTEXTS = 20
FLOOD_BYTES = 256 * 1024
DEADLINE_S = 300.0


def completions(count: int) -> Iterator[bytes]:
    """Completion events of about 470 bytes, in several contexts."""
    study, rng = parse_study(shipped_study(STUDY)), np.random.default_rng(7)
    choices = []
    for i in range(CONTEXTS):
        context = {
            "gpu": "H100",
            "n_gpus": 2 ** (5 + i % 5),
            "model_params": (7e9, 13e9, 70e9)[i % 3],
            "global_batch": 2 ** (8 + i % 4),
            "seq_len": 4096,
        }
        space = SearchSpace(study, study.clean_context(context))
        configs = [space.decode(row) for row in space.sample(50, rng)]
        choices += [(context, config) for config in configs]
    now = datetime.now(UTC) - timedelta(hours=1)
    for i in range(count):
        context, config = choices[int(rng.integers(len(choices)))]
        event = {
            "schema": "tunerd.job/1",
            "source": "slurm/cluster-a",
            "event_id": f"ingest-{i}",
            "study": STUDY,
            "job_id": str(4_000_000 + i),
            "status": "succeeded",
            "finished_at": now.isoformat(timespec="seconds"),
            "measured_s": 840,
            "gpus": context["n_gpus"],
            "context": context,
            "config": config,
            "metrics": {"tokens_per_second_per_gpu": round(float(rng.lognormal(6, 0.3)), 1)},
        }
        yield json.dumps(event, separators=(",", ":")).encode()


def flood(count: int) -> Iterator[bytes]:
    """Events of 256 KiB that are rejected whole: the largest that are kept to the last byte."""
    for i in range(count):
        start = json.dumps(good_event(f"flood-{i}", datetime.now(UTC), status="odd")).encode()
        yield start + b" " * (FLOOD_BYTES - len(start))


def send(bootstrap: str, topic: str, values: Iterator[bytes]) -> float:
    """Send everything, spread over the partitions. Returns bytes per event."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 65_536}
    )
    count = size = 0
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=count // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        count, size = count + 1, size + len(value)
    if producer.flush(60):
        raise RuntimeError("Kafka did not take all events")
    return size / count


def watch(file: Path, query: str, count: int, alive: Callable[[], None]) -> float:
    """Events per second from the first commit that is seen to the one that makes ``count``."""
    first: tuple[int, float] | None = None
    found = 0
    deadline = time.monotonic() + DEADLINE_S
    while not file.exists():
        alive()
        time.sleep(0.01)
    with closing(sqlite3.connect(file, isolation_level=None)) as store:
        while True:
            with suppress(sqlite3.OperationalError):  # its table is not made yet
                found = int(store.execute(query).fetchone()[0] or 0)
            now = time.monotonic()
            if found and first is None:
                first = (found, now)
            if first is not None and found >= count:
                return (found - first[0]) / (now - first[1])
            if now > deadline:
                raise RuntimeError(f"{found} of {count} after {DEADLINE_S:g} s")
            alive()
            time.sleep(0.01)


def raw_loop(bootstrap: str, topic: str, count: int) -> float:
    """Events per second of the raw loop."""
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        file = Path(folder) / "raw.sqlite"
        program = "from benchmarks.raw_loop import main; main()"
        command = [sys.executable, "-c", program, bootstrap, topic, str(file)]
        process = subprocess.Popen(tied() + command)

        def alive() -> None:
            if process.poll() is not None:
                raise RuntimeError(f"the raw loop ended with {process.returncode}")

        try:
            return watch(file, "SELECT max(id) FROM raw", count, alive)
        finally:
            process.kill()
            process.wait()


@contextmanager
def fresh(bootstrap: str, name: str, *arguments: str) -> Iterator[Daemon]:
    """A daemon with an empty store, which reads the topic from its beginning."""
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        daemon = Daemon(Path(folder), {STUDY: shipped_study(STUDY)}, bootstrap, name)
        daemon.spawn(*arguments)
        try:
            yield daemon
        finally:
            daemon.stop()


def tunerd(daemon: Daemon, count: int) -> float:
    """Events per second of a daemon that was just started."""
    process = daemon.process
    assert process is not None

    def alive() -> None:
        if process.poll() is not None:
            raise RuntimeError(f"the daemon ended; see {daemon.folder / 'daemon.log'}")

    store = daemon.folder / "data" / "tunerd.sqlite"
    return watch(store, "SELECT max(last_sequence) FROM studies", count, alive)


def measure(options: argparse.Namespace, bars: Bars, bootstrap: str) -> None:
    """Throughput beside the raw loop, then with tuning beside."""
    name, count = f"ingest-{time.time_ns()}", options.events
    make_topic(bootstrap, f"{name}.jobs", PARTITIONS)
    bars.say("bytes per event", send(bootstrap, f"{name}.jobs", completions(count)))
    raw: list[float] = []
    ours: list[float] = []
    for turn in range(options.turns):
        raw.append(raw_loop(bootstrap, f"{name}.jobs", count))
        with fresh(bootstrap, name, "--stages", "ingest") as daemon:
            ours.append(tunerd(daemon, count))
            memory(bars, f"{count} events", daemon)
        print(f"  turn {turn + 1}: raw loop {raw[-1]:,.0f}/s, tunerd {ours[-1]:,.0f}/s", flush=True)
    bars.say("raw loop, median", median(raw), "events/s")
    bars.say("tunerd, median", median(ours), "events/s")
    share = median(ours) / median(raw)
    bars.hold("tunerd against the raw loop", share, share >= LEAST_SHARE, f"at least {LEAST_SHARE}")
    with fresh(bootstrap, name) as daemon:
        bars.say("tunerd, tuning beside", tunerd(daemon, count), "events/s")
        memory(bars, f"{count} events, tuning beside", daemon)


def drown(options: argparse.Namespace, bars: Bars, bootstrap: str) -> None:
    """Memory while nothing but large rejected events comes in."""
    name, count = f"flood-{time.time_ns()}", options.flood
    make_topic(bootstrap, f"{name}.jobs", PARTITIONS)
    send(bootstrap, f"{name}.jobs", flood(count))
    with fresh(bootstrap, name, "--stages", "ingest,publish") as daemon:
        daemon.wait_for('tunerd_published_messages_total{kind="rejected"}', count, DEADLINE_S)
        memory(bars, f"{count} rejected events of 256 KiB", daemon)


def memory(bars: Bars, what: str, daemon: Daemon) -> None:
    """Of the daemon's parent process: the most it ever had, and what it has a second later."""
    assert daemon.process is not None
    time.sleep(1.0)
    peak = peak_mib(daemon.process.pid)
    bars.hold(f"{what}: most memory", peak, peak < MOST_MIB, f"under {MOST_MIB:g} MiB", "MiB")
    bars.say(f"{what}: memory afterwards", resident_mib(daemon.process.pid), "MiB")


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--flood", type=int, default=1_000)
    options = parser.parse_args()
    if options.quick:
        options.events, options.turns, options.flood = 20_000, 1, 100
    bars = Bars("ingest")
    with kafka_broker(options) as bootstrap:
        measure(options, bars, bootstrap)
        drown(options, bars, bootstrap)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
