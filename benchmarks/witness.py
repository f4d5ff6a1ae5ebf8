"""What others see of a daemon's work: its store through plain SQL, its topics with another client.

Nothing here imports tunerd.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import sqlalchemy as sa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

__all__ = ["Line", "Order", "Sql", "mismatches", "order_of", "read_topic", "settle"]


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
    """A whole topic, in offset order within each partition; of one key all is in one."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "crashes-look",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    lines, ended = [], 0
    while ended < len(partitions):
        record = consumer.poll(10)
        if record is None:
            raise RuntimeError(f"Kafka stopped answering in the middle of {topic}")
        if record.error() is not None:
            ended += 1
            continue
        lines.append(Line((record.key() or b"").decode(), record.value()))
    consumer.close()
    return lines


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
