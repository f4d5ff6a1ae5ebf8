"""Several instances on one PostgreSQL and one Kafka, of which some are killed, paused and stopped.

Events come in all the while, with duplicates and rubbish. What must hold in the end is judged by
another client of Kafka and by plain SQL: every event in history once, with dense sequences, and
each rejected record once. The revisions of a key strictly increase in offset order, and its last
record is the store's. Then single losses are measured: how long until jobs of every study that are
sent at that moment are learned by those who are left.
"""

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.feed import PARTITIONS, STUDY, TEXT, Feeder, Traffic, traffic
from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, make_topic
from benchmarks.witness import Sql, mismatches, order_of, read_topic, settle
from tests.servers.postgres import Databases, PostgresServer

__all__ = ["STUDIES", "Fleet", "Instance", "disturb", "judge", "settle"]

STUDIES = tuple(f"chaos-{number}" for number in range(6))
KINDS = ("kill", "pause", "stop", "tuner")
SHARES = (0.4, 0.3, 0.15, 0.15)
DOWN_S = (0.2, 6.0)
"""How long an instance is away before it starts again."""
PAUSED_S = (1.0, 20.0)
"""How long one is paused: some wake with their leases, some without."""
LIMIT_S = 15.0
"""How long jobs may wait that come when an instance is lost."""


# -- instances ------------------------------------------------------------------------------


