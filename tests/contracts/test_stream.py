"""What every kind of stream does, whoever wrote to it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.streams.rigs import (
    JsonlRig,
    KafkaRig,
    Positions,
    Rig,
    eventually,
    nothing_more,
    read,
)
from tunerd.errors import MisconfiguredError, StreamUnavailableError
from tunerd.streams.base import (
    BATCH_BYTES,
    KEPT_BYTES,
    MAX_VALUE_BYTES,
    StreamFollower,
    StreamMessage,
    StreamRecord,
    StreamSource,
)

GROUP = "tunerd"


@pytest.fixture(params=["jsonl", "kafka"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Rig:
    if request.param == "jsonl":
        return JsonlRig(tmp_path / "stream", unique)
    bootstrap = request.getfixturevalue("kafka_bootstrap")
    return KafkaRig(bootstrap, unique, lambda: request.getfixturevalue("kafka_server"))


@pytest.fixture
def positions() -> Positions:
    return Positions()


@pytest.fixture
def source(rig: Rig, positions: Positions) -> Iterator[StreamSource]:
    made = rig.stream.source(rig.events, GROUP, positions.restore)
    yield made
    made.close()


def another(rig: Rig, positions: Positions) -> StreamSource:
    """A source as a restarted process has it."""
    return rig.again().source(rig.events, GROUP, positions.restore)


def numbered(first: int, last: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in range(first, last)]


def values(records: list[StreamRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def follow(follower: StreamFollower, count: int) -> list[StreamRecord]:
    found: list[StreamRecord] = []

    def enough() -> bool:
        found.extend(follower.poll(0.1))
        return len(found) >= count

    assert eventually(enough), f"only {len(found)} of {count}"
    return found


# -- reading --------------------------------------------------------------------------------


def test_everything_is_read_in_order_in_batches_of_the_asked_size(
    rig: Rig, source: StreamSource
) -> None:
    rig.write(numbered(0, 500))
    assert len(source.poll(10, 7)) <= 7
    source.close()
    source = another(rig, Positions())
    records = read(source, 500, most=120)
    source.close()
    assert values(records) == numbered(0, 500)
    assert [r.size for r in records] == [len(v) for v in numbered(0, 500)]
    assert all(r.sha256 is None for r in records)


def test_an_empty_topic_yields_nothing_and_then_what_comes(rig: Rig, source: StreamSource) -> None:
    assert nothing_more(source)
    rig.write([b"{}"])
    assert values(read(source, 1)) == [b"{}"]


def test_each_record_has_a_name_that_no_other_has_and_that_stays(
    rig: Rig, source: StreamSource
) -> None:
    rig.write(numbered(0, 20))
    first = read(source, 20)
    source.close()
    again = another(rig, Positions())
    second = read(again, 20)
    again.close()
    names = [(r.cluster, r.topic, r.partition, r.offset) for r in first]
    assert len(set(names)) == 20
    assert names == [(r.cluster, r.topic, r.partition, r.offset) for r in second]
    assert [r.position for r in first] == [r.position for r in second]


def test_a_restart_goes_on_from_the_stored_positions(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 100))
    found = values(read(source, 37, positions))
    read(source, 11)  # handled by nobody: the process dies before these are stored
    source.close()
    again = another(rig, positions)
    found += values(read(again, 63, positions))
    rig.write(numbered(100, 120))
    found += values(read(again, 20, positions))
    assert nothing_more(again)
    again.close()
    third = another(rig, positions)
    assert nothing_more(third, 1.0)
    third.close()
    assert found == numbered(0, 120)


def test_after_a_reset_it_reads_again_from_the_stored_positions(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 50))
    read(source, 10, positions)
    read(source, 15)
    source.reset()
    assert values(read(source, 40, positions)) == numbered(10, 50)
    positions.kept.clear()
    source.reset()
    assert values(read(source, 50)) == numbered(0, 50)


def test_a_topic_made_anew_while_nobody_read_is_read_from_its_beginning(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 30))
    read(source, 30, positions)
    source.close()
    rig.make_anew()
    rig.write(numbered(500, 560))  # longer than the old one was: the offset alone says nothing
    again = another(rig, positions)
    assert values(read(again, 60, positions)) == numbered(500, 560)
    assert nothing_more(again)
    again.close()


def test_a_topic_made_anew_and_shorter_is_read_from_its_beginning(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 30))
    read(source, 30, positions)
    source.close()
    rig.make_anew()
    rig.write(numbered(500, 503))
    again = another(rig, positions)
    found: list[bytes | None] = []

    def all_read() -> bool:
        with suppress(StreamUnavailableError):  # while a busy broker makes the topic
            batch = again.poll(0.2, 3)
            positions.keep(batch)
            found.extend(values(batch))
        return len(found) >= 3

    assert eventually(all_read, 30), found
    assert found == numbered(500, 503)
    again.close()


@pytest.mark.parametrize("longer", [False, True])
def test_a_topic_made_anew_under_a_running_reader_is_read_from_its_beginning(
    rig: Rig, source: StreamSource, positions: Positions, longer: bool
) -> None:
    rig.write(numbered(0, 30))
    read(source, 30, positions)
    rig.make_anew()
    new = numbered(500, 560) if longer else numbered(500, 503)
    rig.write(new)
    found: list[bytes | None] = []

    def all_read() -> bool:
        try:
            batch = source.poll(0.2, 100)
        except StreamUnavailableError:
            return False  # while the topic is missing
        positions.keep(batch)
        found.extend(values(batch))
        # A broker may give out some from the middle before anybody notices; those come twice.
        return found[-len(new) :] == new

    assert eventually(all_read, 30), found
    assert set(found) == set(new)


def test_positions_of_another_cluster_are_not_believed(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 5))
    read(source, 5, positions)
    source.close()
    moved = Positions()
    for (_, topic, partition), position in positions.kept.items():
        moved.kept["elsewhere", topic, partition] = position
    again = another(rig, moved)
    assert values(read(again, 5)) == numbered(0, 5)
    again.close()


def test_what_restore_raises_comes_through_and_nothing_is_lost(rig: Rig) -> None:
    class StoreIsAwayError(Exception):
        pass

    rig.write(numbered(0, 10))
    failures = [StoreIsAwayError(), StoreIsAwayError()]
    positions = Positions()

    def restore(cluster: str, topic: str, partitions: list[str]) -> object:
        if failures:
            raise failures.pop()
        return positions.restore(cluster, topic, partitions)

    source = rig.stream.source(rig.events, GROUP, restore)  # type: ignore[arg-type]
    seen = 0
    found: list[StreamRecord] = []

    def all_read() -> bool:
        nonlocal seen
        try:
            found.extend(source.poll(0.2, 100))
        except StoreIsAwayError:
            seen += 1
        return len(found) == 10

    assert eventually(all_read)
    source.close()
    assert seen == 2
    assert values(found) == numbered(0, 10)


def test_commits_of_old_and_foreign_positions_are_harmless(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 20))
    early = read(source, 5, positions)
    late = read(source, 5, positions)
    source.commit([late[-1].position])
    source.commit([early[-1].position])
    source.commit([])
    assert values(read(source, 10, positions)) == numbered(10, 20)
    source.close()
    source.commit([late[-1].position])
    again = another(rig, positions)
    again.commit([late[-1].position])
    assert nothing_more(again, 1.0)
    again.close()


@pytest.mark.slow
def test_lag_says_how_much_is_left(rig: Rig, source: StreamSource) -> None:
    assert source.lag() is None
    rig.write(numbered(0, 40))
    read(source, 15, most=15)
    lag = source.lag()
    assert lag is not None
    assert 25 <= lag <= 40
    read(source, 25)
    rig.write(numbered(40, 42))

    def all_read() -> bool:
        source.poll(0.1, 10)
        return source.lag() == 0

    assert eventually(all_read)


# -- what people send -----------------------------------------------------------------------


GARBAGE = [
    b"not json",
    b"\xff\xfe\x00\x01",
    b"\x00",
    b"[" * 100_000,
    b"{" + b"9" * 400,
    "ä😀".encode(),
]


def test_garbage_comes_through_as_it_is(rig: Rig, source: StreamSource) -> None:
    rig.write(GARBAGE)
    assert values(read(source, len(GARBAGE))) == GARBAGE


def test_a_value_of_the_largest_size_is_whole_and_one_byte_more_is_cut(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    whole, more = b"x" * MAX_VALUE_BYTES, b"y" * (MAX_VALUE_BYTES + 1)
    rig.write([whole, more, b"{}"])
    first, second, third = read(source, 3, positions)
    assert (first.value, first.size, first.sha256) == (whole, len(whole), None)
    assert second.value == more[:KEPT_BYTES]
    assert second.size == len(more)
    assert second.sha256 == hashlib.sha256(more).hexdigest()
    assert third.value == b"{}"


@pytest.mark.parametrize("last", [False, True], ids=["between", "last"])
def test_ten_megabytes_stop_nobody(
    rig: Rig, source: StreamSource, positions: Positions, last: bool
) -> None:
    huge = b'{"pad": "' + bytes(range(48, 58)) * 1_048_576 + b'"}'
    rig.write([b"1", huge] + ([] if last else [b"2"]))
    records = read(source, 2, positions)
    assert records[1].size == len(huge)
    assert records[1].value == huge[:KEPT_BYTES]
    assert records[1].sha256 == hashlib.sha256(huge).hexdigest()
    source.close()
    again = another(rig, positions)  # its fingerprint is found again
    if last:
        assert nothing_more(again, 1.0)
        rig.write([b"2"])
    assert values(read(again, 1, positions)) == [b"2"]
    again.close()


def test_a_batch_is_bounded_in_bytes(rig: Rig, source: StreamSource) -> None:
    value = b"z" * 250_000
    rig.write([value] * 100)
    sizes: list[int] = []
    while sum(sizes) < 100 * len(value):
        batch = source.poll(5, 1000)
        assert batch
        sizes.append(sum(r.size for r in batch))
    assert max(sizes) <= BATCH_BYTES + 1024 * 1024


# -- sending --------------------------------------------------------------------------------


def advice(rig: Rig, key: str, value: object, **headers: str) -> StreamMessage:
    body = None if value is None else json.dumps(value, ensure_ascii=False).encode()
    return StreamMessage(
        rig.advice, key.encode(), body, tuple((n, t.encode()) for n, t in headers.items())
    )


def test_what_is_sent_is_followed_with_keys_headers_and_tombstones(rig: Rig) -> None:
    sent = [
        advice(rig, "study|a=1", {"revision": 1, "text": "ä\n\u2028"}, id="r1"),
        advice(rig, "study|b=ü", {"revision": 1}, id="r2", reason="weil es so ist, 100 %"),
        advice(rig, "study|a=1", {"revision": 2, "half": 0.1, "big": 10**300}),
        advice(rig, "study|b=ü", None, id="r4"),
    ]
    sink = rig.stream.sink()
    sink.send(sent[:1])
    sink.send([])
    sink.send(sent[1:])
    sink.close()
    follower = rig.again().follow(rig.advice)
    found = follow(follower, 4)
    follower.close()
    assert [(r.key, r.value, r.headers) for r in found] == [
        (m.key, m.value, m.headers) for m in sent
    ]


def test_raw_bytes_survive_up_to_the_largest_rejected_value(rig: Rig) -> None:
    bodies = [b"", b"\x00\xff\n{", b"{}", bytes(range(256)) * 1024]
    sink = rig.stream.sink()
    sink.send([StreamMessage(rig.refused, b"c/t/0/%d" % n, body) for n, body in enumerate(bodies)])
    sink.close()
    follower = rig.stream.follow(rig.refused)
    found = follow(follower, len(bodies))
    follower.close()
    assert values(found) == bodies
    assert [r.size for r in found] == [len(body) for body in bodies]


def test_sent_events_are_read_like_any_other(rig: Rig, source: StreamSource) -> None:
    sink = rig.stream.sink()
    for value in numbered(0, 3):
        sink.send([StreamMessage(rig.events, None, value)])
    rig.write(numbered(3, 5))
    sink.send([StreamMessage(rig.events, b"key", value) for value in numbered(5, 2000)])
    sink.close()
    assert values(read(source, 2000)) == numbered(0, 2000)


def test_order_per_key_holds_over_many_batches_and_sinks(rig: Rig) -> None:
    for turn in range(3):
        sink = rig.stream.sink()
        for batch in range(5):
            first = (turn * 5 + batch) * 20
            sink.send([advice(rig, f"k{n % 3}", {"n": n}) for n in range(first, first + 20)])
        sink.close()
    follower = rig.stream.follow(rig.advice)
    found = follow(follower, 300)
    follower.close()
    for key in (b"k0", b"k1", b"k2"):
        numbers = [json.loads(r.value or b"")["n"] for r in found if r.key == key]
        assert numbers == sorted(numbers)
    assert len(found) == 300


def test_a_follower_may_begin_at_the_end(rig: Rig) -> None:
    sink = rig.stream.sink()
    sink.send([advice(rig, "old", {})])
    follower = rig.stream.follow(rig.advice, from_beginning=False)
    sink.send([advice(rig, "new", {})])
    sink.close()
    assert [r.key for r in follow(follower, 1)] == [b"new"]
    assert follower.poll(0.2) == []
    follower.close()


# -- topics and reachability ----------------------------------------------------------------


def test_topics_that_exist_are_left_alone(rig: Rig, source: StreamSource) -> None:
    rig.write(numbered(0, 3))
    rig.stream.ensure_topics()
    rig.again(create_topics=False).ensure_topics()
    assert values(read(source, 3)) == numbered(0, 3)


def test_a_missing_topic_that_may_not_be_created_is_named(rig: Rig) -> None:
    rig.advice += "-missing"
    with pytest.raises(MisconfiguredError, match=r"a-missing.*does not exist.*creating is off"):
        rig.again(create_topics=False).ensure_topics()


def test_an_unreachable_stream_is_said_to_be_and_used_again_when_it_is_back(
    rig: Rig, source: StreamSource, positions: Positions
) -> None:
    rig.write(numbered(0, 10))
    found = values(read(source, 10, positions))
    sink = rig.stream.sink()
    sink.send([advice(rig, "k", {"n": 1})])
    with rig.away():
        failures: list[StreamUnavailableError] = []

        def fails() -> bool:
            try:
                source.poll(0.2, 10)
            except StreamUnavailableError as error:
                failures.append(error)
            return bool(failures)

        assert eventually(fails, 8)
        assert "\n" not in str(failures[0])
        source.commit([positions.kept[next(iter(positions.kept))]])
        with pytest.raises(StreamUnavailableError):
            rig.stream.follow(rig.advice).poll(0)
    rig.write(numbered(10, 20))

    def back() -> bool:
        try:
            batch = source.poll(0.2, 100)
        except StreamUnavailableError:
            return False
        positions.keep(batch)
        found.extend(values(batch))
        return len(found) >= 20

    assert eventually(back, 30)
    assert found == numbered(0, 20)

    def sent() -> bool:
        try:
            sink.send([advice(rig, "k", {"n": 2})])
        except StreamUnavailableError:
            return False
        return True

    assert eventually(sent, 30)
    sink.close()
    follower = rig.stream.follow(rig.advice)
    assert json.loads(follow(follower, 2)[-1].value or b"") == {"n": 2}
    follower.close()


# -- taking over ----------------------------------------------------------------------------


def test_a_new_sender_sees_what_the_one_before_it_sent(rig: Rig, unique: str) -> None:
    since = datetime.now(UTC)
    former = rig.stream.sink(unique)
    assert list(former.sent_since([rig.advice, rig.refused], since)) == []
    sent = [
        advice(rig, "a", {"revision": 1, "text": "ä"}, id="r1"),
        advice(rig, "b", {"revision": 1}),
        StreamMessage(rig.refused, None, b"\xff\x00", (("reason", b"no"),)),
        advice(rig, "a", {"revision": 2}),
        advice(rig, "b", None),
    ]
    former.send(sent[:3])
    former.send(sent[3:])
    latter = rig.again().sink(unique)
    found = list(latter.sent_since([rig.advice], since))
    assert last_of_each(found) == {b"a": sent[3].value, b"b": None}
    (refused,) = latter.sent_since([rig.refused], since)
    assert (refused.key, refused.value, refused.headers) == (None, b"\xff\x00", sent[2].headers)
    latter.send([advice(rig, "a", {"revision": 3})])
    found = list(latter.sent_since([rig.advice], since))
    assert [r.value for r in found if r.key == b"a"] == [
        sent[0].value,
        sent[3].value,
        b'{"revision": 3}',
    ]
    former.close()
    latter.close()


def last_of_each(records: list[StreamRecord]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}
