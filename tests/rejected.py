"""What must be true of the rejected topic after broken events were sent between good ones."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.broken_events import BrokenEvent

__all__ = ["STUDY_TEXT", "Rejected", "faults", "read_rejected"]

STUDY_TEXT = """
schema = 1
name = "llm-pretrain"
mode = "publish"
[objective]
metric = "tokens_per_second_per_gpu"
goal = "maximize"
unit = "tokens/s/GPU"
[context]
n_gpus = { type = "int", scale = "log" }
[parameters]
tp = { type = "int", values = [1, 2, 4, 8] }
"""
"""The study of :func:`tests.broken_events.good_event`, small enough to be tuned in no time."""

WHOLE, CUT = 256 * 1024, 64 * 1024
"""Bytes (contract, rejected record): a value is kept up to the first, of more the second."""


@dataclass(frozen=True)
class Rejected:
    """A record of the rejected topic."""

    key: str
    value: bytes
    headers: Mapping[str, str]


def faults(sent: Mapping[str, BrokenEvent], found: Sequence[Rejected]) -> dict[str, list[str]]:
    """What is wrong, by kind: ``sent`` are the broken events by where they were in their topic,
    ``topic/partition/offset``."""
    by_place: dict[str, Rejected] = {}
    ids = Counter(one.key for one in found)
    wrong: dict[str, list[str]] = {
        "rejected more than once": [key for key, count in ids.items() if count > 1],
        "rejected though good": [],
        "not rejected": [],
        "reason does not name the field": [],
        "not as it was sent": [],
    }
    for one in found:
        place = "/".join(one.headers[name] for name in ("topic", "partition", "offset"))
        by_place[place] = one
        if not one.key == one.headers["id"] == f"{one.headers['cluster']}/{place}":
            wrong["not as it was sent"].append(f"{one.key}: id or position")
        if place not in sent:
            wrong["rejected though good"].append(f"{place}: {one.headers['reason']}")
    for place, event in sent.items():
        record = by_place.get(place)
        if record is None:
            wrong["not rejected"].append(event.kind)
            continue
        if not record.headers["reason"].startswith(event.field):
            text = f"{event.kind}: {record.headers['reason']!r}, not {event.field!r}"
            wrong["reason does not name the field"].append(text)
        value = event.value or b""
        kept = value if len(value) <= WHOLE else value[:CUT]
        told = (record.headers["size"], record.headers["sha256"])
        if (record.value, *told) != (kept, str(len(value)), hashlib.sha256(value).hexdigest()):
            wrong["not as it was sent"].append(f"{event.kind}: value, size or digest")
    return wrong


def read_rejected(bootstrap: str, topic: str) -> list[Rejected]:
    """The whole topic, by a client that knows nothing of tunerd."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "looker", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found: list[Rejected] = []
    ended = 0
    while ended < len(partitions):
        record = consumer.poll(10)
        assert record is not None, f"Kafka stopped answering in the middle of {topic}"
        if record.error() is not None:
            ended += 1
            continue
        raw: Any = record.headers() or []
        headers = {name: text.decode() for name, text in raw}
        key, value = record.key() or b"", record.value() or b""
        found.append(Rejected(key.decode(), value, headers))
    consumer.close()
    return found
