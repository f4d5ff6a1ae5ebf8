"""What the stream tests share: a stand-in for the store, and one rig per kind of stream.

A rig knows how somebody else writes to the stream, makes a topic anew, or takes the stream away.
Events are written with other clients than ours, so that ours does not judge itself.
"""

import contextlib
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.kafka import KafkaServer
from tunerd.streams.base import (
    Stream,
    StreamPosition,
    StreamRecord,
    StreamSource,
    TopicContent,
    TopicSpec,
)
from tunerd.streams.jsonl.stream import JsonlStream
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.stream import KafkaStream

LARGEST = 12 * 1024 * 1024


class Positions:
    """Positions as the store keeps them."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], StreamPosition] = {}
        self.asked = 0

    def restore(
        self, cluster: str, topic: str, partitions: Sequence[str]
    ) -> Mapping[str, StreamPosition]:
        self.asked += 1
        found = {name: self.kept.get((cluster, topic, name)) for name in partitions}
        return {name: position for name, position in found.items() if position is not None}

    def keep(self, records: Sequence[StreamRecord]) -> None:
        for record in records:
            self.kept[record.cluster, record.topic, record.partition] = record.position


def read(
    source: StreamSource,
    count: int,
    positions: Positions | None = None,
    most: int = 500,
    timeout_s: float = 20.0,
) -> list[StreamRecord]:
    """Poll until there are ``count`` records, keeping positions after each batch."""
    found: list[StreamRecord] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records"
        batch = source.poll(0.2, min(most, count - len(found)))
        found += batch
        if positions is not None:
            positions.keep(batch)
    return found


def nothing_more(source: StreamSource, for_s: float = 0.4) -> bool:
    """Tell whether nothing comes for a while."""
    return not source.poll(for_s, 10)


def eventually(true: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Poll a condition."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Rig(ABC):
    """A stream with three topics of its own."""

    stream: Stream
    events: str
    """Topic of events."""
    advice: str
    """Compacted topic of JSON values."""
    refused: str
    """Topic of bytes."""

    def specs(self) -> list[TopicSpec]:
        return [
            TopicSpec(self.events, TopicContent.EVENT),
            TopicSpec(self.advice, TopicContent.JSON, compacted=True),
            TopicSpec(self.refused, TopicContent.BYTES),
        ]

    @abstractmethod
    def again(self, *, create_topics: bool = True) -> Stream:
        """Another stream object for the same place, as another process would have."""

    @abstractmethod
    def write(self, values: Sequence[bytes]) -> None:
        """Add events, as other people's programs do."""

    @abstractmethod
    def make_anew(self) -> None:
        """Remove the events topic and create it again, empty."""

    @abstractmethod
    def away(self) -> contextlib.AbstractContextManager[None]:
        """Have the stream unreachable for a while."""


class JsonlRig(Rig):
    def __init__(self, folder: Path, unique: str) -> None:
        self.folder = folder
        self.events, self.advice, self.refused = f"{unique}.e", f"{unique}.a", f"{unique}.r"
        self.stream = self.again()
        self.stream.ensure_topics()
        self.path = folder / f"{self.events}.jsonl"

    def again(self, *, create_topics: bool = True) -> JsonlStream:
        return JsonlStream(self.folder, self.specs(), create_topics=create_topics)

    def write(self, values: Sequence[bytes]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(value + b"\n" for value in values))

    def make_anew(self) -> None:
        self.path.unlink()
        self.path.touch()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        elsewhere = self.folder.with_name("elsewhere")
        self.folder.rename(elsewhere)
        yield
        elsewhere.rename(self.folder)


class KafkaRig(Rig):
    def __init__(self, bootstrap: str, unique: str, server: Callable[[], KafkaServer]) -> None:
        self.bootstrap = bootstrap
        self._server = server
        self.events, self.advice, self.refused = f"{unique}.e", f"{unique}.a", f"{unique}.r"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.create(self.events)
        self.stream = self.again()
        self.stream.ensure_topics()

    def options(self, *, create_topics: bool = True) -> KafkaOptions:
        return KafkaOptions(
            bootstrap_servers=(self.bootstrap,),
            create_topics=create_topics,
            session_timeout_s=6.0,
            request_timeout_s=5.0,
            metadata_age_s=1.0,
        )

    def again(self, *, create_topics: bool = True) -> KafkaStream:
        return KafkaStream(self.options(create_topics=create_topics), self.specs())

    def create(self, topic: str, partitions: int = 1) -> None:
        config = {"max.message.bytes": str(LARGEST)}
        made = self.admin.create_topics([NewTopic(topic, partitions, config=config)])
        made[topic].result(timeout=20)

    def write(self, values: Sequence[bytes], **more: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "message.max.bytes": LARGEST,
                "linger.ms": 2,
                **more,
            }
        )
        for value in values:
            producer.produce(self.events, value)
        assert producer.flush(30) == 0

    def make_anew(self) -> None:
        self.admin.delete_topics([self.events])[self.events].result(timeout=20)
        assert eventually(lambda: self.events not in self.admin.list_topics(timeout=10).topics)
        self.create(self.events)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        server = self._server()
        server.kill()
        try:
            yield
        finally:
            server.start()


def remove(folder: Path) -> None:
    shutil.rmtree(folder)
