"""Reading a Kafka topic for oneself: every partition, no group, no positions."""

from contextlib import suppress

from kafka import TopicPartition

from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import StreamRecord
from tunerd.streams.kafka.connection import translated
from tunerd.streams.kafka.consumer import make_consumer
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.reasons import refused
from tunerd.streams.kafka.records import as_record

__all__ = ["KafkaFollower"]


class KafkaFollower:
    """A :class:`tunerd.streams.base.StreamFollower`."""

    def __init__(self, options: KafkaOptions, topic: str, *, from_beginning: bool) -> None:
        self._options = options
        self._topic = topic
        self._consumer, self._client = make_consumer(options, group_id=None)
        self._topic_id: object = None
        try:
            self._assign(from_beginning)
        except StreamUnavailableError:
            self.close()
            raise

    def poll(self, timeout_s: float, max_records: int = 500) -> list[StreamRecord]:
        cluster = self._client.cluster
        with translated(self._options):
            batches = self._consumer.poll(int(timeout_s * 1000), max_records)
            if not batches:
                alive = [b for b in cluster.brokers() if self._client.connected(b.node_id)]
                problem = None if alive else refused(self._options)
                if problem:
                    raise StreamUnavailableError(problem)
                self._notice_new_topic()
        name = str(cluster.cluster_id)
        return [as_record(name, raw) for batch in batches.values() for raw in batch]

    def _notice_new_topic(self) -> None:
        now = self._client.cluster.topic_id(self._topic)
        if now is not None:  # else it was removed, and may come back
            known, self._topic_id = self._topic_id, now
            if known not in (None, now):
                self._assign(from_beginning=True)

    def close(self) -> None:
        with suppress(Exception):  # it may be what was broken
            self._consumer.close(autocommit=False, timeout_ms=1000)

    def _assign(self, from_beginning: bool) -> None:
        with translated(self._options):
            numbers = self._consumer.partitions_for_topic(self._topic)
            if not numbers:
                where = ",".join(self._options.bootstrap_servers)
                raise StreamUnavailableError(f"Kafka at {where} has no topic {self._topic}")
            places = [TopicPartition(self._topic, number) for number in sorted(numbers)]
            timeout_ms = int(self._options.request_timeout_s * 1000)
            consumer = self._consumer
            offsets = consumer.beginning_offsets if from_beginning else consumer.end_offsets
            starts = offsets(places, timeout_ms=timeout_ms)
            self._consumer.assign(places)
            for place, offset in starts.items():
                self._consumer.seek(place, offset)
