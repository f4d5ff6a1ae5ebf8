"""Why an event was not accepted, and the record that says so on the rejected topic.

A rejection names the field and says what would be right; it quotes at most a few characters of
the event, so that a reason can go into logs, headers and metrics without carrying raw content.
"""

import hashlib
from dataclasses import dataclass

from tunerd.events.printable import printable

__all__ = [
    "MAX_EVENT_BYTES",
    "MAX_REASON_CHARACTERS",
    "TRUNCATED_BYTES",
    "RejectedRecord",
    "Rejection",
    "kib",
    "rejected_record",
]

MAX_EVENT_BYTES = 256 * 1024
"""Contract: job event, "at most 256 KiB"."""

TRUNCATED_BYTES = 64 * 1024
"""What is kept of a larger one (contract: rejected record)."""

MAX_REASON_CHARACTERS = 500


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
) -> RejectedRecord:
    """The rejected record of the contract for the record at this position.

    `size` (bytes) and `sha256` (hex) are those of the original where the stream cut it short;
    otherwise they follow from `value`. A tombstone becomes an empty value.
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
        headers=tuple((name, text.encode()) for name, text in headers.items()),
    )


def kib(size: int) -> str:
    """`size` bytes for a person: ``300 KiB``, ``10 MiB``."""
    return f"{size / 2**20:.3g} MiB" if size >= 2**20 else f"{-(-size // 1024)} KiB"
