"""Taking the publisher's role over on a real Kafka, from one that died in the middle of sending."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient

from tests.contracts.test_stream import advice
from tests.servers.kafka import KafkaServer
from tests.streams.rigs import KafkaRig, eventually, read
from tunerd.errors import FencedOutError, StreamUnavailableError
from tunerd.streams.base import EVER, StreamMessage, TopicContent, TopicSpec
from tunerd.streams.kafka.options import KafkaOptions
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


def test_the_later_of_two_readers_of_one_name_wins_and_the_earlier_ends_for_good(
    rig: KafkaRig, unique: str
) -> None:
    rig.write([b'{"n": %d}' % n for n in range(10)])
    former, latter = source(rig, unique), source(rig, unique)
    assert len(read(former, 10)) == 10
    assert len(read(latter, 10, timeout_s=10.0)) == 10

    def read_on() -> bool:
        rig.write([b'{"n": 10}'])
        for record in former.poll(0.2, 10):
            former.commit([record.position])
        return False

    told = f"another instance reads {rig.events} as {unique} on Kafka at"
    with pytest.raises(FencedOutError, match=told):
        eventually(read_on, 20.0)
    with pytest.raises(FencedOutError):  # it does not take the name back
        former.poll(0.1, 10)
    former.close()  # and the later one keeps its place
    rig.write([b'{"n": 11}'])

    def goes_on() -> bool:
        return b'{"n": 11}' in [record.value for record in latter.poll(0.2, 100)]

    assert eventually(goes_on, 10.0)
    latter.close()


def source(rig: KafkaRig, instance: str) -> KafkaSource:
    options = replace(rig.options(), instance=instance, session_timeout_s=30.0)
    return KafkaStream(options, rig.specs()).source(
        rig.events, "group", lambda _cluster, _topic, _partitions: {}
    )


def test_who_lost_the_role_does_not_take_it_back(rig: KafkaRig, unique: str) -> None:
    former, latter = rig.stream.sink(unique), rig.again().sink(unique)
    former.send([advice(rig, "key", {"revision": 1})])
    latter.hold()
    with pytest.raises(FencedOutError, match=f"taken over {unique} on Kafka at"):
        former.hold()
    again = rig.stream.sink(unique)
    for attempt in (former, again):
        with pytest.raises(FencedOutError):
            attempt.send([advice(rig, "key", {"revision": 2})])
        with pytest.raises(FencedOutError):
            list(attempt.sent_since([rig.advice], EVER))
    latter.send([advice(rig, "key", {"revision": 3})])
    latter.hold()
    values = [r.value for r in latter.sent_since([rig.advice], EVER)]
    assert values == [b'{"revision": 1}', b'{"revision": 3}']
    latter.close()


def test_a_role_that_was_lost_while_the_broker_was_away_stays_lost(
    rig: KafkaRig, unique: str
) -> None:
    former = rig.stream.sink(unique)
    former.send([advice(rig, "key", {"revision": 1})])
    former.close()  # as after any failure to send
    latter = rig.again().sink(unique)
    latter.send([advice(rig, "key", {"revision": 2})])
    with pytest.raises(FencedOutError):
        rig.stream.sink(unique).hold()
    latter.send([advice(rig, "key", {"revision": 3})])
    latter.close()
    rig.stream.sink().hold()  # without a role there is nothing to lose


def test_whoever_had_the_role_before_takes_it_again_while_nobody_else_wants_it(
    rig: KafkaRig, unique: str
) -> None:
    for revision in (1, 2):
        sink = rig.stream.sink(unique)
        sink.send([advice(rig, "key", {"revision": revision})])
        sink.close()


@pytest.mark.slow
def test_a_transaction_that_the_broker_ended_because_it_took_too_long_is_no_loss_of_the_role(
    tmp_path: Path, unique: str
) -> None:
    """To the client it looks the same: a higher epoch than its own."""
    often = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    server = KafkaServer(tmp_path, {often: "200"})
    try:
        server.start()
        specs = [TopicSpec(unique, TopicContent.JSON, compacted=True)]
        options = KafkaOptions((server.bootstrap,), send_timeout_s=2.0, replication_factor=1)
        stream = KafkaStream(options, specs)
        stream.ensure_topics()
        sink = stream.sink(unique)
        sink.hold()
        # A pause of the process between a transaction's records and its end.
        producer: Any = sink._producer
        producer.begin_transaction()
        producer.send(unique, value=b"{}", key=b"lost").get(timeout=10)
        assert eventually(lambda: _state(server, unique) == "CompleteAbort", 20)
        with pytest.raises(StreamUnavailableError):
            sink.send([StreamMessage(unique, b"key", b"{}")])
        sink = stream.sink(unique)
        sink.send([StreamMessage(unique, b"key", b"{}")])
        assert [r.key for r in sink.sent_since([unique], EVER)] == [b"key"]
        sink.close()
    finally:
        server.stop()


def _state(server: KafkaServer, role: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        found: str = admin.describe_transactions([role])[role].state.value
        return found
    finally:
        admin.close()
