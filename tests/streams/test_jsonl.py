"""What is particular about a folder: torn lines, rotation, full disks, compaction."""

import gzip
import json
import multiprocessing
import os
import resource
import shutil
import signal
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.rigs import JsonlRig, Positions, read
from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import (
    StreamMessage,
    StreamRecord,
    TopicContent,
    TopicSpec,
    digest_of,
)
from tunerd.streams.jsonl.source import JsonlSource
from tunerd.streams.jsonl.stream import JsonlStream


@pytest.fixture
def rig(tmp_path: Path, unique: str) -> JsonlRig:
    return JsonlRig(tmp_path / "stream", unique)


@pytest.fixture
def positions() -> Positions:
    return Positions()


@pytest.fixture
def source(rig: JsonlRig, positions: Positions) -> Iterator[JsonlSource]:
    made = open_source(rig, positions)
    yield made
    made.close()


def open_source(rig: JsonlRig, positions: Positions) -> JsonlSource:
    return rig.again().source(rig.events, "group", positions.restore)


def take(source: JsonlSource, positions: Positions | None = None) -> list[bytes | None]:
    """All that is there now."""
    found: list[StreamRecord] = []
    while batch := source.poll(0, 3):
        found += batch
    if positions is not None:
        positions.keep(found)
    return [record.value for record in found]


def lines(first: int, last: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in range(first, last)]


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


# -- lines ----------------------------------------------------------------------------------


def test_a_torn_line_waits_for_its_newline(
    rig: JsonlRig, source: JsonlSource, positions: Positions
) -> None:
    append(rig.path, b'{"n": 1}\n{"n"')
    assert take(source, positions) == [b'{"n": 1}']
    append(rig.path, b": 2}")
    assert take(source, positions) == []
    append(rig.path, b"\n")
    assert take(source, positions) == [b'{"n": 2}']


def test_a_torn_line_survives_a_restart_and_may_be_taken_back(
    rig: JsonlRig, source: JsonlSource, positions: Positions
) -> None:
    append(rig.path, b'{"n": 1}\n{"n": 2')
    assert take(source, positions) == [b'{"n": 1}']
    os.truncate(rig.path, 9)
    append(rig.path, b'{"other": "and longer"}\n')
    assert take(source, positions) == [b'{"other": "and longer"}']
    append(rig.path, b"{")
    take(source, positions)
    source.close()
    again = open_source(rig, positions)
    assert take(again) == []
    append(rig.path, b"}\n")
    assert take(again) == [b"{}"]
    again.close()


def test_blank_lines_are_no_events_and_carriage_returns_stay(
    rig: JsonlRig, source: JsonlSource, positions: Positions
) -> None:
    append(rig.path, b'\n\n  \n{"n": 1}\r\n\r\n\t\n')
    assert take(source, positions) == [b'{"n": 1}\r']
    append(rig.path, b'\n{"n": 2}\n')
    source.close()
    again = open_source(rig, positions)
    assert take(again) == [b'{"n": 2}']
    again.close()


