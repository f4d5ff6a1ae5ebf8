"""Hundreds of kinds of broken events between good ones, through a real Kafka.

None may stop the daemon; each must be on the rejected topic exactly once, by its position, with a
reason that names the field and with what was sent; every good event must be learned. An
independent client looks.
"""

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, make_topic, running
from tests.broken_events import STUDY, BrokenEvent, broken_events, good_event
from tests.rejected import STUDY_TEXT, faults, read_rejected

LARGEST = 16 * 2**20
KINDS = 200


def send(
    bootstrap: str, topic: str, events: list[BrokenEvent]
) -> tuple[int, dict[str, BrokenEvent]]:
    """Send each broken event between good ones. Returns the number of distinct good events, and
    the broken ones by where they are."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": LARGEST})
    broken: dict[str, BrokenEvent] = {}
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
        broken[f"{topic}/0/{offset}"] = event
        put(event.value, event.headers)
        if good % 50 == 0:
            producer.flush()
    # The conflict depends on history, so it is made here: the first good event, changed.
    other = json.dumps(good_event("good-1", now, job_id="another")).encode()
    broken[f"{topic}/0/{offset}"] = BrokenEvent("an id with other content", "event_id", other)
    put(other)
    # And an honest duplicate, which is dropped without a word.
    put(json.dumps(good_event("good-2", now)).encode())
    if producer.flush(60):
        raise RuntimeError("Kafka did not take all events")
    return good, broken


def main() -> int:
    """Run it."""
    options = arguments(__doc__).parse_args()
    bars = Bars("broken_events")
    with kafka_broker(options) as bootstrap, tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), {STUDY: STUDY_TEXT}, bootstrap, f"broken-{time.time_ns()}")
        make_topic(bootstrap, daemon.jobs, 1, max_message_bytes=str(LARGEST))
        events = broken_events(datetime.now(UTC))
        if options.quick:
            events = events[::6]
        kinds = len(events)
        bars.hold("kinds of broken events", kinds, kinds >= KINDS or options.quick, f"{KINDS}")
        with running(daemon):
            assert daemon.process is not None
            good, broken = send(bootstrap, daemon.jobs, events)
            daemon.wait_for(f'tunerd_learned_sequence{{study="{STUDY}"}}', good, 120)
            daemon.wait_for('tunerd_ingest_records_total{outcome="duplicate"}', 1, 60)
            daemon.wait_for('tunerd_published_messages_total{kind="rejected"}', len(broken), 60)
            bars.hold("daemon went on", int(daemon.process.poll() is None), True, "yes")
            told = daemon.metrics()
        for what, name in (
            ("good events stored", 'tunerd_ingest_records_total{outcome="accepted"}'),
            ("good events learned", f'tunerd_learned_sequence{{study="{STUDY}"}}'),
        ):
            bars.hold(what, int(told[name]), told[name] == good, f"{good}")
        for what, wrong in faults(broken, read_rejected(bootstrap, daemon.rejected)).items():
            for line in wrong[:5]:
                print(f"    {what}: {line}")
            bars.hold(f"broken events: {what}", len(wrong), not wrong, "0")
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
