"""Why an event was not accepted, and the record that says so on the rejected topic.

A rejection names the field and says what would be right; it quotes at most a few characters of
the event, so that a reason can go into logs, headers and metrics without carrying raw content.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tunerd.events.printable import printable

__all__ = [
    "MAX_EVENT_BYTES",
    "MAX_REASON_CHARACTERS",
    "TRUNCATED_BYTES",
    "RejectedRecord",
    "Rejection",
    "kib",
    "original_headers",
    "rejected_record",
]

MAX_EVENT_BYTES = 256 * 1024
"""Contract: job event, "at most 256 KiB"."""

TRUNCATED_BYTES = 64 * 1024
"""What is kept of a larger one (contract: rejected record)."""

MAX_REASON_CHARACTERS = 500

ORIGINAL = "original."
"""What a header of the rejected record begins with that the original had."""
KEPT_HEADERS = ("content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time")
"""Headers of the original that say what it is: those of a CloudEvent."""
LONGEST_HEADER = 1024
"""Bytes; a longer one is not kept, as no id and no source is that long."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """An event that was not accepted: the field at fault and what is wrong with it."""

    field: str
    """Path of the field, e.g. ``metrics.tokens_per_second``; ``value`` for the event as a whole."""
    problem: str

    @property
    def reason(self) -> str:
        """One printable line for a person: ``field: problem``."""
        line = printable(f"{self.field}: {self.problem}")
        return (
            line if len(line) <= MAX_REASON_CHARACTERS else line[: MAX_REASON_CHARACTERS - 1] + "…"
        )


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """What goes through the outbox to the rejected topic; the id makes a repeat recognisable."""

    id: str
    """``cluster/topic/partition/offset``, also the message's key."""
    key: bytes
    value: bytes
    """The original bytes, up to 256 KiB; of a larger record the first 64 KiB."""
    headers: tuple[tuple[str, bytes], ...]


def rejected_record(
    rejection: Rejection,
    *,
    cluster: str,
    topic: str,
    partition: str,
    offset: int,
    value: bytes | None,
    size: int | None = None,
    sha256: str | None = None,
    original: Iterable[tuple[str, bytes]] = (),
) -> RejectedRecord:
    """The rejected record of the contract for the record at this position.

    `size` (bytes) and `sha256` (hex) are those of the original where the stream cut it short;
    otherwise they follow from `value`. A tombstone becomes an empty value. Of its headers,
    `original`, those that make it a CloudEvent are kept.
    """
    body = b"" if value is None else value
    original_size = len(body) if size is None else size
    digest = hashlib.sha256(body).hexdigest() if sha256 is None else sha256
    position = f"{cluster}/{topic}/{partition}/{offset}"
    headers = {
        "id": position,
        "reason": rejection.reason,
        "cluster": cluster,
        "topic": topic,
        "partition": partition,
        "offset": str(offset),
        "size": str(original_size),
        "sha256": digest,
    }
    return RejectedRecord(
        id=position,
        key=position.encode(),
        value=body if original_size <= MAX_EVENT_BYTES else body[:TRUNCATED_BYTES],
        headers=(
            *((name, text.encode()) for name, text in headers.items()),
            *_kept(original),
        ),
    )


def original_headers(headers: Iterable[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """The headers that a rejected record's original had, as far as they are kept."""
    return tuple(
        (name.removeprefix(ORIGINAL), text) for name, text in headers if name.startswith(ORIGINAL)
    )


def _kept(original: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    named = {name.lower(): text for name, text in original}
    for name in KEPT_HEADERS:
        if name in named and len(named[name]) <= LONGEST_HEADER and _is_text(named[name]):
            yield f"{ORIGINAL}{name}", named[name]


def _is_text(header: bytes) -> bool:
    try:
        return "\0" not in header.decode()
    except UnicodeDecodeError:
        return False


def kib(size: int) -> str:
    """`size` bytes for a person: ``300 KiB``, ``10 MiB``."""
    return f"{size / 2**20:.3g} MiB" if size >= 2**20 else f"{-(-size // 1024)} KiB"