def test_a_line_of_fifty_megabytes_takes_little_memory(
    rig: JsonlRig, source: JsonlSource, positions: Positions
) -> None:
    with rig.path.open("ab") as file:
        for _ in range(50):
            file.write(b"x" * 1_000_000)
    tracemalloc.start()
    assert take(source, positions) == []
    append(rig.path, b"\n{}\n")
    records = read(source, 2, positions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (records[0].size, records[1].value) == (50_000_000, b"{}")
    assert peak < 8_000_000


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_happens_each_line_is_read_once_and_in_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Pieces of lines are appended, the file is rotated, the reader restarts, in any order."""
    rig = JsonlRig(tmp_path_factory.mktemp("any") / "stream", "any")
    positions = Positions()
    source = open_source(rig, positions)
    expected: list[bytes] = []
    found: list[bytes | None] = []
    torn = b""
    try:
        for turn in range(data.draw(st.integers(1, 25))):
            action = data.draw(st.sampled_from(["append", "rotate", "poll", "restart", "reset"]))
            if action == "append":
                text = data.draw(st.binary(max_size=12))
                append(rig.path, text)
                *whole, torn = (torn + text).split(b"\n")
                expected += [line for line in whole if line.strip()]
            elif action == "rotate":
                rotate(rig, f"-{turn:02d}")
                rig.path.touch()
                torn = b""
            elif action == "poll":
                found += take(source, positions)
            elif action == "reset":
                source.reset()
            else:
                source.close()
                source = open_source(rig, positions)
        assert found + take(source) == expected
    finally:
        source.close()


# -- files that come and go -----------------------------------------------------------------


def rotate(rig: JsonlRig, name: str) -> Path:
    """As logrotate does: a running writer goes on in the renamed file until it reopens."""
    rotated = rig.path.with_name(rig.path.name + name)
    rig.path.rename(rotated)
    return rotated


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(
    rig: JsonlRig, source: JsonlSource, positions: Positions
) -> None:
    rig.write(lines(0, 3))
    assert take(source, positions) == lines(0, 3)
    old = rotate(rig, ".1")
    rig.write(lines(5, 7))
    append(old, b"\n".join(lines(3, 5)) + b"\n")
    assert take(source, positions) == lines(3, 7)
    append(old, b'{"late": true}\n')
    rig.write(lines(7, 8))
    assert sorted(take(source, positions), key=str) == [b'{"late": true}', *lines(7, 8)]


@pytest.mark.parametrize(
    "names", [[".2", ".1"], ["-20261120", "-20261121"], [".2026-11-20T00:00", ".old"]]
)
def test_files_that_were_rotated_while_away_are_found_oldest_first(
    rig: JsonlRig, source: JsonlSource, positions: Positions, names: list[str]
) -> None:
    rig.write(lines(0, 3))
    assert take(source, positions) == lines(0, 3)
    source.close()
    rig.write(lines(3, 5))
    rotate(rig, names[0])
    time.sleep(0.02)  # file systems stamp times in steps
    rig.write(lines(5, 8))
    rotate(rig, names[1])
    rig.write(lines(8, 9))
    again = open_source(rig, positions)
    assert take(again, positions) == lines(3, 9)
    again.close()


def test_a_removed_file_is_read_to_its_end_while_it_is_open(
    rig: JsonlRig, source: JsonlSource
) -> None:
    rig.write(lines(0, 5))
    assert len(source.poll(0, 2)) == 2
    rig.path.unlink()
    rig.write(lines(5, 7))
    assert take(source) == lines(2, 7)


@pytest.mark.parametrize("running", [True, False], ids=["running", "away"])
def test_copytruncate_loses_and_repeats_nothing(
    rig: JsonlRig, source: JsonlSource, positions: Positions, running: bool
) -> None:
    rig.write(lines(0, 5))
    assert take(source, positions) == lines(0, 5)
    rig.write(lines(5, 7))
    if not running:
        source.close()
    shutil.copy(rig.path, rig.path.with_name(f"{rig.path.name}.1"))
    os.truncate(rig.path, 0)
    rig.write(lines(7, 9))
    if not running:
        source = open_source(rig, positions)
    assert take(source, positions) == lines(5, 9)
    source.close()
    again = open_source(rig, positions)
    assert take(again) == []
    again.close()


def test_a_file_that_was_written_anew_and_is_longer_is_read_from_its_beginning(
    rig: JsonlRig, source: JsonlSource, positions: Positions
) -> None:
    rig.write(lines(0, 5))
    assert take(source, positions) == lines(0, 5)
    for first in (100, 200):
        rig.path.write_bytes(b"".join(line + b"\n" for line in lines(first, first + 50)))
        assert take(source, positions) == lines(first, first + 50)
        source.reset()


def test_other_files_and_compressed_ones_are_left_alone(rig: JsonlRig, source: JsonlSource) -> None:
    rig.write(lines(0, 1))
    name = rig.path.name
    rig.path.with_name(f"{name}.1.gz").write_bytes(gzip.compress(b"{}\n"))
    for other in (f"{name}.swp", f"{name}~", f"{name}x", f"x{name}", f"{name}.tmp"):
        rig.path.with_name(other).write_bytes(b"no\n")
    assert take(source) == lines(0, 1)


def test_looking_for_nothing_costs_little(rig: JsonlRig, source: JsonlSource) -> None:
    rig.write(lines(0, 1))
    for number in range(30):
        rig.path.with_name(f"{rig.path.name}.{number}").write_bytes(b"{}\n")
    take(source)
    before = time.process_time()
    assert source.poll(1.0, 10) == []
    assert time.process_time() - before < 0.2


def test_lag_is_exact_for_a_megabyte_and_about_right_beyond(
    rig: JsonlRig, source: JsonlSource
) -> None:
    rig.write(lines(0, 10))
    source.poll(0, 4)
    assert source.lag() == 6
    rig.write([b'{"pad": "' + b"x" * 90 + b'"}'] * 50_000)
    lag = source.lag()
    assert lag is not None
    assert abs(lag - 50_006) < 500


# -- writing --------------------------------------------------------------------------------


def advice(rig: JsonlRig, key: str, value: object) -> StreamMessage:
    body = None if value is None else json.dumps(value).encode()
    return StreamMessage(rig.advice, key.encode(), body)


def written(rig: JsonlRig, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (rig.folder / f"{topic}.jsonl").read_bytes().splitlines()]


def test_a_line_is_what_the_contract_says(rig: JsonlRig) -> None:
    sink = rig.stream.sink()
    sink.send(
        [
            StreamMessage(rig.advice, "ä|b=1".encode(), b'{ "x":\n 1.50 }', (("id", b"7"),)),
            StreamMessage(rig.advice, b"k", None),
            StreamMessage(rig.refused, b"k", b"{}", (("reason", "nö\n".encode()),)),
        ]
    )
    assert written(rig, rig.advice) == [
        {"key": "ä|b=1", "value": {"x": 1.5}, "headers": {"id": "7"}},
        {"key": "k", "value": None, "headers": {}},
    ]
    assert written(rig, rig.refused) == [
        {"key": "k", "value": "e30=", "headers": {"reason": "nö\n"}}
    ]


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (StreamMessage("nowhere", None, b"{}"), "no topic nowhere"),
        (StreamMessage("any.a", b"k", b"{no"), "not JSON"),
        (StreamMessage("any.r", b"k", b"x" * 5_000_000), "larger"),
        (StreamMessage("any.e", None, b"two\nlines"), "not JSON"),
        (StreamMessage("any.e", None, b" "), "empty"),
        (StreamMessage("any.e", b"k", None), "empty"),
    ],
)
def test_what_can_never_be_sent_is_a_value_error_and_writes_nothing(
    tmp_path: Path, message: StreamMessage, wrong: str
) -> None:
    rig = JsonlRig(tmp_path / "stream", "any")
    with pytest.raises(ValueError, match=wrong):
        rig.stream.sink().send([advice(rig, "k", 1), message])
    assert written(rig, rig.advice) == []


def test_what_a_crash_left_of_our_line_goes_before_the_next(rig: JsonlRig) -> None:
    sink = rig.stream.sink()
    sink.send([advice(rig, "a", {"n": 1})])
    append(rig.folder / f"{rig.advice}.jsonl", b'{"key": "b", "val' + b"x" * 100_000)
    follower = rig.stream.follow(rig.advice)
    assert [r.key for r in follower.poll(0)] == [b"a"]
    sink.send([advice(rig, "c", {"n": 2})])
    assert [r.key for r in follower.poll(0)] == [b"c"]
    follower.close()
    assert [line["key"] for line in written(rig, rig.advice)] == ["a", "c"]


def test_what_a_crash_left_of_another_programs_line_gets_its_newline(
    rig: JsonlRig, source: JsonlSource
) -> None:
    append(rig.path, b'{"torn": ')
    rig.stream.sink().send([StreamMessage(rig.events, None, b"{}")])
    assert take(source) == [b'{"torn": ', b"{}"]


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """Have every file of this process full at a size, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_leaves_nothing_half_written(rig: JsonlRig) -> None:
    sink = rig.stream.sink()
    sink.send([advice(rig, "a", {"n": 1})])
    path = rig.folder / f"{rig.advice}.jsonl"
    before = path.read_bytes()
    batch = [advice(rig, f"k{n}", {"pad": "x" * 200}) for n in range(20)]
    with full_after(1000), pytest.raises(StreamUnavailableError, match="cannot write"):
        sink.send(batch)
    assert path.read_bytes() == before
    sink.send(batch)
    assert [line["key"] for line in written(rig, rig.advice)] == [
        "a",
        *(f"k{n}" for n in range(20)),
    ]


def small(rig: JsonlRig, compact_bytes: int = 10_000) -> JsonlStream:
    return JsonlStream(rig.folder, rig.specs(), compact_bytes=compact_bytes)


def test_a_compacted_topic_stays_small_and_keeps_the_last_value_of_each_key(
    rig: JsonlRig,
) -> None:
    sink = small(rig).sink()
    path = rig.folder / f"{rig.advice}.jsonl"
    os.chmod(path, 0o640)
    largest = 0
    for n in range(500):
        sink.send([advice(rig, f"k{n % 7}", {"n": n, "pad": "x" * 100})])
        largest = max(largest, path.stat().st_size)
    sink.send([advice(rig, "k3", None)])
    assert largest < 12_000
    for n in range(500, 600):
        sink.send([advice(rig, f"k{n % 2}", {"n": n, "pad": "x" * 100})])
    last = {line["key"]: line["value"] for line in written(rig, rig.advice)}
    assert {key: value["n"] for key, value in last.items() if value is not None} == {
        "k0": 598,
        "k1": 599,
        "k2": 499,
        "k4": 494,
        "k5": 495,
        "k6": 496,
    }
    assert not [line for line in written(rig, rig.advice) if line["value"] is None]
    assert path.stat().st_mode & 0o777 == 0o640
    assert {p.suffix for p in rig.folder.iterdir()} <= {".jsonl", ".lock", ".cluster-id"}


def test_a_topic_without_garbage_is_not_rewritten_again_and_again(rig: JsonlRig) -> None:
    sink = small(rig).sink()
    path = rig.folder / f"{rig.advice}.jsonl"
    inode = path.stat().st_ino
    for n in range(300):
        sink.send([advice(rig, f"k{n}", {"pad": "x" * 100})])
    assert path.stat().st_ino == inode
    assert len(written(rig, rig.advice)) == 300


def test_a_follower_outlives_compaction(rig: JsonlRig) -> None:
    stream = small(rig)
    sink, follower = stream.sink(), stream.follow(rig.advice)
    last: dict[bytes | None, int] = {}

    def look() -> None:
        while batch := follower.poll(0):
            for record in batch:
                last[record.key] = json.loads(record.value or b"")["n"]

    for n in range(400):
        sink.send([advice(rig, f"k{n % 5}", {"n": n, "pad": "x" * 100})])
        if n % 17 == 0:
            look()
    look()
    follower.close()
    assert last == {b"k%d" % k: 395 + k for k in range(5)}


def test_compaction_without_room_keeps_what_was_sent(rig: JsonlRig) -> None:
    sink = small(rig, 5000).sink()
    with full_after(6000):
        for n in range(30):  # the temporary file would have room; the folder takes none
            sink.send([advice(rig, "k", {"n": n, "pad": "x" * 100})])
    assert written(rig, rig.advice)[-1]["value"]["n"] == 29


@pytest.mark.slow
def test_several_processes_append_and_compact_at_once(rig: JsonlRig) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=send_many, args=(rig, k)) for k in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0, 0]
    found = written(rig, rig.advice)
    for k in range(3):
        numbers = [line["value"]["n"] for line in found if line["key"] == f"k{k}"]
        assert numbers == sorted(numbers)
        assert numbers[-1] == 199


