"""Hundreds of kinds of broken events between good ones, through a real Kafka.

None may stop the daemon; each must be on the rejected topic exactly once, by its position, with a
reason that names the field; every good event must be learned. An independent client looks.
"""

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, make_topic, running
from tests.broken_events import BrokenEvent, broken_events, good_event

LARGEST = 16 * 2**20
STUDY = """
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
CONFLICT = BrokenEvent("the same id with other content", "event_id", None)


def send(bootstrap: str, topic: str, events: list[BrokenEvent]) -> tuple[int, dict[int, str]]:
    """Send each broken event between good ones. Returns the number of distinct good events, and
    the field that each rejected offset must name."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": LARGEST})
    expected: dict[int, str] = {}
    offset = good = 0

    def put(value: bytes | None, headers: Any = ()) -> None:
        nonlocal offset
        producer.produce(topic, value, headers=list(headers), partition=0)
        producer.poll(0)
        offset += 1

    now = datetime.now(UTC)
    for event in events:
        good += 1
        put(json.dumps(good_event(f"good-{good}", now)).encode())
        expected[offset] = event.field
        put(event.value, event.headers)
        if good % 50 == 0:
            producer.flush()
    # The conflict depends on history, so it is made here: the first good event, changed.
    expected[offset] = CONFLICT.field
    put(json.dumps(good_event("good-1", now, job_id="another")).encode())
    # And an honest duplicate, which is dropped without a word.
    put(json.dumps(good_event("good-2", now)).encode())
    producer.flush()
    return good, expected


def rejected(bootstrap: str, topic: str) -> list[dict[str, str]]:
    """Headers of everything on the rejected topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looker",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": LARGEST,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        record = consumer.poll(10)
        if record is None:
            raise RuntimeError(f"Kafka stopped answering in the middle of {topic}")
        if record.error() is not None:
            ended += 1
            continue
        headers: Any = record.headers() or []
        found.append({name: (raw or b"").decode() for name, raw in headers})
    consumer.close()
    return found


def judge(bars: Bars, expected: dict[int, str], found: list[dict[str, str]]) -> None:
    """Hold what was rejected against what should have been."""
    by_offset: dict[int, list[str]] = {}
    for headers in found:
        by_offset.setdefault(int(headers["offset"]), []).append(headers["reason"])
    missing = [offset for offset in expected if offset not in by_offset]
    extra = [offset for offset in by_offset if offset not in expected]
    twice = [offset for offset, reasons in by_offset.items() if len(reasons) > 1]
    unnamed = [
        (expected[offset], reasons[0])
        for offset, reasons in by_offset.items()
        if offset in expected and not reasons[0].startswith(expected[offset])
    ]
    for field, reason in unnamed[:5]:
        print(f"    should name {field}: {reason}")
    bars.hold("broken events not rejected", len(missing), not missing, "0")
    bars.hold("rejected more than once", len(twice), not twice, "0")
    bars.hold("good events rejected", len(extra), not extra, "0")
    bars.hold("reasons that do not name the field", len(unnamed), not unnamed, "0")


def main() -> int:
    """Run it."""
    options = arguments(__doc__).parse_args()
    bars = Bars("broken_events")
    with kafka_broker(options) as bootstrap, tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), {"s": STUDY}, bootstrap, f"broken-{time.time_ns()}")
        make_topic(bootstrap, daemon.jobs, 1, max_message_bytes=str(LARGEST))
        events = broken_events(datetime.now(UTC))[: 60 if options.quick else None]
        bars.hold("kinds of broken events", len(events), len(events) >= 200 or options.quick, "200")
        with running(daemon):
            assert daemon.process is not None
            good, expected = send(bootstrap, daemon.jobs, events)
            name = 'tunerd_learned_sequence{study="llm-pretrain"}'
            daemon.wait_for(name, good, 120)
            daemon.wait_for('tunerd_ingest_records_total{outcome="rejected"}', len(expected), 60)
            daemon.wait_for('tunerd_published_messages_total{kind="rejected"}', len(expected), 60)
            bars.hold("daemon went on", int(daemon.process.poll() is None), True, "yes")
            learned = int(daemon.metric(name))
        bars.hold("good events learned", learned, learned == good, f"{good}")
        judge(bars, expected, rejected(bootstrap, daemon.rejected))
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
