"""Topics that are not as they should be, on a real Kafka, as others and its defaults make them."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.servers.kafka import KafkaServer
from tests.servers.secure import PASSWORD, USER, secure_kafka
from tests.streams.rigs import eventually
from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import StreamMessage, TopicContent, TopicProblem, TopicSpec
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.source import KafkaSource
from tunerd.streams.kafka.stream import KafkaStream

DAY_S = 86400.0


def specs(unique: str) -> list[TopicSpec]:
    return [
        TopicSpec(f"{unique}.jobs", TopicContent.EVENT, keep_s=DAY_S),
        TopicSpec(f"{unique}.advice", TopicContent.JSON, compacted=True),
    ]


def stream_of(bootstrap: str, unique: str, partitions: int = 3) -> KafkaStream:
    options = KafkaOptions((bootstrap,), partitions=partitions, connect_timeout_s=1.0)
    return KafkaStream(options, specs(unique))


def make(bootstrap: str, topic: str, partitions: int = 3, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    made = admin.create_topics([NewTopic(topic, partitions, config=settings)])
    made[topic].result(timeout=20)


def told_by(source: KafkaSource) -> str:
    try:
        source.poll(0.1, 1)
    except StreamUnavailableError as error:
        return str(error)
    return ""


def only(found: list[TopicProblem]) -> TopicProblem:
    (one,) = found
    return one


def test_topics_that_tunerd_made_are_as_they_should_be(kafka_bootstrap: str, unique: str) -> None:
    stream = stream_of(kafka_bootstrap, unique)
    stream.ensure_topics()
    assert stream.check_topics() == []


def test_topics_that_are_missing_are_named_with_the_command_that_makes_them(
    kafka_bootstrap: str, unique: str
) -> None:
    jobs, advice = stream_of(kafka_bootstrap, unique).check_topics()
    assert (jobs.topic, jobs.kind) == (f"{unique}.jobs", "broken")
    assert f"--create --topic {unique}.advice --config cleanup.policy=compact" in advice.message
    assert "--partitions 3" in advice.message


@pytest.mark.parametrize(
    ("topic", "partitions", "config", "kind", "said"),
    [
        ("advice", 3, {"cleanup_policy": "delete"}, "broken", "cleanup.policy=compact` mends"),
        ("advice", 3, {"cleanup_policy": "compact,delete"}, "broken", "cleanup.policy=compact`"),
        ("jobs", 3, {"cleanup_policy": "compact"}, "broken", "cleanup.policy=delete` mends it"),
        ("jobs", 3, {"retention_ms": "60000"}, "differs", "retention.ms=86400000` mends it"),
        ("jobs", 1, {}, "differs", "has 1 partition, and stream.kafka.partitions wants 3"),
    ],
)
def test_what_differs_is_said_with_the_command_that_mends_it(
    kafka_bootstrap: str,
    unique: str,
    topic: str,
    partitions: int,
    config: dict[str, str],
    kind: str,
    said: str,
) -> None:
    make(kafka_bootstrap, f"{unique}.{topic}", partitions, **config)
    stream = stream_of(kafka_bootstrap, unique)
    stream.ensure_topics()  # leaves what exists as it is
    found = only(stream.check_topics())
    assert (found.topic, found.kind) == (f"{unique}.{topic}", kind)
    assert said in found.message
    assert f"--bootstrap-server {kafka_bootstrap}" in found.message


def test_more_partitions_and_longer_retention_than_asked_for_are_fine(
    kafka_bootstrap: str, unique: str
) -> None:
    make(kafka_bootstrap, f"{unique}.jobs", 7, retention_ms="-1")
    stream = stream_of(kafka_bootstrap, unique)
    stream.ensure_topics()
    assert stream.check_topics() == []


# -- what a broker does by itself -----------------------------------------------------------


def test_none_of_our_clients_has_a_broker_create_a_topic(
    kafka_server: KafkaServer, unique: str
) -> None:
    options = KafkaOptions(
        (kafka_server.bootstrap,), send_timeout_s=1.0, connect_timeout_s=1.0, metadata_age_s=0.2
    )
    stream = KafkaStream(options, specs(unique))
    jobs, advice = (spec.name for spec in specs(unique))
    sink = stream.sink()
    with pytest.raises(StreamUnavailableError, match="has no topic"):
        sink.send([StreamMessage(advice, b"k", b"{}")])
    sink.close()
    with pytest.raises(StreamUnavailableError, match="has no topic"):
        stream.follow(jobs)
    source = stream.source(jobs, "group", lambda *_: {})
    assert eventually(lambda: "has no topic" in told_by(source))
    source.close()
    stream.table(advice).refresh()
    assert len(stream.check_topics()) == 2
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    assert not {jobs, advice} & set(admin.list_topics(timeout=10).topics)


def test_a_topic_that_came_back_by_itself_is_told(kafka_server: KafkaServer, unique: str) -> None:
    stream = stream_of(kafka_server.bootstrap, unique)
    stream.ensure_topics()
    assert stream.check_topics() == []
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    names = [spec.name for spec in specs(unique)]
    for future in admin.delete_topics(names).values():
        future.result(timeout=20)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap})

    def back() -> bool:
        """Somebody else goes on writing."""
        for name in names:
            producer.produce(name, b"{}", b"key")
        producer.flush(5)
        return not any("does not exist" in one.message for one in stream.check_topics())

    assert eventually(back)
    said = [(one.topic, one.kind) for one in stream.check_topics()]
    assert said == [(names[0], "differs"), (names[1], "broken"), (names[1], "differs")]


# -- who may not know ----------------------------------------------------------------------


@pytest.mark.slow
def test_who_may_not_see_the_settings_works_and_says_so(tmp_path: Path, unique: str) -> None:
    server, _ = secure_kafka(tmp_path)
    server.set(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    )
    try:
        server.start()
        stream_of(server.bootstrap, unique).ensure_topics()
        allowed = [
            (ResourceType.TOPIC, f"{unique}.advice", AclOperation.WRITE),
            (ResourceType.TOPIC, f"{unique}.advice", AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, unique, AclOperation.WRITE),
        ]
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for answer in admin.create_acls([_allow(*one) for one in allowed]).values():
            answer.result(timeout=20)
        options = KafkaOptions(
            (server.addresses["SASL"],),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=USER,
            sasl_password=PASSWORD,
        )
        stream = KafkaStream(options, specs(unique))

        def allowed_now() -> bool:
            """The broker learns of the rules a little later."""
            return "DESCRIBE_CONFIGS on it" in stream.check_topics()[1].message

        assert eventually(allowed_now)
        jobs, advice = stream.check_topics()
        assert (jobs.kind, advice.kind) == ("unchecked", "unchecked")
        assert "lacks DESCRIBE on it" in jobs.message
        sink = stream.sink(unique)
        sink.send([StreamMessage(f"{unique}.advice", b"k", b"{}")])
        sink.hold()
        sink.close()
        assert set(stream.table(f"{unique}.advice").refresh()) == {b"k"}
    finally:
        server.stop()


def _allow(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    everywhere = (ResourcePatternType.LITERAL, f"User:{USER}", "*")
    return AclBinding(kind, name, *everywhere, operation, AclPermissionType.ALLOW)


def test_a_topic_with_fewer_copies_than_its_least_in_sync_takes_what_it_gets(
    kafka_bootstrap: str, unique: str
) -> None:
    make(kafka_bootstrap, f"{unique}.jobs", min_insync_replicas="2")
    stream = stream_of(kafka_bootstrap, unique)
    stream.ensure_topics()
    assert stream.check_topics() == []
    sink = stream.sink()
    sink.send([StreamMessage(f"{unique}.jobs", None, b"{}")])
    sink.close()
