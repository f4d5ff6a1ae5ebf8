"""Taking the publisher's role over on a real Kafka, from one that died in the middle of sending."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaException, Producer

from tests.contracts.test_stream import advice
from tests.servers.kafka import KafkaServer
from tests.streams.rigs import KafkaRig, eventually, read
from tunerd.streams.kafka.source import KafkaSource
from tunerd.streams.kafka.stream import KafkaStream


@pytest.fixture
def rig(kafka_bootstrap: str, unique: str, request: pytest.FixtureRequest) -> KafkaRig:
    def server() -> KafkaServer:
        found: KafkaServer = request.getfixturevalue("kafka_server")
        return found

    return KafkaRig(kafka_bootstrap, unique, server)


def test_what_a_dead_publisher_had_not_committed_is_not_there(rig: KafkaRig, unique: str) -> None:
    since = datetime.now(UTC)
    dead = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": unique})
    dead.init_transactions(20)
    for revision, committed in ((1, True), (2, False)):
        dead.begin_transaction()
        dead.produce(rig.advice, b'{"revision": %d}' % revision, b"key")
        dead.flush(20)
        if committed:
            dead.commit_transaction(20)
    sink = rig.stream.sink(unique)
    assert [r.value for r in sink.sent_since([rig.advice], since)] == [b'{"revision": 1}']
    sink.send([advice(rig, "key", {"revision": 2})])
    values = [r.value for r in sink.sent_since([rig.advice], since)]
    assert values == [b'{"revision": 1}', b'{"revision": 2}']
    with pytest.raises(KafkaException):
        dead.commit_transaction(20)
    sink.close()


def test_a_reader_that_comes_back_under_its_name_need_not_wait_for_the_one_that_died(
    rig: KafkaRig, unique: str
) -> None:
    rig.write([b'{"n": %d}' % n for n in range(20)])
    died = source(rig, unique)
    assert len(read(died, 20)) == 20  # and is never closed: it still belongs to the group
    back = source(rig, unique)
    assert len(read(back, 20, timeout_s=3.0)) == 20
    back.close()
    other = source(rig, f"{unique}-other")
    assert eventually(lambda: bool(other.poll(0.1, 1)), 3.0)  # closing left the group
    other.close()
    died.close()


def source(rig: KafkaRig, instance: str) -> KafkaSource:
    options = replace(rig.options(), instance=instance, session_timeout_s=30.0)
    return KafkaStream(options, rig.specs()).source(
        rig.events, "group", lambda _cluster, _topic, _partitions: {}
    )
