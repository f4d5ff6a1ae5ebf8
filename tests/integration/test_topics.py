"""What others do to the topics of a running daemon, on a Kafka that creates topics by itself."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.integration.daemons import Daemon, events, read_topic
from tests.servers.kafka import KafkaServer, kafka_cluster
from tunerd.errors import StreamUnavailableError
from tunerd.metrics import definitions as d
from tunerd.streams.base import TopicContent, TopicSpec
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.stream import KafkaStream


def latest(bootstrap: str, topic: str) -> dict[bytes, bytes | None]:
    """What a new reader of the topic is left with, by key."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for record in read_topic(bootstrap, topic):
        key, moment = record.key(), record.timestamp()[1]
        assert key is not None
        if moment >= found.get(key, (0, None))[0]:
            found[key] = (moment, record.value())
    return {key: value for key, (_, value) in found.items()}


@pytest.fixture
def daemon(
    tmp_path: Path, kafka_bootstrap: str, kafka_server: KafkaServer, unique: str
) -> Iterator[Daemon]:
    assert kafka_bootstrap == kafka_server.bootstrap
    made = Daemon(tmp_path, kafka_bootstrap, unique)
    yield made
    made.end()


@pytest.mark.timeout(300)  # each wait may take longer beside other tests
def test_a_recommendations_topic_that_was_overwritten_or_lost_gets_what_holds_again(
    daemon: Daemon,
) -> None:
    bootstrap = daemon.bootstrap
    assert bootstrap is not None
    topic = f"{daemon.name}.recommendations"
    daemon.start()
    daemon.send(events(8))
    daemon.learned(8)
    holds = latest(bootstrap, topic)
    assert len(holds) > 1

    producer = Producer({"bootstrap.servers": bootstrap})
    stranger, freed, *_ = sorted(holds)
    producer.produce(topic, b"not ours", stranger)
    producer.produce(topic, None, freed)
    assert producer.flush(20) == 0
    daemon.until(lambda: latest(bootstrap, topic) == holds, "the keys are theirs again")
    assert daemon.lines("what holds was not on its topic and is sent again")
    daemon.until(lambda: (daemon.metric(d.SAID_AGAIN) or 0) >= 2, "it is counted")

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=20)

    def comes_back() -> bool:
        producer.produce(topic, b"somebody else's", b"another key")
        producer.flush(5)
        return daemon.metric(d.TOPIC_WRONG, topic="recommendations") == 1

    daemon.until(comes_back, "the topic is said to be wrong")
    daemon.until(lambda: holds.items() <= latest(bootstrap, topic).items(), "all is there again")
    status, page = daemon.get("/readyz")
    said = " ".join(json.loads(page)["problems"])
    assert status == 503
    assert "cleanup.policy=delete" in said
    assert "--add-config cleanup.policy=compact` mends it" in said
    assert any(topic in line["problem"] for line in daemon.lines("a topic is not as it should be"))


def told(stream: KafkaStream) -> str:
    """What is broken, by whatever way it is said."""
    try:
        return "; ".join(one.message for one in stream.check_topics() if one.kind == "away")
    except StreamUnavailableError as error:
        return f"unavailable: {error}"


@pytest.mark.timeout(300)  # four processes of Java and Python on two cores
def test_without_their_brokers_topics_are_told_and_the_daemon_is_not_ready(
    tmp_path: Path, kafka_server: KafkaServer, unique: str
) -> None:
    """Two of three are lost, and with them the controllers' majority: what the third one says of
    leaders and copies is as it was before."""
    assert kafka_server  # where there can be none, this says so
    servers = kafka_cluster(tmp_path / "brokers", 3)
    daemon = Daemon(tmp_path, ",".join(server.bootstrap for server in servers), unique)
    options = KafkaOptions(tuple(server.bootstrap for server in servers), connect_timeout_s=1.0)
    topics = [TopicSpec(f"{unique}.jobs", TopicContent.EVENT)]
    stream, starting = (
        KafkaStream(options, topics),
        KafkaStream(replace(options, connect_timeout_s=10.0), topics),
    )

    def until_all_is_well() -> None:
        daemon.until(lambda: told(stream) == "", "nothing is away")

    try:
        daemon.start()
        daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready")
        until_all_is_well()
        servers[0].kill()
        for _ in range(20):  # whoever starts at this moment asks one that still knows
            starting.ensure_topics()
        until_all_is_well()  # the others take over
        servers[1].kill()
        daemon.until(  # a first look may find nobody at all
            lambda: any(why in told(stream) for why in ("no leader that answers", "in sync")),
            "what is away is told",
        )
        daemon.until(lambda: daemon.get("/readyz")[0] == 503, "that is noticed")
        assert json.loads(daemon.get("/readyz")[1])["problems"]
        for server in servers[:2]:
            server.spawn()
        until_all_is_well()
        daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it goes on")
        assert daemon.stop()[0] == 0
    finally:
        daemon.end()
        for server in servers:
            server.stop()
