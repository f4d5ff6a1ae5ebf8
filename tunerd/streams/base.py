"""What a stream is: topics that events come in on and recommendations go out on.

A stream is a broker or a folder; both keep one contract suite (``tests/contracts/test_stream.py``).
Where reading goes on from is not the stream's business to remember: positions are kept in the
store, in the transaction that keeps what was learned from the records, and a source asks for them.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Literal, Protocol

import msgspec

__all__ = [
    "BATCH_BYTES",
    "EVER",
    "KEPT_BYTES",
    "MAX_VALUE_BYTES",
    "CompactedTable",
    "LastValue",
    "Restore",
    "Stream",
    "StreamFollower",
    "StreamMessage",
    "StreamPosition",
    "StreamRecord",
    "StreamSink",
    "StreamSource",
    "TopicContent",
    "TopicProblem",
    "TopicSpec",
    "digest_of",
]

MAX_VALUE_BYTES = 256 * 1024
"""A value above this is oversize: nobody parses it."""
KEPT_BYTES = 64 * 1024
"""What is kept of an oversize value: its first bytes, beside its size and its SHA-256."""
BATCH_BYTES = 16 * 1024 * 1024
"""About as many bytes of values are in one batch at most."""


EVER = datetime.fromtimestamp(0, UTC)
"""Before anything was sent."""


class TopicContent(StrEnum):
    """What a topic's values are; a folder of text files has to know."""

    EVENT = "event"
    """Anything, from programs that are not ours. Without keys and headers where lines are read."""
    JSON = "json"
    """One JSON value, or null."""
    BYTES = "bytes"
    """Any bytes, or null."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be: ``compacted`` keeps only the last value of each key."""

    name: str
    content: TopicContent
    compacted: bool = False
    keep_s: float = 0.0
    """How long each record is kept at least, in seconds, where the topic is not compacted."""


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A topic that is not as it should be. The message has the command that mends it, if any."""

    topic: str
    message: str
    kind: Literal["broken", "away", "differs", "unchecked"] = "broken"
    """``broken``: something is lost or stands still. ``away``: it is as long as brokers are lost,
    also in the seconds that the others take to stand in for them. ``differs``: it works, but not
    as it should. ``unchecked``: nobody may tell."""


def digest_of(value: bytes) -> bytes:
    """BLAKE2b of a message's value, 16 bytes."""
    return blake2b(value, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class LastValue:
    """What a topic says of a key: when that was sent, and :func:`digest_of` the value; None where
    it is a tombstone."""

    timestamp_ms: int
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where reading goes on in one partition.

    ``cluster`` and ``partition`` are names that survive restarts; for a folder the partition is
    the identity of one file. ``offset`` is the next to read. ``fingerprint`` is of the record
    before it ("" if none was read): it tells a partition that was made anew from the old one.
    """

    cluster: str
    topic: str
    partition: str
    offset: int
    fingerprint: str


class StreamRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read. (cluster, topic, partition, offset) names it for good.

    An oversize one has ``sha256`` (of the whole value) set, ``size`` in bytes as it was, and only
    the first 64 KiB as ``value``. ``timestamp_ms`` is the broker's, if it has one.

    A Struct and not a dataclass, and the position a property: a hundred thousand of these are
    made a second, and only the last of each partition in a batch is asked for its fingerprint.
    """

    cluster: str
    topic: str
    partition: str
    offset: int
    next_offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    size: int
    sha256: str | None = None
    timestamp_ms: int | None = None

    @property
    def position(self) -> StreamPosition:
        """The position after reading this record."""
        return StreamPosition(
            self.cluster, self.topic, self.partition, self.next_offset, self.fingerprint
        )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that another record has by accident only."""
        digest = hashlib.blake2b(digest_size=8)
        for part in (self.key, self.value):
            digest.update(b"-" if part is None else b"%d:" % len(part))
            digest.update(part or b"")
        digest.update(f"{self.sha256}{self.timestamp_ms}".encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """Something to send. A ``value`` of None is a tombstone: on a compacted topic it frees the key.

    ``value`` is JSON on a topic of that content. Header values are UTF-8 text.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


Restore = Callable[[str, str, Sequence[str]], Mapping[str, StreamPosition]]
"""``restore(cluster, topic, partitions)``: the positions that the store has for these partitions,
by partition. May raise; the source then asks again at the next poll."""


class StreamSource(Protocol):
    """Reads one topic as a member of a group. For one thread at a time."""

    def poll(self, timeout_s: float, max_records: int) -> list[StreamRecord]:
        """Return the next records, in order per partition; after ``timeout_s`` an empty list.

        A batch has at most ``max_records`` and about 16 MB of values. Polling again says that
        the records before it are handled: a partition that comes back to this source, or was
        reset, goes on from what ``restore`` then says.

        Raises StreamUnavailableError, with one sentence saying what is wrong, within seconds of
        the stream's becoming unreachable; a later call recovers by itself. Raises FencedOutError,
        for good, if another reader took this one's name. What ``restore`` raises comes through.
        """
        ...

    def commit(self, positions: Sequence[StreamPosition]) -> None:
        """Tell the broker how far the store is, so that other tools can see the lag.

        Nothing depends on it. Never raises, whoever owns the partitions by now, and does not wait.
        """
        ...

    def reset(self) -> None:
        """Read again from the stored positions (a compare-and-set on one of them was lost).

        Before the next record comes, each partition's position is restored anew.
        """
        ...

    def partitions(self) -> list[str]:
        """Return the partitions that this member reads now, in order. From any thread."""
        ...

    def lag(self) -> int | None:
        """Return how many records this source has still to read; None while it cannot know."""
        ...

    def remarks(self) -> list[str]:
        """Return what somebody must see although it reads, in sentences: what it has lost since it
        was made, and what it cannot read on. From any thread."""
        ...

    def close(self) -> None:
        """Leave the group. Never raises, takes at most about a second."""
        ...


class StreamSink(Protocol):
    """Sends to any topic of the stream. For one thread at a time."""

    def send(self, messages: Sequence[StreamMessage]) -> None:
        """Return once every message is kept for good, in this order per topic and key.

        Raises StreamUnavailableError if that took too long or failed: some may have been kept,
        send them all again. Raises FencedOutError if another sink took this one's role: nothing
        of these messages will be read; close it. Raises ValueError for a message that can never
        be sent (a value that is not JSON where it has to be, larger than the stream takes).
        """
        ...

    def sent_since(self, topics: Collection[str], since: datetime) -> Iterator[StreamRecord]:
        """Take the role over, then yield what these topics hold that was sent at ``since`` or
        later, in order per topic and key: at least all of the last ``send`` of the former holder,
        and everything there is since :data:`EVER`.

        Whoever sends again after a crash, or after a ``send`` that failed, leaves out what is
        there already. Raises StreamUnavailableError.
        """
        ...

    def hold(self) -> None:
        """Take the role if this sink does not have it yet, else see that it still has.

        Raises FencedOutError if another sink took it, also while the stream could not be reached:
        a sink never takes a role back. Raises StreamUnavailableError.
        """
        ...

    def close(self) -> None:
        """Let go of it. Never raises, takes at most about a second."""
        ...


class StreamFollower(Protocol):
    """Reads one topic on its own, without a group and without positions.

    For those who look on: the command line, the simulated cluster, tests. A topic that was
    made anew, or a file that was rewritten, is read again from its beginning.
    """

    def poll(self, timeout_s: float, max_records: int = 500) -> list[StreamRecord]:
        """As a source's."""
        ...

    def close(self) -> None:
        """Let go of it. Never raises."""
        ...


class CompactedTable(Protocol):
    """What a compacted topic says of each key."""

    changed: set[bytes] | None
    """Keys that the last ``refresh`` read something of; None where it read everything anew."""

    def refresh(self) -> Mapping[bytes, LastValue]:
        """Read on to the topic's end as of now, and return the last value of each key.

        A key that was lost is not there: the topic was made anew, or its records were deleted.
        Raises StreamUnavailableError; a later call recovers by itself.
        """
        ...

    def close(self) -> None:
        """Let go of it. Never raises."""
        ...


class Stream(Protocol):
    """A broker or a folder, with the topics that the program uses.

    It holds no connection itself: sources, sinks and followers do, and they are closed by whoever
    asked for them.
    """

    def ensure_topics(self) -> None:
        """Create the topics that are missing; leave those that exist as they are.

        Raises MisconfiguredError if one is missing and creating is switched off or forbidden,
        StreamUnavailableError if the stream cannot be reached.
        """
        ...

    def check_topics(self) -> list[TopicProblem]:
        """Return what is not as it should be with the topics. Changes nothing.

        Raises StreamUnavailableError.
        """
        ...

    def table(self, topic: str) -> CompactedTable | None:
        """Return what a compacted topic says now; None where only this program writes to it. Does
        not connect."""
        ...

    def source(self, topic: str, group: str, restore: Restore) -> StreamSource:
        """Return a reader of ``topic``. Does not connect: its first poll does."""
        ...

    def sink(self, role: str | None = None, *, take_back: bool = False) -> StreamSink:
        """Return a sender. Does not connect: its first send does.

        One sink at a time has a ``role``. The first send of a new one takes it over: from then
        on whatever the former still tries to send is refused, however late it arrives. (A folder
        has one daemon, which its lock sees to, so there a role changes nothing.) With ``take_back``
        it is taken even from another that took it from this process: the caller knows by other
        means, such as a lease, that it is this one's turn again.
        """
        ...

    def follow(self, topic: str, *, from_beginning: bool = True) -> StreamFollower:
        """Return a reader of ``topic`` that starts at its beginning, or at its end as of now.

        Raises StreamUnavailableError if the stream cannot be reached.
        """
        ...