@dataclass
class Instance:
    """One of several; whatever happens to it here happens to its tuner process too."""

    daemon: Daemon
    paused: list[int] = field(default_factory=list)
    """Process ids."""

    @property
    def is_up(self) -> bool:
        """Whether it runs, and is not paused."""
        process = self.daemon.process
        return process is not None and process.poll() is None and not self.paused

    def begin(self) -> None:
        """Start it and wait for nothing."""
        self.daemon.spawn()

    def kill(self) -> None:
        """SIGKILL of both processes, as when the machine goes."""
        process = self.daemon.process
        assert process is not None
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        self.paused = []

    def kill_tuner(self) -> None:
        """SIGKILL of the tuner process alone, if there is one."""
        for pid in self._processes()[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP, as when a virtual machine is moved."""
        self.paused = self._processes()
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.paused = []

    def _signal(self, number: int) -> None:
        for pid in self.paused:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> list[int]:
        process = self.daemon.process
        assert process is not None
        tuner = self.daemon.tuner_pid
        return [process.pid] if tuner is None else [process.pid, tuner]


@dataclass
class Fleet:
    """Instances of one installation."""

    instances: Sequence[Instance]
    studies: Sequence[str]
    sql: Sql
    bootstrap: str

    @classmethod
    def make(
        cls,
        folder: Path,
        count: int,
        bootstrap: str,
        store_url: str,
        name: str,
        studies: Sequence[str] = STUDIES,
    ) -> "Fleet":
        """Settings for so many instances; none is started."""
        texts = {study: TEXT.replace(f'"{STUDY}"', f'"{study}"') for study in studies}
        made = [
            Instance(Daemon(folder / f"instance-{number}", texts, bootstrap, name, store_url))
            for number in range(1, count + 1)
        ]
        make_topic(bootstrap, made[0].daemon.jobs, PARTITIONS)
        return cls(made, studies, Sql(store_url), bootstrap)

    def holders(self) -> dict[str, str]:
        """Who holds each study, as far as somebody does."""
        query = "SELECT name, owner FROM leases WHERE owner IS NOT NULL AND expires_at > now()"
        rows = self.sql.rows(f"{query} AND name LIKE 'study/%'")
        return {str(name).removeprefix("study/"): str(owner) for name, owner in rows}

    def wait_until_spread(self, owners: int, timeout_s: float = 90.0) -> bool:
        """Wait until every study is held, by so many instances."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with suppress(Exception):
                held = self.holders()
                if len(held) == len(self.studies) and len(set(held.values())) == owners:
                    return True
            time.sleep(0.1)
        return False

    def end(self) -> None:
        """Stop all that still runs."""
        for instance in self.instances:
            if instance.paused:
                instance.wake()
        for instance in self.instances:
            process = instance.daemon.process
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for instance in self.instances:
            instance.daemon.stop()
        self.sql.close()


# -- disturbing -----------------------------------------------------------------------------


def disturb(
    fleet: Fleet, rng: np.random.Generator, count: int, every_s: tuple[float, float]
) -> tuple[Counter[str], int]:
    """Disturb instances so many times, each for a while. Returns how often what was done, and how
    often an instance had ended by itself."""
    done, alone = Counter[str](), 0
    back: list[tuple[float, Instance, str]] = []

    def restore(until: float) -> None:
        nonlocal alone
        while True:
            due = min(back, key=lambda item: item[0], default=None)
            if due is None or due[0] > until:
                break
            time.sleep(max(0.0, due[0] - time.monotonic()))
            back.remove(due)
            _, instance, kind = due
            if kind == "pause":
                instance.wake()
            else:
                instance.begin()
        time.sleep(max(0.0, until - time.monotonic()))
        away = {id(instance) for _, instance, _ in back}
        for instance in fleet.instances:
            process = instance.daemon.process
            if id(instance) not in away and (process is None or process.poll() is not None):
                alone += 1
                print(f"  ended by itself: {instance.daemon.folder}", file=sys.stderr)
                instance.begin()

    while done.total() < count:
        restore(time.monotonic() + float(rng.uniform(*every_s)))
        kind = str(rng.choice(KINDS, p=SHARES))
        number = int(rng.integers(len(fleet.instances)))
        wait_s = float(rng.uniform(*(PAUSED_S if kind == "pause" else DOWN_S)))
        instance = fleet.instances[number]
        others = [other for other in fleet.instances if other is not instance and other.is_up]
        if not instance.is_up or (kind != "tuner" and not others):
            continue  # somebody must be left
        done[kind] += 1
        if kind == "tuner":
            instance.kill_tuner()
            continue
        if kind == "pause":
            instance.pause()
        elif kind == "kill":
            instance.kill()
        else:
            instance.daemon.stop()
        back.append((time.monotonic() + wait_s, instance, kind))
    restore(max((at for at, _, _ in back), default=time.monotonic()))
    return done, alone


# -- judging --------------------------------------------------------------------------------


def judge(fleet: Fleet, sent: Traffic) -> dict[str, int]:
    """Count what is wrong, by what it is; all are 0 where everything holds."""
    sql, daemon = fleet.sql, fleet.instances[0].daemon
    query = "SELECT event_id, study, sequence FROM observations ORDER BY study, sequence"
    rows = [(str(event), str(study), int(str(number))) for event, study, number in sql.rows(query)]
    times = Counter(event for event, _, _ in rows)
    last = Counter[str]()
    gaps = 0
    for _, study, sequence in rows:
        last[study] += 1
        gaps += sequence != last[study]
    learned = sql.number("SELECT sum(learned_sequence) FROM studies")
    lines = read_topic(fleet.bootstrap, daemon.recommendations, "read_committed")
    order = order_of(lines)
    refused = Counter(
        line.value for line in read_topic(fleet.bootstrap, daemon.rejected, "read_committed")
    )
    return {
        "events lost": len(sent.events - times.keys()),
        "events doubled": sum(n - 1 for n in times.values()) + len(times.keys() - sent.events),
        "sequences out of place": gaps,
        "observations not learned": len(rows) - learned,
        "revisions backwards": order.backwards,
        "revisions repeated": order.repeated,
        "revisions changed": order.changed,
        "keys whose last record is not the store's": mismatches(lines, sql),
        "rejected records missing": abs(sent.broken - len(refused)),
        "rejected records twice": refused.total() - len(refused),
        "keys on the topic missing": int(not lines),
    }


# -- single losses --------------------------------------------------------------------------


def measure_takeover(fleet: Fleet, bars: Bars, rng: np.random.Generator, times: int) -> None:
    """How long jobs wait that come at the moment when an instance is lost."""
    for kind in ("kill", "stop", "pause"):
        waited, done = list[float](), list[float]()
        for turn in range(times):
            if not fleet.wait_until_spread(len(fleet.instances)):
                bars.hold(f"takeover, {kind}: studies spread before", 0, ok=False, bar="all")
                break
            instance = fleet.instances[turn % len(fleet.instances)]
            leased, learned = _takeover(fleet, instance, kind, rng)
            waited.append(leased)
            done.append(learned)
            if kind == "pause":
                instance.wake()
            else:
                instance.begin()
        if waited:
            bars.say(f"takeover, {kind}: studies held again, p50", float(np.median(waited)), "s")
            bars.hold(
                f"takeover, {kind}: studies held again, longest of {len(waited)}",
                *(max(waited), max(waited) <= LIMIT_S, f"{LIMIT_S:g} s", "s"),
            )
            bars.say(f"takeover, {kind}: new jobs learned, p50", float(np.median(done)), "s")
            bars.say(f"takeover, {kind}: new jobs learned, longest", max(done), "s")


def _takeover(
    fleet: Fleet, instance: Instance, kind: str, rng: np.random.Generator
) -> tuple[float, float]:
    """Lose an instance, and send jobs to every partition for every study. Seconds until the others
    hold all studies, and until they have learned these jobs."""
    count = len(STUDIES) * PARTITIONS
    tag = secrets.token_hex(4)
    records = [
        raw.replace(b'"event_id": "e', f'"event_id": "{tag}-'.encode())
        for raw in traffic(count, rng, STUDIES).records
    ]
    before = fleet.sql.number("SELECT sum(last_sequence) FROM studies")
    lost = {owner for owner in fleet.holders().values() if _is_of(owner, instance, fleet)}
    feeder = Feeder(fleet.bootstrap, instance.daemon.jobs, records, 0.0)
    begin = time.monotonic()
    if kind == "pause":
        instance.pause()
    elif kind == "kill":
        instance.kill()
    else:
        instance.daemon.stop()
    feeder.start()
    feeder.finish()
    leased = None
    while time.monotonic() - begin < 4 * LIMIT_S:
        held = fleet.holders()
        if leased is None and len(held) == len(STUDIES) and not lost & set(held.values()):
            leased = time.monotonic() - begin
        learned = fleet.sql.number("SELECT sum(learned_sequence) FROM studies") >= before + count
        if leased is not None and learned:
            break
        time.sleep(0.05)
    end = time.monotonic() - begin
    return end if leased is None else leased, end


def _is_of(owner: str, instance: Instance, fleet: Fleet) -> bool:
    process = instance.daemon.process
    assert process is not None
    return (owner, process.pid) in fleet.sql.rows("SELECT owner, pid FROM instances")


# -- the run --------------------------------------------------------------------------------


def measure(options: argparse.Namespace, bars: Bars, bootstrap: str, store_url: str) -> None:
    """All of it, on one store."""
    rng = np.random.default_rng(options.seed)
    sent = traffic(options.events, rng, STUDIES)
    name = f"chaos-{time.time_ns()}"
    fleet = Fleet.make(Path(options.folder), options.instances, bootstrap, store_url, name)
    every_s = (0.5, 2 * options.every - 0.5)
    feeder = Feeder(
        bootstrap,
        fleet.instances[0].daemon.jobs,
        sent.records,
        options.every * options.disturbances,
    )
    begin = time.monotonic()
    for instance in fleet.instances:
        instance.begin()
    try:
        spread = fleet.wait_until_spread(len(fleet.instances))
        bars.hold("studies held by every instance at the start", int(spread), spread, "1")
        feeder.start()
        done, alone = disturb(fleet, rng, options.disturbances, every_s)
        feeder.finish()
        bars.say("seconds of disturbing", round(time.monotonic() - begin))
        settled = settle(fleet.sql, len(sent.events), options.settle)
        bars.hold("settled", int(settled), settled, "1")
        bars.say("disturbances", ", ".join(f"{n} {kind}" for kind, n in sorted(done.items())))
        bars.say("records sent", len(sent.records))
        bars.say("of them events, once", len(sent.events))
        bars.say("epochs of study leases", fleet.sql.number("SELECT sum(epoch) FROM leases"))
        bars.hold("instances that ended by themselves", alone, not alone, "0")
        for what, count in judge(fleet, sent).items():
            bars.hold(what, count, not count, "0")
        if options.takeovers:
            measure_takeover(fleet, bars, rng, options.takeovers)
    finally:
        fleet.end()


@contextmanager
def _postgres() -> Iterator[str]:
    server = PostgresServer(durable=True)
    try:
        server.start()
        yield Databases(server.url).create()
    finally:
        server.remove()


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, help="random by default, and printed")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--disturbances", type=int, default=300)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two, on average")
    parser.add_argument("--settle", type=float, default=600.0, help="seconds to wait in the end")
    parser.add_argument("--takeovers", type=int, default=20, help="single losses of each kind")
    parser.add_argument("--folder", type=Path, help="for settings and logs, to be kept")
    options = parser.parse_args()
    if options.quick:
        options.events, options.disturbances, options.takeovers = 600, 3, 0
    if options.seed is None:
        options.seed = secrets.randbelow(2**31)
    bars = Bars("chaos")
    print(f"chaos, seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="tunerd-chaos-") as folder,
        kafka_broker(options) as bootstrap,
        _postgres() as store_url,
    ):
        options.folder = options.folder or folder
        measure(options, bars, bootstrap, store_url)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
