"""What is particular about Kafka: groups, rebalances, roles, logins, and a client with moods."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import TopicPartition
from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd

from tests.contracts.test_stream import follow
from tests.needs import without
from tests.servers import MissingServerError
from tests.servers.kafka import KafkaServer
from tests.servers.secure import PASSWORD, USER, Certificates, secure_kafka
from tests.streams.rigs import KafkaRig, Positions, eventually, read
from tunerd.errors import FencedOutError, StreamUnavailableError
from tunerd.streams.base import (
    StreamMessage,
    StreamRecord,
    TopicContent,
    TopicSpec,
    digest_of,
)
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.source import KafkaSource
from tunerd.streams.kafka.stream import KafkaStream


@pytest.fixture
def rig(kafka_bootstrap: str, unique: str, request: pytest.FixtureRequest) -> KafkaRig:
    return KafkaRig(kafka_bootstrap, unique, lambda: request.getfixturevalue("kafka_server"))


def open_source(rig: KafkaRig, positions: Positions, **options: Any) -> KafkaSource:
    stream = KafkaStream(replace(rig.options(), **options), rig.specs())
    return stream.source(rig.events, "group", positions.restore)


def numbered(first: int, last: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in range(first, last)]


def values(records: list[StreamRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def spread(rig: KafkaRig, partitions: int) -> None:
    """Give the events topic more partitions, before anybody reads it."""
    made = rig.admin.create_partitions([NewPartitions(rig.events, partitions)])
    made[rig.events].result(20)
    assert eventually(
        lambda: len(rig.admin.list_topics(rig.events).topics[rig.events].partitions) == partitions
    )


# -- groups ---------------------------------------------------------------------------------


class Reader:
    """A source on a thread of its own, as each instance has one."""

    def __init__(self, rig: KafkaRig, positions: Positions, stored: threading.Lock) -> None:
        self.found: list[StreamRecord] = []
        self._source = open_source(rig, positions)
        self._positions, self._stored = positions, stored
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            batch = self._source.poll(0.05, 20)
            with self._stored:
                self._positions.keep(batch)
            self.found += batch
            self._source.commit([record.position for record in batch[-1:]])

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._source.close()


def test_two_of_a_group_share_the_partitions_and_take_over_from_each_other(rig: KafkaRig) -> None:
    spread(rig, 4)
    positions, stored = Positions(), threading.Lock()
    readers = [Reader(rig, positions, stored)]
    try:
        rig.write(numbered(0, 200))
        assert eventually(lambda: len(readers[0].found) == 200)
        readers.append(Reader(rig, positions, stored))
        assert eventually(lambda: len(readers[1]._source._placed) == 2)
        assert eventually(lambda: len(readers[0]._source._placed) == 2)
        rig.write(numbered(200, 400))
        assert eventually(lambda: sum(len(r.found) for r in readers) >= 400)
        assert all(len(r.found) > 0 for r in readers)
        readers.pop(0).stop()
        rig.write(numbered(400, 500))
        assert eventually(lambda: len(positions.kept) == 4 and _stored(positions) == 500)
    finally:
        for reader in readers:
            reader.stop()


def _stored(positions: Positions) -> int:
    """Offsets begin at 0 and have no gaps here, so they count the records."""
    return sum(position.offset for position in positions.kept.values())


def test_rebalances_lose_and_repeat_nothing(rig: KafkaRig) -> None:
    """Every record is stored once: what comes again starts exactly at the stored position."""
    spread(rig, 3)
    positions = Positions()
    first, second = open_source(rig, positions), open_source(rig, positions)
    found: list[StreamRecord] = []
    turn = 0

    def all_read() -> bool:
        nonlocal turn, second
        turn += 1
        for source in (first, second):
            batch = source.poll(0.02, 7)
            for record in batch:
                place = record.cluster, record.topic, record.partition
                before = positions.kept.get(place)
                assert record.offset == (before.offset if before else 0)
                positions.keep([record])
            found.extend(batch)
        if turn % 25 == 0:
            second.close()
            second = open_source(rig, positions)
        return len(found) == 300

    rig.write(numbered(0, 300))
    assert eventually(all_read, 40)
    first.close()
    second.close()
    assert sorted(values(found), key=str) == sorted(numbered(0, 300), key=str)


def test_new_partitions_are_read_from_their_beginning(rig: KafkaRig) -> None:
    positions = Positions()
    source = open_source(rig, positions, metadata_age_s=0.3)
    rig.write(numbered(0, 3))
    read(source, 3, positions)
    spread(rig, 3)
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    for n in range(3, 30):
        producer.produce(rig.events, b'{"n": %d}' % n, partition=n % 3)
    assert producer.flush(20) == 0
    found = values(read(source, 27, positions))
    source.close()
    assert sorted(found, key=str) == sorted(numbered(3, 30), key=str)


def test_the_brokers_own_offsets_follow_for_monitoring_and_are_never_read(rig: KafkaRig) -> None:
    positions = Positions()
    source = open_source(rig, positions)
    rig.write(numbered(0, 10))
    records = read(source, 10, positions)
    source.commit([records[6].position])
    watcher = Consumer({"bootstrap.servers": rig.bootstrap, "group.id": "group"})
    (place,) = watcher.assignment() or [_place(rig.events)]
    assert eventually(lambda: watcher.committed([place], timeout=10)[0].offset == 7)
    watcher.close()
    source.close()
    again = open_source(rig, Positions())
    assert values(read(again, 10)) == numbered(0, 10)
    again.close()


def _place(topic: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, 0)


def test_a_reader_that_stands_still_is_made_anew(rig: KafkaRig) -> None:
    positions = Positions()
    source = open_source(rig, positions, stuck_after_s=0.5)
    rig.write(numbered(0, 5))
    read(source, 5, positions)
    stuck = source._consumer
    assert stuck is not None
    stuck.pause(*stuck.assignment())  # as a fault in the client would have it
    rig.write(numbered(5, 10))
    assert values(read(source, 5, positions)) == numbered(5, 10)
    assert source._consumer is not stuck
    source.close()


def test_one_partition_that_stands_still_beside_others_is_noticed(rig: KafkaRig) -> None:
    spread(rig, 2)
    positions = Positions()
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    with closing(open_source(rig, positions, stuck_after_s=0.2)) as source:
        assert eventually(lambda: source.poll(0.1, 10) == [] and len(source._placed) == 2)
        stuck = source._consumer
        assert stuck is not None
        stuck.pause(TopicPartition(rig.events, 1))  # as a fault in the client would have it
        producer.produce(rig.events, b'{"n": 1}', partition=1)

        def comes() -> bool:
            producer.produce(rig.events, b'{"n": 0}', partition=0)
            producer.flush(20)
            batch = source.poll(0.1, 10)
            positions.keep(batch)
            return any(record.partition == "1" for record in batch)

        assert eventually(comes)
        assert source._consumer is not stuck


def test_a_transaction_without_an_end_is_told_while_nothing_is_read_behind_it(
    rig: KafkaRig, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"bootstrap.servers": rig.bootstrap, "transactional.id": f"{rig.events}.x"}
    sender = Producer(options)
    sender.init_transactions(20)
    with closing(open_source(rig, Positions(), stuck_after_s=0.3)) as source:
        rig.write(numbered(0, 3))
        read(source, 3)
        sender.begin_transaction()
        sender.produce(rig.events, b'{"n": 3}')
        assert sender.flush(20) == 0
        rig.write(numbered(4, 6))
        consumer = source._consumer
        assert eventually(lambda: source.poll(0.1, 10) == [] and bool(source.remarks()))
        assert "describe-producers" in source.remarks()[0]
        assert source._consumer is consumer
        sender.commit_transaction(20)
        assert values(read(source, 3)) == numbered(3, 6)
        assert eventually(lambda: source.poll(0.1, 10) == [] and not source.remarks())
    told = [one.getMessage() for one in caplog.records if one.name.startswith("tunerd.")]
    assert len(told) == 1
    assert "neither commits nor aborts" in told[0]


def test_readers_of_another_installation_in_the_group_are_told(rig: KafkaRig) -> None:
    spread(rig, 2)
    quick = {"stuck_after_s": 0.2}
    names = ["mine-01", "mine-02", "other-01"]
    mine, too, other = (open_source(rig, Positions(), instance=name, **quick) for name in names)

    def shared(*sources: KafkaSource) -> bool:
        for source in sources:
            source.poll(0.1, 10)
        return all(source.partitions() for source in sources)

    with closing(mine), closing(other):
        with closing(too):
            assert eventually(lambda: shared(mine, too))
            for _ in range(8):
                shared(mine, too)
            assert mine.remarks() == too.remarks() == []
        assert eventually(lambda: shared(mine, other) and bool(mine.remarks()))
        assert "other-01 at " in mine.remarks()[0]
        other.close()
        assert eventually(lambda: shared(mine) and not mine.remarks())


def test_a_reader_without_work_is_left_alone(rig: KafkaRig) -> None:
    source = open_source(rig, Positions(), stuck_after_s=0.4)
    rig.write(numbered(0, 5))
    read(source, 5)
    consumer = source._consumer
    for _ in range(12):
        assert source.poll(0.1, 10) == []
    assert source._consumer is consumer
    source.close()


# -- records --------------------------------------------------------------------------------


def test_keys_headers_and_tombstones_of_events_are_kept(rig: KafkaRig) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    headers: list[Any] = [("ce_id", b"1"), ("ce_id", b"\xff"), ("empty", b""), ("none", None)]
    producer.produce(rig.events, b"{}", b"\x00key", headers=headers)
    producer.produce(rig.events, None, b"k")
    producer.produce(rig.events, b"{}", b"k" * 100_000, headers=[("long", b"h" * 100_000)])
    assert producer.flush(20) == 0
    source = open_source(rig, Positions())
    one, tombstone, large = read(source, 3)
    source.close()
    assert one.key == b"\x00key"
    assert one.headers == (("ce_id", b"1"), ("ce_id", b"\xff"), ("empty", b""), ("none", b""))
    assert (tombstone.value, tombstone.size) == (None, 0)
    assert large.key is not None
    assert (len(large.key), large.headers, large.value) == (65_536, (), b"{}")


def test_events_of_aborted_transactions_were_never_sent(
    rig: KafkaRig, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": unique})
    producer.init_transactions(20)
    for n in range(4):
        producer.begin_transaction()
        producer.produce(rig.events, b'{"n": %d}' % n)
        producer.flush(20)
        if n % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    positions = Positions()
    source = open_source(rig, positions)
    assert values(read(source, 2, positions, most=1)) == [b'{"n": 0}', b'{"n": 2}']
    assert eventually(lambda: source.poll(0.1, 1) == [] and source.lag() == 0)
    source.close()
    again = open_source(rig, positions)  # the record before its position is a marker
    assert again.poll(1.0, 1) == []
    again.close()
    assert not [one for one in caplog.records if one.name.startswith("tunerd.")]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_events_are_read_or_what_is_missing_is_named(rig: KafkaRig, codec: str) -> None:
    rig.write(numbered(0, 100), **{"compression.type": codec})
    source = open_source(rig, Positions())
    there = {"gzip": has_gzip, "snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}[codec]
    if there():
        assert values(read(source, 100)) == numbered(0, 100)
    else:
        with pytest.raises(StreamUnavailableError, match="install"):
            read(source, 100)
    source.close()


def test_a_position_that_retention_has_overtaken_goes_on_at_what_is_left(
    rig: KafkaRig, caplog: pytest.LogCaptureFixture
) -> None:
    positions = Positions()
    rig.write(numbered(0, 10))
    source = open_source(rig, positions)
    read(source, 4, positions)
    source.close()
    place = _place(rig.events)
    place.offset = 7
    rig.admin.delete_records([place])[place].result(20)
    again = open_source(rig, positions)
    assert values(read(again, 3, positions)) == numbered(7, 10)
    again.close()
    (told,) = [one.getMessage() for one in caplog.records if one.name.startswith("tunerd.")]
    assert told.startswith(
        f"topic {place.topic} partition {place.partition}: up to 3 records were deleted"
    )


def test_retention_that_overtakes_a_reader_in_its_group_is_told(
    rig: KafkaRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.write(numbered(0, 10))
    source = open_source(rig, Positions())
    read(source, 10)
    paused = source._consumer
    assert paused is not None
    place = _place(rig.events)
    mine = TopicPartition(place.topic, place.partition)
    paused.pause(mine)  # a reader that is busy elsewhere, while the topic goes on
    rig.write(numbered(10, 20))
    place.offset = 17
    rig.admin.delete_records([place])[place].result(20)
    paused.resume(mine)
    assert values(read(source, 3)) == numbered(17, 20)
    source.close()
    assert "up to 7 records were deleted" in source.remarks()[0]
    (told,) = [one.getMessage() for one in caplog.records if one.name.startswith("tunerd.")]
    assert told.startswith(
        f"topic {place.topic} partition {place.partition}: up to 7 records were deleted"
    )


# -- sending --------------------------------------------------------------------------------


def test_of_a_key_the_last_record_of_its_partition_counts_whatever_the_clocks(
    rig: KafkaRig,
) -> None:
    ahead_ms = int(time.time() * 1000) + 1_800_000
    producer = Producer({"bootstrap.servers": rig.bootstrap})
    producer.produce(rig.advice, b"1", b"k", partition=0, timestamp=ahead_ms)
    producer.produce(rig.advice, b"2", b"k", partition=0)
    assert producer.flush(20) == 0
    table = rig.stream.table(rig.advice)
    assert table is not None
    with closing(table):
        assert table.refresh()[b"k"].digest == digest_of(b"2")


def test_a_machine_whose_clock_is_refused_is_told_so(rig: KafkaRig) -> None:
    name = f"{rig.events}.now"
    # Kafka 4 refuses what is an hour ahead; here it refuses what is a millisecond behind.
    limit = {"message.timestamp.before.max.ms": "0"}
    rig.admin.create_topics([NewTopic(name, 1, config=limit)])[name].result(20)
    with closing(rig.stream.sink()) as sink:
        with pytest.raises(StreamUnavailableError, match="refuses this machine's time") as error:
            sink.send([StreamMessage(name, b"k", b"{}")])
        assert not re.search(r"\d{13}", str(error.value))  # the same each time, and logged once


def test_recommendations_are_compacted_and_others_are_not(rig: KafkaRig) -> None:
    resources = [ConfigResource(ResourceType.TOPIC, t) for t in (rig.advice, rig.refused)]
    futures = rig.admin.describe_configs(resources)
    policies = [futures[r].result(20)["cleanup.policy"].value for r in resources]
    assert policies == ["compact", "delete"]


def test_partitions_and_copies_of_created_topics_can_be_chosen(
    kafka_bootstrap: str, unique: str
) -> None:
    options = KafkaOptions((kafka_bootstrap,), partitions=5, replication_factor=1)
    KafkaStream(options, [TopicSpec(unique, TopicContent.EVENT)]).ensure_topics()
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    assert len(admin.list_topics(unique, timeout=10).topics[unique].partitions) == 5


def test_who_takes_a_role_over_shuts_the_former_holder_out(rig: KafkaRig, unique: str) -> None:
    def message(n: int) -> StreamMessage:
        return StreamMessage(rig.advice, b"k", json.dumps({"n": n}).encode())

    first, second = rig.stream.sink(unique), rig.again().sink(unique)
    first.send([message(1)])
    second.send([message(2)])
    with pytest.raises(FencedOutError, match="taken over"):
        first.send([message(3)])
    second.send([message(4), message(5)])
    first.close()
    second.close()
    follower = rig.stream.follow(rig.advice)
    found = follow(follower, 4)
    assert follower.poll(0.3) == []
    follower.close()
    assert [json.loads(r.value or b"")["n"] for r in found] == [1, 2, 4, 5]


def test_a_message_that_is_too_large_is_a_value_error_and_the_sink_goes_on(rig: KafkaRig) -> None:
    sink = rig.stream.sink()
    with pytest.raises(ValueError, match="larger"):
        sink.send([StreamMessage(rig.refused, b"k", b"x" * 2_000_000)])
    sink.send([StreamMessage(rig.refused, b"k", b"x")])
    sink.close()


def test_a_batch_that_is_too_large_for_the_topic_is_sent_in_parts(rig: KafkaRig) -> None:
    name = f"{rig.events}.small"
    limit = {"max.message.bytes": "3000"}
    rig.admin.create_topics([NewTopic(name, 1, config=limit)])[name].result(20)
    sink = rig.stream.sink(name)
    sink.send([StreamMessage(name, b"k", b"%d" % n + b"x" * 500) for n in range(20)])
    with pytest.raises(ValueError, match="larger"):
        sink.send([StreamMessage(name, b"k", b"x" * 5000)])
    sink.send([StreamMessage(name, b"k", b"20")])
    sink.close()
    follower = rig.stream.follow(name)
    found = follow(follower, 21)
    follower.close()
    assert [int((record.value or b"").rstrip(b"x")) for record in found] == list(range(21))


def test_a_missing_topic_is_named(rig: KafkaRig) -> None:
    stream = KafkaStream(replace(rig.options(), send_timeout_s=1.0, connect_timeout_s=1.0), [])
    sink = stream.sink()
    with pytest.raises(StreamUnavailableError, match="no topic nowhere"):
        sink.send([StreamMessage("nowhere", b"k", b"{}")])
    sink.close()
    with pytest.raises(StreamUnavailableError, match="no topic nowhere"):
        stream.follow("nowhere")
    source = stream.source("nowhere", "group", Positions().restore)

    def said() -> bool:
        try:
            source.poll(0.1, 1)
        except StreamUnavailableError as error:
            return "no topic nowhere" in str(error)
        return False

    assert eventually(said, 10)
    source.close()


def test_a_frozen_broker_is_noticed_and_what_was_sent_arrives_in_order(
    rig: KafkaRig, unique: str, kafka_server: KafkaServer
) -> None:
    """It holds the connections open and says nothing; what it got it may still write later."""
    patience: dict[str, Any] = {
        "request_timeout_s": 1.0,
        "send_timeout_s": 2.0,
        "connect_timeout_s": 1.0,
    }
    source = open_source(rig, Positions(), **patience)
    rig.write(numbered(0, 1))
    read(source, 1)
    sink = KafkaStream(replace(rig.options(), **patience), rig.specs()).sink(unique)
    sink.send([StreamMessage(rig.advice, b"k", b"0")])
    kafka_server.freeze()
    try:
        started = time.monotonic()
        with pytest.raises(StreamUnavailableError):
            sink.send([StreamMessage(rig.advice, b"k", b"1")])
        assert eventually(lambda: _fails(source), 10)
        assert time.monotonic() - started < 15
    finally:
        kafka_server.thaw()
    assert eventually(lambda: _succeeds(sink, StreamMessage(rig.advice, b"k", b"2")), 20)
    sink.close()
    rig.write(numbered(1, 2))
    assert eventually(lambda: not _fails(source), 20)
    source.close()
    follower = rig.stream.follow(rig.advice)
    found = follow(follower, 2)
    found += follower.poll(0.3)
    follower.close()
    # On a slow machine what was sent again may have been written the first time.
    in_order = [value for value, _ in groupby(values(found))]
    assert in_order in ([b"0", b"2"], [b"0", b"1", b"2"])


def _fails(source: KafkaSource) -> bool:
    try:
        source.poll(0.1, 10)
    except StreamUnavailableError:
        return True
    return False


def _succeeds(sink: Any, message: StreamMessage) -> bool:
    try:
        sink.send([message])
    except StreamUnavailableError:
        return False
    return True


# -- saying what is wrong -------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[KafkaServer, Certificates]]:
    request.getfixturevalue("kafka_bootstrap")  # says why, where there can be no broker
    try:
        server, certificates = secure_kafka(tmp_path_factory.mktemp("secure"))
        server.start()
    except MissingServerError as error:
        without("openssl", str(error))
    yield server, certificates
    server.stop()


def options(secure: tuple[KafkaServer, Certificates], listener: str, **more: Any) -> KafkaOptions:
    server, files = secure
    return KafkaOptions(
        bootstrap_servers=(server.addresses[listener],),
        connect_timeout_s=5.0,
        **{
            "SASL": {"security_protocol": "SASL_PLAINTEXT"},
            "SASLTLS": {"security_protocol": "SASL_SSL", "ssl_cafile": str(files.ca)},
            "TLS": {"security_protocol": "SSL", "ssl_cafile": str(files.ca)},
            "OLD": {"security_protocol": "SSL", "ssl_cafile": str(files.ca)},
        }[listener]
        | more,
    )


LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}


def certificate(secure: tuple[KafkaServer, Certificates]) -> dict[str, str]:
    files = secure[1]
    return {"ssl_certfile": str(files.client), "ssl_keyfile": str(files.client_key)}


@pytest.mark.parametrize("listener", ["SASL", "SASLTLS", "TLS"])
def test_who_may_come_in_can_send_and_read(
    secure: tuple[KafkaServer, Certificates], listener: str, unique: str
) -> None:
    more = certificate(secure) if listener == "TLS" else LOGIN
    stream = KafkaStream(options(secure, listener, **more), [TopicSpec(unique, TopicContent.EVENT)])
    stream.ensure_topics()
    sink = stream.sink()
    sink.send([StreamMessage(unique, None, b"{}")])
    sink.close()
    source = stream.source(unique, "group", Positions().restore)
    assert values(read(source, 1)) == [b"{}"]
    source.close()


NOT_LET_IN = "refused the user name or password|user name, password or sasl_mechanism may be wrong"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listener", "more", "said"),
    [
        ("SASL", LOGIN | {"sasl_password": "Wr0ng-4s-can-be"}, NOT_LET_IN),
        ("SASLTLS", LOGIN | {"sasl_username": "nobody"}, NOT_LET_IN),
        ("SASL", LOGIN | {"sasl_mechanism": "SCRAM-SHA-512"}, "sasl_mechanism"),
        ("SASLTLS", LOGIN | {"ssl_cafile": "stranger"}, "not from an authority"),
        ("SASLTLS", LOGIN | {"ssl_cafile": "/no.pem"}, "ssl_cafile /no.pem cannot be read"),
        ("TLS", {}, "wants a client certificate"),
        ("TLS", {"ssl_certfile": "expired"}, r"expired.pem expired on 2020-02-01 00:00 UTC"),
        ("TLS", {"ssl_certfile": "coming"}, "coming.pem is not valid before 2090-01-01 00:00 UTC"),
        ("TLS", {"ssl_keyfile": "encrypted_key"}, "encrypted.key is encrypted, and tunerd takes"),
        ("TLS", {"ssl_keyfile": "broker"}, "does not belong to ssl_certfile .*client.pem"),
        ("TLS", {"ssl_keyfile": "ca"}, "ssl_keyfile .*ca.pem has no private key"),
        ("TLS", {"ssl_certfile": "client_key"}, "client.key is no PEM file of a certificate"),
        ("TLS", {"ssl_cafile": "client_key"}, "ssl_cafile .*client.key is no PEM file of cert"),
        ("TLS", {"ssl_cafile": "stranger"}, "not from an authority"),
        ("TLS", {"ssl_cafile": "/"}, "ssl_cafile / cannot be read"),
        ("OLD", {}, "its certificate, or that of its authority in ssl_cafile, has expired"),
        ("SASL", LOGIN | {"security_protocol": "SASL_SSL"}, "does not speak TLS"),
        ("SASL", {"security_protocol": "PLAINTEXT"}, "is the security_protocol right"),
        ("TLS", {"security_protocol": "PLAINTEXT"}, "is the security_protocol right"),
    ],
)
def test_why_it_cannot_connect_is_one_sentence_without_the_password(
    secure: tuple[KafkaServer, Certificates], listener: str, more: dict[str, Any], said: str
) -> None:
    if any(name in more for name in ("ssl_certfile", "ssl_keyfile")):
        more = certificate(secure) | more
    more = {name: str(getattr(secure[1], value, value)) for name, value in more.items()}
    chosen = replace(options(secure, listener, **more), connect_timeout_s=1.0)
    source = KafkaStream(chosen, []).source("any", "group", Positions().restore)
    with pytest.raises(StreamUnavailableError, match=said) as raised:
        source.poll(0, 1)
    source.close()
    problem = str(raised.value)
    assert not raised.value.may_pass  # a start does not wait for it to become right
    assert secure[0].addresses[listener] in problem or " /" in problem
    assert "\n" not in problem
    assert chosen.sasl_password is None or chosen.sasl_password not in problem
    assert PASSWORD not in repr(chosen)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("127.0.0.1:1", "refused"),
        ("no-such-host.invalid:9092", "no-such-host.invalid"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_an_address_where_nobody_is_is_named_at_once(server: str, said: str) -> None:
    started = time.monotonic()
    with pytest.raises(StreamUnavailableError, match=re.escape(said)) as raised:
        KafkaStream(KafkaOptions((server,)), []).ensure_topics()
    assert time.monotonic() - started < 5
    assert not raised.value.may_pass


def test_each_broker_has_its_own_reason(secure: tuple[KafkaServer, Certificates]) -> None:
    """One is down, one does not answer, one refuses the password."""
    down, right = "127.0.0.1:1", secure[0].addresses["SASL"]
    wrong = options(secure, "SASL", **(LOGIN | {"sasl_password": "not-this-one"}))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = f"127.0.0.1:{silent.getsockname()[1]}"

        def problem(*servers: str) -> StreamUnavailableError:
            chosen = replace(wrong, bootstrap_servers=servers, connect_timeout_s=1.0)
            with pytest.raises(StreamUnavailableError) as raised:
                KafkaStream(chosen, []).ensure_topics()
            return raised.value

        away = problem(down, slow)
        assert re.search(f"{down}: connection refused", str(away), re.I)
        assert f"{slow}: no answer within 1 s" in str(away)
        assert away.may_pass
        assert problem(slow).may_pass
        assert problem(down, "127.0.0.1:2").may_pass
        refusing = problem(down, right)
    assert re.search(f"{down}: connection refused", str(refusing), re.I)
    assert re.search(f"{right}: it .*user name(,| or) password", str(refusing))
    assert not refusing.may_pass


def test_failed_attempts_leave_no_threads_behind(
    secure: tuple[KafkaServer, Certificates],
) -> None:
    wrong = options(secure, "SASL", **(LOGIN | {"sasl_password": "no"}))
    stream = KafkaStream(replace(wrong, connect_timeout_s=1.0), [])
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(StreamUnavailableError):
            stream.ensure_topics()
    assert threading.active_count() <= before
