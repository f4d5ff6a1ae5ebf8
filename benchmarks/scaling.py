"""What one, two and three instances carry together, on one Kafka and one PostgreSQL.

Each instance has one core, as in a container with a limit of one. Many studies get jobs as fast as
the broker takes them. Told are how many of these a second are in history and how many are learned,
with all searches and rebuilds that they bring. Then a job comes twice a second, each in a context
that nobody has seen, and the time is taken until its recommendation is on the topic.

With ``--one-study`` there is one study instead, and jobs in some hundreds of contexts come at once.
Told is how many of these are searched a second, once all jobs are learned.

Broker and database run on the same machine, and take what they need from the same cores. So two
instances are held to their bar only where the machine has cores for them and as many again.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer

from benchmarks.chaos import Fleet, Instance
from benchmarks.feed import PARTITIONS, TEXT, traffic
from benchmarks.kit import Bars, arguments, kafka_broker, percentile
from tests.servers.postgres import Databases, PostgresServer

COUNTS = (1, 2, 3)
TWICE = 1.7
"""Times as many jobs learned a second with two instances as with one."""
RATE = 2.0
"""Jobs in new contexts a second."""
LIMIT_S = 900.0
WIDE = TEXT.partition("[parameters]")[0] + "[parameters]\n"
WIDE += "".join(f'x{i} = {{ type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }}\n' for i in range(8))
"""A study with a space that is searched, and not listed; everything else is as by default."""
JOBS_EACH = 3


@dataclass(frozen=True)
class Carried:
    """What so many instances did."""

    kept: float
    """Events a second into history."""
    learned: float
    """… and learned."""
    seconds: list[float]
    """From event to recommendation, in order."""
    missing: int
    """Jobs whose recommendation did not come."""


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--studies", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=300, help="of each study")
    parser.add_argument("--probes", type=int, default=120, help="jobs in new contexts")
    parser.add_argument("--one-study", action="store_true", help="searched by all instances")
    parser.add_argument("--contexts", type=int, default=150, help="of the one study")
    options = parser.parse_args()
    if options.quick:
        options.studies, options.jobs, options.probes, options.contexts = 6, 60, 12, 40
    bars, cores = Bars("scaling"), sorted(os.sched_getaffinity(0))
    bars.say("cores of this machine", len(cores))
    if options.one_study:
        return share(options, bars, cores)
    carried = {}
    with kafka_broker(options) as bootstrap, database() as databases:
        for count in COUNTS:
            carried[count] = carry(options, bootstrap, databases.create(), count, cores)
            tell(bars, count, carried[count])
    for count in COUNTS[1:]:
        times = carried[count].learned / carried[1].learned
        if count == 2 and len(cores) >= 2 * count:
            name = "two instances beside one: jobs learned"
            bars.hold(name, times, times >= TWICE, f"at least {TWICE}", "x")
        else:
            bars.say(f"{count} instances beside one: jobs learned", times, "x")
    return bars.end(options)


@contextmanager
def database() -> Iterator[Databases]:
    """A PostgreSQL of its own."""
    with ExitStack() as stopped:
        server = PostgresServer(durable=True)
        stopped.callback(server.remove)
        server.start()
        yield Databases(server.url)


def carry(
    options: argparse.Namespace, bootstrap: str, store_url: str, count: int, cores: Sequence[int]
) -> Carried:
    """So many instances with a new store, from their start to their end."""
    studies = [f"scaling-{number}" for number in range(options.studies)]
    sent = traffic(options.studies * options.jobs, np.random.default_rng(0), studies)
    name = f"scaling-{count}-{time.time_ns()}"
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        fleet = Fleet.make(Path(folder), count, bootstrap, store_url, name, studies)
        try:
            for number, instance in enumerate(fleet.instances):
                begin_on(instance, cores[number % len(cores)])
            if not fleet.wait_until_spread(count):
                raise RuntimeError("studies were not spread over all instances")
            topic = fleet.instances[0].daemon.jobs
            producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
            began = time.monotonic()
            for i, record in enumerate(sent.records):
                producer.produce(topic, record, partition=i % PARTITIONS)
                producer.poll(0)
            producer.flush()
            jobs = len(sent.events)
            kept = until(fleet, "SELECT count(*) FROM observations", jobs) - began
            learned = until(fleet, "SELECT sum(learned_sequence) FROM studies", jobs) - began
            time.sleep(3 if options.quick else 20)  # what the flood left to search again
            seconds, missing = probe(options, fleet, bootstrap, topic)
        finally:
            fleet.end()
    return Carried(jobs / kept, jobs / learned, seconds, missing)


def share(options: argparse.Namespace, bars: Bars, cores: Sequence[int]) -> int:
    """One study, searched by one, two and three instances."""
    with kafka_broker(options) as bootstrap, database() as databases:
        for count in COUNTS:
            name = f"{count} instance" + "s" * (count > 1)
            rate, elsewhere = search(options, bootstrap, databases.create(), count, cores)
            bars.say(f"{name}: contexts searched", rate, "/s")
            bars.say(f"{name}: share of them by others", elsewhere)
    return bars.end(options)


def search(
    options: argparse.Namespace, bootstrap: str, store_url: str, count: int, cores: Sequence[int]
) -> tuple[float, float]:
    """Contexts searched a second once all jobs are learned, and the share that others did."""
    rng = np.random.default_rng(0)
    events = [_wide_job(i, i % options.contexts, rng) for i in range(JOBS_EACH * options.contexts)]
    name = f"one-study-{count}-{time.time_ns()}"
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        fleet = Fleet.make(Path(folder), count, bootstrap, store_url, name, ["one"], WIDE)
        try:
            for number, instance in enumerate(fleet.instances):
                begin_on(instance, cores[number % len(cores)])
            there = "SELECT count(*) FROM instances WHERE tuner_at > now() - interval '4 seconds'"
            until(fleet, there, count)
            producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
            for i, event in enumerate(events):
                producer.produce(fleet.instances[0].daemon.jobs, event, partition=i % PARTITIONS)
            producer.flush()
            began = until(fleet, "SELECT sum(learned_sequence) FROM studies", len(events))
            before = fleet.sql.number("SELECT max(step) FROM tune_steps")
            last = "(SELECT detail::json->>'waiting' FROM tune_steps ORDER BY step DESC LIMIT 1)"
            rest = f"SELECT count(*) FROM tune_steps WHERE {last} = '0' AND step > {before}"  # noqa: S608
            took = until(fleet, rest, 1) - began
            searched = "SELECT sum(json_array_length(contexts::json)) FROM tune_steps"
            done = fleet.sql.number(f"{searched} WHERE step > {before}")
            elsewhere = fleet.sql.number("SELECT sum(searched) FROM instances")
        finally:
            fleet.end()
    return done / took, elsewhere / max(done, 1)


def _wide_job(number: int, context: int, rng: np.random.Generator) -> bytes:
    config = {f"x{i}": int(x) for i, x in enumerate(rng.integers(1, 9, 8))}
    n, speed = 2 ** (context % 7), 100 * np.exp(-0.02 * sum((x - 5) ** 2 for x in config.values()))
    event = {
        "schema": "tunerd.job/1",
        "source": "scaling",
        "event_id": f"e{number}",
        "job_id": f"j{number}",
        "study": "one",
        "status": "succeeded",
        "finished_at": datetime.now(UTC).isoformat(),
        "context": {"n": n, "gpu": f"gpu-{context // 7}"},
        "config": config,
        "metrics": {"speed": float(speed * n * np.exp(rng.normal(0, 0.03)))},
    }
    return json.dumps(event).encode()


def begin_on(instance: Instance, core: int) -> None:
    """Start an instance that has this core and no other."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        instance.begin()
    finally:
        os.sched_setaffinity(0, before)


