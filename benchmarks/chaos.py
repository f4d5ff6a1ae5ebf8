"""Three instances on one PostgreSQL and three Kafka brokers, while all of these are disturbed.

Instances are killed, paused and stopped, brokers are killed, and the database crashes. Events come
in all the while, with duplicates and rubbish. What must hold in the end is judged by another client
of Kafka and by plain SQL: every event in history once, with dense sequences, and each rejected
record once. The revisions of a key strictly increase in offset order, and its last record is the
store's. What is recommended is what one process recommends that takes the same steps undisturbed.
All the while new readers look whether schedulers have something to follow.

Then single losses are measured: how long until jobs of every study that are sent at that moment are
learned by those who are left.
"""

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.feed import PARTITIONS, STUDY, TEXT, Feeder, Traffic, traffic
from benchmarks.kit import Bars, Daemon, arguments, make_topic
from benchmarks.undisturbed import differing
from benchmarks.witness import FreshReaders, Sql, mismatches, order_of, read_topic, settle
from tests.servers.kafka import KafkaServer, kafka_cluster
from tests.servers.postgres import Databases, PostgresServer

__all__ = ["STUDIES", "Disturber", "Fleet", "Instance", "judge", "settle"]

STUDIES = tuple(f"chaos-{number}" for number in range(6))
KINDS = ("kill", "pause", "stop", "tuner")
SHARES = (0.4, 0.3, 0.15, 0.15)
DOWN_S = (0.2, 6.0)
"""How long an instance is away before it starts again."""
PAUSED_S = (1.0, 20.0)
"""How long one is paused: some wake with their leases, some without."""
BROKERS = 3
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

    def could_not_start(self) -> bool:
        """Whether it ended because the store was away as it started, and said so."""
        log = self.daemon.folder / "daemon.log"
        last = log.read_bytes()[-5000:].decode(errors="replace").strip().rpartition("\n")[2]
        return "cannot start" in last and self.daemon.store_url.rpartition("@")[2] in last

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
        text: str = TEXT,
    ) -> "Fleet":
        """Settings for so many instances; none is started."""
        texts = {study: text.replace(f'"{STUDY}"', f'"{study}"') for study in studies}
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


@dataclass
class Disturber:
    """Takes instances, brokers and the database away, each for a while."""

    fleet: Fleet
    rng: np.random.Generator
    brokers: Sequence[KafkaServer] = ()
    database: PostgresServer | None = None
    done: Counter[str] = field(default_factory=Counter)
    """How often what was done."""
    alone: int = 0
    """How often an instance had ended by itself."""
    refused: int = 0
    """How often one could not start, because the database was away. It was started again, as a
    supervisor does."""
    _back: list[tuple[float, object, Callable[[], None]]] = field(default_factory=list)
    """When, what and how it comes back."""

    def run(self, plan: Sequence[str], every_s: tuple[float, float]) -> None:
        """Do what is planned, in its order and at random moments; in the end all are back."""
        left = list(plan)
        while left:
            self._wait(time.monotonic() + float(self.rng.uniform(*every_s)))
            if self._disturb(left[0]):
                self.done[left.pop(0)] += 1
        self._wait(max((at for at, _, _ in self._back), default=time.monotonic()))
        for broker in self.brokers:
            broker.wait()

    def _disturb(self, kind: str) -> bool:
        """Whether that could be done now."""
        if kind == "database":
            return self._lose_database()
        if kind == "broker":
            return self._lose_broker()
        instance = self.fleet.instances[int(self.rng.integers(len(self.fleet.instances)))]
        others = [other for other in self.fleet.instances if other is not instance and other.is_up]
        if not instance.is_up or (kind != "tuner" and not others):
            return False  # somebody must be left
        if kind == "tuner":
            instance.kill_tuner()
        elif kind == "pause":
            instance.pause()
            self._later(PAUSED_S, instance, instance.wake)
        else:
            instance.kill() if kind == "kill" else instance.daemon.stop()
            self._later(DOWN_S, instance, instance.begin)
        return True

    def _lose_broker(self) -> bool:
        if not all(broker.is_up for broker in self.brokers):
            return False  # with two of three gone, nothing is acknowledged
        broker = self.brokers[int(self.rng.integers(len(self.brokers)))]
        broker.kill()
        self._later(DOWN_S, broker, broker.spawn)
        return True

    def _lose_database(self) -> bool:
        assert self.database is not None
        if any(what is self.database for _, what, _ in self._back):
            return False
        self.database.kill()
        self._later(DOWN_S, self.database, self.database.start)
        return True

    def _later(self, away_s: tuple[float, float], what: object, back: Callable[[], None]) -> None:
        self._back.append((time.monotonic() + float(self.rng.uniform(*away_s)), what, back))

    def _wait(self, until: float) -> None:
        """Bring back what is due by then."""
        while due := [item for item in self._back if item[0] <= until]:
            first = min(due, key=lambda item: item[0])
            time.sleep(max(0.0, first[0] - time.monotonic()))
            self._back.remove(first)
            first[2]()
        time.sleep(max(0.0, until - time.monotonic()))
        away = {id(what) for _, what, _ in self._back}
        for instance in self.fleet.instances:
            process = instance.daemon.process
            if id(instance) not in away and (process is None or process.poll() is not None):
                if instance.could_not_start():
                    self.refused += 1
                else:
                    self.alone += 1
                    print(f"  ended by itself: {instance.daemon.folder}", file=sys.stderr)
                instance.begin()


