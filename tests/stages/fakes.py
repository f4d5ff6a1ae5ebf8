"""What stands in for streams, clocks and listeners where the stages are tested one step at a time.

The store is real. A stream is a list; what a test wants to go wrong it says beforehand.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from tunerd.errors import FencedOutError, StreamUnavailableError
from tunerd.store import Transaction
from tunerd.streams.base import (
    CompactedTable,
    Restore,
    StreamFollower,
    StreamMessage,
    StreamPosition,
    StreamRecord,
    TopicProblem,
)
from tunerd.telemetry import Report

__all__ = ["CrashError", "FakeStream", "Heard", "ListSink", "ListSource", "Time", "crash_in"]

CLUSTER = "cluster-1"
START = datetime(2026, 11, 20, 10, tzinfo=UTC)

Kind = TypeVar("Kind", bound=Report)


class CrashError(BaseException):
    """The process dies here: nothing of it catches that."""


@dataclass
class Time:
    """A wall clock and a monotonic one, which move when the test says so."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def clock(self) -> float:
        return (self.at - START).total_seconds()

    def pass_(self, **duration: float) -> None:
        self.at += timedelta(**duration)


@dataclass
class Heard:
    """A listener that remembers."""

    reports: list[Report] = field(default_factory=list)

    def hear(self, report: Report, /) -> None:
        self.reports.append(report)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [one for one in self.reports if isinstance(one, kind)]


@dataclass
class FakeStream:
    """One topic of events with one partition, and everything that was sent."""

    events: list[StreamRecord] = field(default_factory=list)
    sent: list[StreamMessage] = field(default_factory=list)
    fails: list[tuple[int, Exception]] = field(default_factory=list)
    """For each coming ``send``: how many messages it keeps before it raises what."""
    sources: list["ListSource"] = field(default_factory=list)
    sinks: list["ListSink"] = field(default_factory=list)
    taken_over: bool = False
    """Whether somebody else has the role now."""
    holder: "ListSink | None" = None
    """Which sink took the role last, where the test looks at more than one."""

    def write(self, *values: bytes) -> None:
        """Add events, as jobs do."""
        for value in values:
            offset = len(self.events)
            self.events.append(
                StreamRecord(
                    CLUSTER, "jobs", "0", offset, offset + 1, None, value, (), len(value), None, 0
                )
            )

    def ensure_topics(self) -> None:
        """They are there."""

    def check_topics(self) -> list[TopicProblem]:
        return []

    def table(self, topic: str) -> CompactedTable | None:  # noqa: ARG002
        return None

    def source(self, topic: str, group: str, restore: Restore) -> "ListSource":  # noqa: ARG002
        self.sources.append(ListSource(self, topic, restore))
        return self.sources[-1]

    def sink(self, role: str | None = None, *, take_back: bool = False) -> "ListSink":
        self.taken_over = self.taken_over and not take_back
        self.sinks.append(ListSink(self, role))
        return self.sinks[-1]

    def follow(self, topic: str, *, from_beginning: bool = True) -> StreamFollower:
        raise NotImplementedError


@dataclass
class ListSource:
    """Reads the list from the position that the store has."""

    stream: FakeStream
    topic: str
    restore: Restore
    at: int | None = None
    polls: int = 0
    resets: int = 0
    committed: list[StreamPosition] = field(default_factory=list)
    closed: bool = False

    def poll(self, timeout_s: float, max_records: int) -> list[StreamRecord]:  # noqa: ARG002
        self.polls += 1
        if self.at is None:
            position = self.restore(CLUSTER, self.topic, ["0"]).get("0")
            self.at = position.offset if position else 0
        found = self.stream.events[self.at : self.at + max_records]
        self.at += len(found)
        return found

    def commit(self, positions: Sequence[StreamPosition]) -> None:
        self.committed += positions

    def reset(self) -> None:
        self.resets += 1
        self.at = None

    def partitions(self) -> list[str]:
        return [] if self.at is None else ["0"]

    def lag(self) -> int | None:
        return None if self.at is None else len(self.stream.events) - self.at

    def remarks(self) -> list[str]:
        return []

    def close(self) -> None:
        self.closed = True


@dataclass
class ListSink:
    """Keeps what it is sent in the stream's list."""

    stream: FakeStream
    role: str | None
    looked: list[datetime] = field(default_factory=list)
    closed: bool = False
    had_role: bool = False

    def send(self, messages: Sequence[StreamMessage]) -> None:
        self._check()
        if self.stream.fails:
            count, error = self.stream.fails.pop(0)
            self.stream.sent += messages[:count]
            raise error
        self.stream.sent += messages

    def sent_since(self, topics: Collection[str], since: datetime) -> Iterator[StreamRecord]:
        self.looked.append(since)
        for i, one in enumerate(self.stream.sent):
            if one.topic in topics:
                size = len(one.value or b"")
                yield StreamRecord(
                    CLUSTER, one.topic, "0", i, i + 1, one.key, one.value, one.headers, size
                )

    def hold(self) -> None:
        if not self.had_role:
            self.stream.holder, self.had_role = self, True
        self._check()

    def _check(self) -> None:
        """As a broker does: whoever took the role last has it."""
        other = self.had_role and self.stream.holder is not self
        if self.stream.taken_over or other:
            raise FencedOutError("another instance has taken over")

    def close(self) -> None:
        self.closed = True


def away() -> StreamUnavailableError:
    """What a stream raises that cannot be reached."""
    return StreamUnavailableError("the broker is away")


@contextmanager
def crash_in(
    patch: pytest.MonkeyPatch,
    method: str,
    error: Callable[[], BaseException] = CrashError,
    of: type = Transaction,
) -> Iterator[None]:
    """Within the block, a method of every transaction (or of another class) raises."""

    def crash(*_arguments: Any, **_more: Any) -> None:
        raise error()

    with patch.context() as patched:
        patched.setattr(of, method, crash)
        yield
