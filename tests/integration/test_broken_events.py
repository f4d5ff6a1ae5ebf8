"""Broken events of all kinds between good ones: none stops the daemon, each is on the rejected
topic exactly once with a reason, every good event is learned."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from tests.broken_events import STUDY, BrokenEvent, broken_events, good_event
from tests.integration.daemons import PATIENCE_S, Daemon
from tests.rejected import STUDY_TEXT, Rejected, faults, read_rejected

NOW = datetime.now(UTC)
LARGEST = 900_000
"""Bytes that a topic takes without being asked to take more."""


def good(number: int, **changes: str) -> bytes:
    return json.dumps(good_event(f"good-{number}", NOW, **changes)).encode()


def conflict() -> BrokenEvent:
    """The first good event's id with another content: depends on what went before."""
    return BrokenEvent("a conflict", "event_id", good(0, job_id="another"))


def settled(daemon: Daemon, count: int) -> int:
    """Wait until the good ones are learned and everything is sent; how many were stored."""
    daemon.learned(count, STUDY)
    return daemon.study(STUDY).last_sequence


def test_on_kafka(tmp_path: Path, kafka_bootstrap: str, unique: str) -> None:
    events = [one for one in broken_events(NOW)[::3] if len(one.value or b"") < LARGEST]
    events.append(conflict())
    daemon = Daemon(tmp_path, kafka_bootstrap, unique, {STUDY: STUDY_TEXT})
    jobs = f"{unique}.jobs"
    try:
        daemon.start()
        producer = Producer({"bootstrap.servers": kafka_bootstrap})
        sent = {}
        for i, event in enumerate(events):
            producer.produce(jobs, good(i), partition=0)
            producer.produce(jobs, event.value, headers=list(event.headers), partition=0)
            sent[f"{jobs}/0/{2 * i + 1}"] = event
        # One more good one, so that all before it have been read when it is learned.
        producer.produce(jobs, good(len(events)), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        assert settled(daemon, len(events) + 1) == len(events) + 1
        found = read_rejected(kafka_bootstrap, f"{unique}.rejected")
        assert {kind: some for kind, some in faults(sent, found).items() if some} == {}
        assert daemon.stop()[0] == 0
    finally:
        daemon.end()


def test_on_a_folder(tmp_path: Path) -> None:
    """Whatever fits into a line, up to 10 MB of it."""
    lines = [
        one
        for one in broken_events(NOW)
        if one.value is not None
        and one.value.strip()
        and b"\n" not in one.value
        and not one.headers
    ]
    assert len(lines) > 300
    lines.append(conflict())
    daemon = Daemon(tmp_path, studies={STUDY: STUDY_TEXT})
    folder = tmp_path / "data" / "stream"
    jobs, rejected = "tunerd.jobs", "tunerd.rejected"
    try:
        daemon.start()
        partition = (folder / f"{jobs}.jsonl").stat()
        sent, offset, written = {}, 0, []
        for i, event in enumerate(lines):
            written.append(good(i) + b"\n")
            offset += len(written[-1])
            sent[f"{jobs}/{partition.st_dev}:{partition.st_ino}/{offset}"] = event
            written.append((event.value or b"") + b"\n")
            offset += len(written[-1])
        written.append(good(len(lines)) + b"\n")
        with (folder / f"{jobs}.jsonl").open("ab") as file:
            file.writelines(written)
        assert settled(daemon, len(lines) + 1) == len(lines) + 1
        found = []
        for line in (folder / f"{rejected}.jsonl").read_text().splitlines():
            record = json.loads(line)
            value = base64.b64decode(record["value"])
            found.append(Rejected(record["key"], value, record["headers"]))
        assert {kind: some for kind, some in faults(sent, found).items() if some} == {}
        assert daemon.stop()[0] == 0
    finally:
        daemon.end()