def planned(options: argparse.Namespace, rng: np.random.Generator) -> list[str]:
    """What is to be done, in random order."""
    plan = [str(kind) for kind in rng.choice(KINDS, p=SHARES, size=options.disturbances)]
    if not options.bootstrap:
        plan += ["broker"] * options.broker_kills
    plan += ["database"] * options.database_crashes
    rng.shuffle(plan)
    return plan


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
    count = len(fleet.studies) * PARTITIONS
    tag = secrets.token_hex(4)
    records = [
        raw.replace(b'"event_id": "e', f'"event_id": "{tag}-'.encode())
        for raw in traffic(count, rng, fleet.studies).records
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
        if leased is None and len(held) == len(fleet.studies) and not lost & set(held.values()):
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


@dataclass
class Servers:
    """What the instances stand on."""

    bootstrap: str
    brokers: Sequence[KafkaServer]
    """Empty where they are somebody else's."""
    database: PostgresServer
    store_url: str


def measure(options: argparse.Namespace, bars: Bars, servers: Servers) -> None:
    """All of it, on one store."""
    rng = np.random.default_rng(options.seed)
    studies = STUDIES[: options.studies]
    sent, plan = traffic(options.events, rng, studies), planned(options, rng)
    name = f"chaos-{time.time_ns()}"
    bootstrap, folder = servers.bootstrap, Path(options.folder)
    fleet = Fleet.make(folder, options.instances, bootstrap, servers.store_url, name, studies)
    daemon = fleet.instances[0].daemon
    feeder = Feeder(bootstrap, daemon.jobs, sent.records, options.every * len(plan))
    readers = FreshReaders(bootstrap, daemon.recommendations)
    disturber = Disturber(fleet, rng, servers.brokers, servers.database)
    begin = time.monotonic()
    for instance in fleet.instances:
        instance.begin()
    readers.start()
    try:
        spread = fleet.wait_until_spread(len(fleet.instances))
        bars.hold("studies held by every instance at the start", int(spread), spread, "1")
        feeder.start()
        disturber.run(plan, (0.5, 2 * options.every - 0.5))
        feeder.finish()
        bars.say("seconds of disturbing", round(time.monotonic() - begin))
        settled = settle(fleet.sql, len(sent.events), options.settle)
        bars.hold("settled", int(settled), settled, "1")
        bars.say("seconds until settled", round(time.monotonic() - begin))
        done = sorted(disturber.done.items())
        bars.say("disturbances", ", ".join(f"{count} {kind}" for kind, count in done))
        bars.say("records sent", len(sent.records))
        bars.say("of them events, once", len(sent.events))
        bars.say("epochs of study leases", fleet.sql.number("SELECT sum(epoch) FROM leases"))
        bars.say("starts that found no database", disturber.refused)
        alone = disturber.alone
        bars.hold("instances that ended by themselves", alone, not alone, "0")
        for what, count in judge(fleet, sent).items():
            bars.hold(what, count, not count, "0")
        if options.takeovers:
            measure_takeover(fleet, bars, rng, options.takeovers)
    finally:
        readers.finish()
        fleet.end()
    judge_readers(bars, readers)
    judge_steps(bars, servers.store_url, studies, folder)


def judge_readers(bars: Bars, readers: FreshReaders) -> None:
    """Whether schedulers had something to follow at every moment."""
    bars.say("new readers from the start of the topic", readers.reads)
    bars.say("contexts in which they found something to follow", len(readers.keys))
    bars.say("slowest of them", readers.longest_s, "s")
    for what, count in (
        ("readers without an answer", readers.unanswered),
        ("contexts in which a later one had nothing", len(readers.without)),
        ("readers for nothing", int(not readers.keys)),
    ):
        bars.hold(what, count, not count, "0")


def judge_steps(bars: Bars, store_url: str, studies: Sequence[str], folder: Path) -> None:
    """Whether what is recommended is what comes of the same steps undisturbed."""
    begin = time.monotonic()
    again = differing(store_url, studies, folder, os.cpu_count() or 1)
    done = [result for result in again.values() if result is not None]
    for study, result in again.items():
        for key, fields in {} if result is None else result.differing.items():
            print(f"  {study}: undisturbed {key} has other {', '.join(fields)}", file=sys.stderr)
    bars.say("steps taken once more", sum(result.steps for result in done))
    bars.say("seconds of that", round(time.monotonic() - begin))
    bars.say("recommendations compared", sum(result.keys for result in done))
    other = sum(len(result.differing) for result in done) + len(again) - len(done)
    bars.hold("recommendations that are others undisturbed", other, not other, "0")


@contextmanager
def _servers(options: argparse.Namespace, folder: Path) -> Iterator[Servers]:
    with ExitStack() as stopped:
        brokers: list[KafkaServer] = []
        if not options.bootstrap:
            brokers = kafka_cluster(folder / "kafka", BROKERS)
        for broker in brokers:
            stopped.callback(broker.kill)
        bootstrap = options.bootstrap or ",".join(broker.bootstrap for broker in brokers)
        database = PostgresServer(durable=True)
        stopped.callback(database.remove)
        database.start()
        yield Servers(bootstrap, brokers, database, Databases(database.url).create())


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, help="random by default, and printed")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--studies", type=int, default=len(STUDIES), help="that many at most")
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--disturbances", type=int, default=300, help="of instances")
    parser.add_argument("--broker-kills", type=int, default=10)
    parser.add_argument("--database-crashes", type=int, default=10)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two, on average")
    parser.add_argument("--settle", type=float, default=600.0, help="seconds to wait in the end")
    parser.add_argument("--takeovers", type=int, default=20, help="single losses of each kind")
    parser.add_argument("--folder", type=Path, help="for settings and logs, to be kept")
    options = parser.parse_args()
    if options.quick:
        options.events, options.disturbances, options.takeovers = 300, 6, 0
        options.studies = 3
        options.broker_kills = options.database_crashes = 1
    if options.seed is None:
        options.seed = secrets.randbelow(2**31)
    bars = Bars("chaos")
    print(f"chaos, seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="tunerd-chaos-") as folder,
        _servers(options, Path(folder)) as servers,
    ):
        options.folder = options.folder or folder
        measure(options, bars, servers)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
