"""What others see of a daemon's work: its store through plain SQL, its topics with another client.

Nothing here imports tunerd.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import sqlalchemy as sa
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

__all__ = [
    "FreshReaders",
    "Line",
    "Order",
    "Sql",
    "mismatches",
    "order_of",
    "read_topic",
    "settle",
]


class Sql:
    """The store as any SQL client sees it."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """All rows of a query."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    def number(self, query: str) -> int:
        """One number; 0 while there is none."""
        with suppress(sa.exc.OperationalError, sa.exc.ProgrammingError):  # no such table yet
            found = self.rows(query)
            return int(str(found[0][0] or 0)) if found else 0
        return 0

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()


@dataclass(frozen=True, slots=True)
class Line:
    """A record of a topic."""

    key: str
    value: bytes | None


def read_topic(bootstrap: str, topic: str, isolation: str) -> list[Line]:
    """A whole topic, in offset order within each partition; of one key all is in one.

    Raises RuntimeError or KafkaException where the brokers do not answer for ten seconds.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "crashes-look",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 2,  # that brokers are lost may be wanted
        }
    )
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        lines, ended = [], set[int | None]()
        while len(ended) < len(partitions):
            record = consumer.poll(10)
            if record is None:
                raise RuntimeError(f"Kafka stopped answering in the middle of {topic}")
            if (error := record.error()) is None:
                lines.append(Line((record.key() or b"").decode(), record.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(record.partition())
            elif not error.retriable():  # a broker that was lost is no end of a partition
                raise KafkaException(error)
        return lines
    finally:
        consumer.close()


@dataclass
class FreshReaders:
    """New readers of the recommendations, one after the other in a thread: each reads from the
    start, as a scheduler that has just come up, and has to find what it can follow in every context
    for which an earlier one did."""

    bootstrap: str
    topic: str
    every_s: float = 0.5
    reads: int = 0
    unanswered: int = 0
    """Reads that the brokers did not answer for ten seconds."""
    longest_s: float = 0.0
    """What the slowest read took."""
    keys: set[str] = field(default_factory=set)
    """For which there was something to follow."""
    without: Counter[str] = field(default_factory=Counter)
    """By key, how many later readers had nothing to follow."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """End after the reader that is at work."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.every_s):
            begin = time.monotonic()
            try:
                self._look(read_topic(self.bootstrap, self.topic, "read_committed"))
            except (KafkaException, RuntimeError) as error:
                self.unanswered += 1
                print(f"  a reader got no answer: {error}", file=sys.stderr)
            self.reads += 1
            self.longest_s = max(self.longest_s, time.monotonic() - begin)

    def _look(self, lines: Sequence[Line]) -> None:
        last, now = {line.key: line.value for line in lines}, datetime.now(UTC)
        there = {key for key, value in last.items() if _can_be_followed(value, now)}
        for key in self.keys - there:
            print(f"  nothing to follow: {key}: {last.get(key)!r}"[:500], file=sys.stderr)
            self.without[key] += 1
        self.keys |= there


def _can_be_followed(value: bytes | None, now: datetime) -> bool:
    """Whether a scheduler has something to launch by a record, at this time."""
    if value is None:
        return False
    message = json.loads(value)
    return (
        message["state"] == "active"
        and datetime.fromisoformat(message["valid_until"]) > now
        and bool(message["candidates"] or message["incumbent"] or message["baseline"])
    )


@dataclass
class Order:
    """What the revisions of all keys did, in offset order."""

    backwards: int = 0
    repeated: int = 0
    """A record with the same revision and the same bytes as the one before it."""
    changed: int = 0
    """A record with the same revision and other bytes."""


def order_of(lines: Sequence[Line]) -> Order:
    """Compare each record with the one before it of the same key."""
    found, last = Order(), dict[str, tuple[int, bytes]]()
    for line in lines:
        if line.value is None:
            continue
        revision = int(json.loads(line.value)["revision"])
        before = last.get(line.key, (0, b""))
        found.backwards += revision < before[0]
        found.repeated += (revision, line.value) == before
        found.changed += revision == before[0] and line.value != before[1]
        last[line.key] = (revision, line.value)
    return found


def mismatches(lines: Sequence[Line], sql: Sql) -> int:
    """Keys whose last record is not what the store recommends."""
    there = {line.key: line.value for line in lines}
    query = "SELECT context_key, value FROM recommendations WHERE state IN ('active', 'withdrawn')"
    kept = {str(key): str(value).encode() for key, value in sql.rows(query)}
    return sum(there.get(key) != kept.get(key) for key in there.keys() | kept.keys())


def settle(sql: Sql, events: int, timeout_s: float) -> bool:
    """Wait until everything is in history, learned and sent, and nothing more is said."""
    deadline = time.monotonic() + timeout_s
    quiet_since, before = time.monotonic(), (0, 0, 0, 0)
    while time.monotonic() < deadline:
        now = (
            sql.number("SELECT count(*) FROM observations"),
            sql.number("SELECT sum(learned_sequence) FROM studies"),
            sql.number("SELECT count(*) FROM outbox WHERE settled_at IS NULL"),
            sql.number("SELECT sum(revision) FROM recommendations"),
        )
        if now != before:
            quiet_since, before = time.monotonic(), now
        done = now[0] >= events and now[1] >= now[0] and now[2] == 0
        if done and time.monotonic() - quiet_since > 3:
            return True
        time.sleep(0.2)
    print(f"  not settled: history, learned, unsent, revisions = {before}", file=sys.stderr)
    return False
