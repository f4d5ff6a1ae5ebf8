"""A reader gets its partitions although it polls for moments only."""

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.streams.rigs import Positions, read
from tunerd.streams.base import TopicContent, TopicSpec
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.stream import KafkaStream


def send(bootstrap: str, topic: str, partition: int, value: bytes) -> None:
    # A new producer knows a new partition at once.
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(10) == 0


def test_a_rebalance_that_ends_between_two_polls_is_not_forgotten(
    kafka_bootstrap: str, unique: str
) -> None:
    """kafka-python forgets one that began because the topic's metadata changed; its reader then
    has no partitions for good."""
    options = KafkaOptions((kafka_bootstrap,), partitions=1)
    stream = KafkaStream(options, [TopicSpec(unique, TopicContent.EVENT)])
    stream.ensure_topics()
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    positions = Positions()
    source = stream.source(unique, unique, positions.restore)
    try:
        send(kafka_bootstrap, unique, 0, b"first")
        assert [one.value for one in read(source, 1, positions)] == [b"first"]

        admin.create_partitions([NewPartitions(unique, 2)])[unique].result(10)
        send(kafka_bootstrap, unique, 1, b"second")
        found = []
        for _ in range(10):
            source._client.cluster.request_update()  # which would come within a minute
            found += source.poll(0.0, 10)  # begins to join
            time.sleep(0.05)  # and is not there when the answer comes
        found += read(source, 1 - len(found), positions)
        assert [one.value for one in found] == [b"second"]
    finally:
        source.close()