def until(fleet: Fleet, query: str, least: int) -> float:
    """The moment at which a query gives so much."""
    deadline = time.monotonic() + LIMIT_S
    while fleet.sql.number(query) < least:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{query}: not {least} within {LIMIT_S:g} s")
        time.sleep(0.05)
    return time.monotonic()


def probe(
    options: argparse.Namespace, fleet: Fleet, bootstrap: str, topic: str
) -> tuple[list[float], int]:
    """Seconds from event to recommendation, and how many events had none."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"probe-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([fleet.instances[0].daemon.recommendations])
    sent: dict[str, float] = {}
    took: dict[str, float] = {}
    begin = time.monotonic() + 3.0  # the group forms meanwhile
    last = begin + options.probes / RATE + 30.0
    while len(took) < options.probes and time.monotonic() < last:
        now = time.monotonic()
        if len(sent) < options.probes and now >= begin + len(sent) / RATE:
            number, gpu = len(sent), f"new-{len(sent)}"
            event = {
                "schema": "tunerd.job/1",
                "source": "scaling",
                "event_id": f"probe-{number}",
                "job_id": f"probe-{number}",
                "study": fleet.studies[number % len(fleet.studies)],
                "status": "succeeded",
                "finished_at": datetime.now(UTC).isoformat(),
                "context": {"n": 8, "gpu": gpu},
                "config": {"x": 4, "y": "a", "z": True},
                "metrics": {"speed": 800.0},
            }
            sent[gpu] = time.monotonic()
            producer.produce(topic, json.dumps(event).encode())
            producer.flush()
        record = consumer.poll(0.02)
        value = None if record is None or record.error() is not None else record.value()
        if value is not None:
            gpu = str(json.loads(value)["context"]["gpu"])
            if gpu in sent and gpu not in took:
                took[gpu] = time.monotonic() - sent[gpu]
    consumer.close()
    return sorted(took.values()), options.probes - len(took)


def tell(bars: Bars, count: int, carried: Carried) -> None:
    """One row of figures."""
    name = f"{count} instance" + "s" * (count > 1)
    bars.say(f"{name}: events into history", carried.kept, "/s")
    bars.say(f"{name}: jobs learned", carried.learned, "/s")
    if carried.seconds:
        bars.say(f"{name}: event to recommendation, p50", percentile(carried.seconds, 0.5), "s")
        bars.say(f"{name}: event to recommendation, p99", percentile(carried.seconds, 0.99), "s")
    bars.hold(f"{name}: jobs without a recommendation", carried.missing, not carried.missing, "0")


if __name__ == "__main__":
    sys.exit(main())
