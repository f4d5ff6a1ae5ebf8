"""What a compacted topic says now: of each key the last value, kept up to date by reading on."""

from contextlib import suppress

from kafka import KafkaConsumer, TopicPartition

from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import LastValue, digest_of
from tunerd.streams.kafka.connection import translated
from tunerd.streams.kafka.consumer import make_consumer
from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["KafkaTable"]


class KafkaTable:
    """A :class:`tunerd.streams.base.CompactedTable`."""

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self._options = options
        self._topic = topic
        self._consumer: KafkaConsumer | None = None
        self._identity: object = None
        self._last: dict[bytes, LastValue] = {}
        self._partition: dict[bytes, int] = {}
        self.changed: set[bytes] | None = None

    def refresh(self) -> dict[bytes, LastValue]:
        try:
            with translated(self._options):
                self._refresh()
        except StreamUnavailableError:
            self.close()
            self.changed = None
            raise
        return self._last

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(Exception):  # it may be what was broken
                consumer.close(autocommit=False, timeout_ms=1000)

    def _refresh(self) -> None:
        if self._consumer is None:
            self._consumer, self._client = make_consumer(self._options, group_id=None)
            self._identity = None
        consumer = self._consumer
        places = [
            TopicPartition(self._topic, number)
            for number in sorted(consumer.partitions_for_topic(self._topic) or ())
        ]
        timeout_ms = int(self._options.request_timeout_s * 1000)
        starts = consumer.beginning_offsets(places, timeout_ms=timeout_ms) if places else {}
        # Another id: it was made anew. Another start: something was deleted, nobody says what.
        self.changed = set()
        anew = False
        identity = (self._client.cluster.topic_id(self._topic), starts)
        if identity != self._identity:
            self._last.clear()
            self._partition.clear()
            anew = True
            consumer.assign(places)
            for place, start in starts.items():
                consumer.seek(place, start)
            self._identity = identity
        ends = consumer.end_offsets(places, timeout_ms=timeout_ms) if places else {}
        quiet = 0
        while any(consumer.position(place, timeout_ms=1000) < end for place, end in ends.items()):
            batches = consumer.poll(100)
            quiet = 0 if batches else quiet + 1
            if quiet * 100 > timeout_ms:
                where = ",".join(self._options.bootstrap_servers)
                raise StreamUnavailableError(f"Kafka at {where} does not answer")
            for records in batches.values():
                for record in records:
                    self._keep(record.key, record.value, record.timestamp, record.partition)
        if anew:
            self.changed = None

    def _keep(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, partition: int
    ) -> None:
        """One key may be in two partitions: others hash keys in other ways, and a topic that gets
        more partitions moves them. The later one is what readers are left with. Within a partition
        that is the last one, whatever the clocks of those who wrote it."""
        if key is None:
            return
        if self.changed is not None:
            self.changed.add(key)
        before = self._last.get(key)
        here = self._partition.get(key) == partition
        if before is None or here or timestamp_ms >= before.timestamp_ms:
            self._partition[key] = partition
            digest = None if value is None else digest_of(value)
            self._last[key] = LastValue(timestamp_ms, digest)
