"""The rejected record: the original bytes, and headers that say why and where from."""

import hashlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tunerd.events import RejectedRecord, Rejection, original_headers, rejected_record

KIB = 1024


def record(
    value: bytes | None,
    size: int | None = None,
    sha256: str | None = None,
    original: Sequence[tuple[str, bytes]] = (),
) -> RejectedRecord:
    return rejected_record(
        Rejection("status", "is missing"),
        cluster="c1",
        topic="jobs",
        partition="3",
        offset=17,
        value=value,
        size=size,
        sha256=sha256,
        original=original,
    )


def test_headers_say_why_and_where_from() -> None:
    rejected = record(b"{}")
    assert rejected.id == "c1/jobs/3/17"
    assert rejected.key == b"c1/jobs/3/17"
    assert rejected.value == b"{}"
    assert dict(rejected.headers) == {
        "id": b"c1/jobs/3/17",
        "reason": b"status: is missing",
        "cluster": b"c1",
        "topic": b"jobs",
        "partition": b"3",
        "offset": b"17",
        "size": b"2",
        "sha256": hashlib.sha256(b"{}").hexdigest().encode(),
    }


def test_the_headers_that_make_it_a_cloudevent_are_kept() -> None:
    event = (("ce_specversion", b"1.0"), ("CE_Id", b"e-1"), ("ce_source", "ß/a".encode()))
    kept = record(b"{}", original=event).headers
    assert dict(original_headers(kept)) == {
        "ce_specversion": b"1.0",
        "ce_id": b"e-1",
        "ce_source": "ß/a".encode(),
    }
    assert dict(kept)["id"] == b"c1/jobs/3/17"
    hostile = (("ce_id", b"\xff"), ("ce_source", b"a\0b"), ("ce_type", b"x" * 1025), ("id", b"7"))
    assert original_headers(record(b"{}", original=hostile).headers) == ()


def test_up_to_256_kib_the_value_is_whole_above_it_is_the_first_64() -> None:
    assert record(b"x" * 256 * KIB).value == b"x" * 256 * KIB
    assert record(b"x" * (256 * KIB + 1)).value == b"x" * 64 * KIB


def test_a_record_that_the_stream_cut_short_keeps_its_original_size_and_hash() -> None:
    rejected = record(b"x" * 64 * KIB, size=10**7, sha256="ab" * 32)
    headers = dict(rejected.headers)
    assert (headers["size"], headers["sha256"]) == (b"10000000", b"ab" * 32)
    assert len(rejected.value) == 64 * KIB


def test_a_tombstone_becomes_an_empty_value() -> None:
    assert record(None).value == b""


@given(st.text(st.characters(), max_size=2_000))
def test_a_reason_is_one_short_printable_line(problem: str) -> None:
    reason = Rejection("metrics.x", problem).reason
    assert reason.startswith("metrics.x: ")
    assert reason.isprintable()
    assert len(reason) <= 500
    assert reason.encode()
