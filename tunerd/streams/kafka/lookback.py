"""What a topic holds that was sent lately: how a sender finds out how far the one before it got."""

import time
from collections.abc import Collection, Iterator
from datetime import datetime

from kafka import KafkaConsumer, TopicPartition

from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import StreamRecord
from tunerd.streams.kafka.connection import translated
from tunerd.streams.kafka.consumer import make_consumer
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.records import as_record

__all__ = ["sent_since"]


def sent_since(
    options: KafkaOptions, topics: Collection[str], since: datetime
) -> Iterator[StreamRecord]:
    """Yield what the topics hold with a timestamp from ``since`` on, up to their ends as of now.

    Only what was committed. Raises StreamUnavailableError.
    """
    consumer, client = make_consumer(options, group_id=None)
    try:
        with translated(options):
            ends = _seek(consumer, options, topics, int(since.timestamp() * 1000))
            moved_at = time.monotonic()
            while _unread(consumer, ends):
                batches = consumer.poll(100)
                if batches:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > options.request_timeout_s:
                    where = ",".join(options.bootstrap_servers)
                    raise StreamUnavailableError(f"Kafka at {where} does not answer")
                name = str(client.cluster.cluster_id)
                yield from (as_record(name, raw) for batch in batches.values() for raw in batch)
    finally:
        consumer.close(autocommit=False, timeout_ms=1000)


def _seek(
    consumer: KafkaConsumer, options: KafkaOptions, topics: Collection[str], since_ms: int
) -> dict[TopicPartition, int]:
    """Assign what has something to read, from where it begins. Returns where each ends."""
    places = [
        TopicPartition(topic, number)
        for topic in sorted(topics)
        for number in sorted(consumer.partitions_for_topic(topic) or ())
    ]
    timeout_ms = int(options.request_timeout_s * 1000)
    starts = consumer.offsets_for_times(dict.fromkeys(places, since_ms), timeout_ms=timeout_ms)
    ends = consumer.end_offsets(places, timeout_ms=timeout_ms)
    begins = {place: start.offset for place, start in starts.items() if start is not None}
    ends = {place: ends[place] for place, begin in begins.items() if begin < ends[place]}
    consumer.assign(list(ends))
    for place in ends:
        consumer.seek(place, begins[place])
    return ends


def _unread(consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    return any(consumer.position(place, timeout_ms=1000) < end for place, end in ends.items())
