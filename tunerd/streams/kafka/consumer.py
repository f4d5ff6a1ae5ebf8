"""The consumer under sources and followers, and two ways to get along with kafka-python's."""

from queue import SimpleQueue
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.net.compat import KafkaNetClient

from tunerd.streams.base import BATCH_BYTES
from tunerd.streams.kafka.connection import connect
from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["RebalanceListener", "make_consumer", "remember_joining"]


def make_consumer(options: KafkaOptions, **more: Any) -> tuple[KafkaConsumer, KafkaNetClient]:
    """Connect a consumer that remembers nothing by itself. Raises StreamUnavailableError."""

    def make(**common: Any) -> KafkaConsumer:
        return KafkaConsumer(
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            # Events of an aborted transaction were never sent, as their sender sees it.
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            # All that waits in memory; one larger record is still given out.
            fetch_max_bytes=BATCH_BYTES,
            metadata_max_age_ms=int(options.metadata_age_s * 1000),
            metrics_enabled=False,
            **common,
            **more,
        )

    return connect(options, make)


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """What happened to the assignment, for the caller's thread; runs on the I/O thread."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self.queue: SimpleQueue[tuple[bool, frozenset[TopicPartition]]] = SimpleQueue()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._consumer.pause(*assigned)
        self.queue.put((True, frozenset(assigned)))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.queue.put((False, frozenset(revoked)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.queue.put((False, frozenset(lost)))


def remember_joining(consumer: KafkaConsumer) -> None:
    """Have the next poll go on with a rebalance that this one began and did not see end.

    kafka-python 3.0.12 begins one when the topic's metadata changed, and forgets why by the time
    that it ends; if nobody polls in that moment, the partitions are given to this reader and it
    never hears of them (Java's KAFKA-9815). It happened in one of ten starts.
    """
    if consumer._coordinator.rejoining:
        consumer._coordinator.request_rejoin()