def send_many(rig: JsonlRig, k: int) -> None:
    sink = small(rig, 5000).sink()
    for n in range(200):
        sink.send([advice(rig, f"k{k}", {"n": n, "pad": "x" * 50})])


def test_the_folder_has_one_name_for_all(tmp_path: Path) -> None:
    topics = [TopicSpec("t", TopicContent.EVENT)]
    streams = [JsonlStream(tmp_path, topics) for _ in range(3)]
    assert len({stream.cluster_id() for stream in streams}) == 1
    assert JsonlStream(tmp_path, topics).cluster_id() == streams[0].cluster_id()
    assert [p.name for p in tmp_path.iterdir()] == [".cluster-id"]


# -- what a topic says of each key -------------------------------------------------------------


def test_a_table_reads_on_and_reads_anew_what_others_deleted_emptied_or_replaced(
    tmp_path: Path,
) -> None:
    spec = TopicSpec("advice", TopicContent.JSON, compacted=True)
    stream = JsonlStream(tmp_path, [spec])
    stream.ensure_topics()
    sink, table, path = stream.sink(), stream.table("advice"), tmp_path / "advice.jsonl"

    def send(key: bytes, value: bytes | None) -> None:
        sink.send([StreamMessage("advice", key, value)])

    send(b"a", b'{"n":1}')
    send(b"b", b'{"n":2}')
    assert set(table.refresh()) == {b"a", b"b"}
    assert table.changed is None
    assert table.refresh()[b"a"].digest == digest_of(b'{"n":1}')
    assert table.changed == set()
    send(b"b", None)
    assert table.refresh()[b"b"].digest is None
    assert table.changed == {b"b"}
    path.unlink()
    assert table.refresh() == {}
    assert table.changed is None
    send(b"a", b'{"n":3}')
    assert table.refresh()[b"a"].digest == digest_of(b'{"n":3}')
    path.write_bytes(b"")
    assert table.refresh() == {}
    assert table.changed is None
    path.write_bytes(b'garbage\x00\n{"key":1}\n{"key":"c","value":{"n":4}}\n' + b"x" * 100)
    assert table.refresh()[b"c"].digest == digest_of(b'{"n":4}')
    table.close()
