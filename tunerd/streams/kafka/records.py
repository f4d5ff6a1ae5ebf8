"""Kafka's records as ours: bounded in size, whatever was sent."""

import hashlib
from typing import Any

from tunerd.streams.base import KEPT_BYTES, MAX_VALUE_BYTES, StreamRecord

__all__ = ["as_record"]


def as_record(cluster: str, raw: Any) -> StreamRecord:
    """Turn a ConsumerRecord into a Record.

    Oversize values are cut; headers and keys that are larger than 64 KiB, which nothing reads,
    are dropped and cut.
    """
    value: bytes | None = raw.value
    size = 0 if value is None else len(value)
    sha256 = None
    if value is not None and size > MAX_VALUE_BYTES:
        sha256 = hashlib.sha256(value).hexdigest()
        value = value[:KEPT_BYTES]
    key: bytes | None = raw.key
    if key is not None and len(key) > KEPT_BYTES:
        key = key[:KEPT_BYTES]
    headers: tuple[tuple[str, bytes], ...] = ()
    if raw.headers:
        headers = tuple((name, text or b"") for name, text in raw.headers)
        if sum(len(name) + len(text) for name, text in headers) > KEPT_BYTES:
            headers = ()
    return StreamRecord(
        cluster,
        raw.topic,
        str(raw.partition),
        raw.offset,
        raw.offset + 1,
        key,
        value,
        headers,
        size,
        sha256,
        raw.timestamp,
    )
