"""``tunerd subscribe``: a local file that is kept fresh, and a spool that is sent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from tests.cli.conftest import Said
from tests.integration.daemons import read_events
from tests.servers import wait_until
from tests.servers.kafka import KafkaServer
from tests.test_client import message
from tunerd.client import RecommendationFile

Tunerd = Callable[..., Said]
KEY = "llm|gpu=H100"
EVENT = {"schema": "tunerd.job/1", "event_id": "e", "job_id": "1", "type": "started"}


class Place:
    """Settings, a stream of files, and where the local file is to be."""

    def __init__(self, folder: Path) -> None:
        self.settings, self.file = folder / "tunerd.toml", folder / "local.jsonl"
        self.spool, self.stream = folder / "spool.jsonl", folder / "tunerd-data" / "stream"
        self.settings.write_text("")

    def start(self) -> None:
        self.stream.mkdir(parents=True)

    def publish(self, *values: dict[str, Any] | None, key: str = KEY) -> None:
        with (self.stream / "tunerd.recommendations.jsonl").open("a") as topic:
            for value in values:
                topic.write(json.dumps({"key": key, "value": value}) + "\n")

    def events(self) -> list[Any]:
        topic = self.stream / "tunerd.jobs.jsonl"
        return [json.loads(line) for line in topic.read_text().splitlines()]

    def revision(self, key: str = KEY) -> int | None:
        for line in self.file.read_text().splitlines()[1:]:
            if (found := json.loads(line))["key"] == key:
                return int(found["value"]["revision"])
        return None

    def once(self, tunerd: Tunerd, *more: object) -> Said:
        given = ("--settings", self.settings, "--file", self.file, "--once", *more)
        return tunerd("subscribe", *given)

    @contextmanager
    def running(self, *more: object) -> Iterator["subprocess.Popen[bytes]"]:
        """The command, until the end of the block; what it says is in ``log``."""
        given = ("--settings", self.settings, "--file", self.file, *more)
        command = [sys.executable, "-m", "tunerd", "subscribe", *map(str, given)]
        with self.log.open("wb") as log:
            process = subprocess.Popen(command, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @property
    def log(self) -> Path:
        return self.settings.with_name("log")

    def says(self, words: str) -> Callable[[], bool]:
        return lambda: words in self.log.read_text()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in [name for name in os.environ if name.startswith("TUNERD_")]:
        monkeypatch.delenv(name)
    return Place(tmp_path)


def fresh(share: float = 1.0, **changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    times = {"issued_at": now, "valid_until": now + timedelta(days=7)}
    return message(share, **(times | changes))


def test_the_file_has_what_the_topic_has(tunerd: Tunerd, place: Place) -> None:
    place.start()
    place.publish(fresh(), fresh(revision=2))
    assert place.once(tunerd) == Said(0, "", "")
    chosen = RecommendationFile(place.file).choose(KEY, "1")
    assert chosen is not None
    assert (chosen.kind, chosen.match, place.revision()) == ("exploit", "exact", 2)


def test_a_revision_older_than_the_files_is_dropped(tunerd: Tunerd, place: Place) -> None:
    place.start()
    earlier = datetime.now(UTC) - timedelta(hours=1)
    place.publish(fresh(revision=7))
    assert place.once(tunerd).code == 0
    (place.stream / "tunerd.recommendations.jsonl").write_text("")
    place.publish(fresh(revision=6, issued_at=earlier))
    assert place.once(tunerd).code == 0
    assert place.revision() == 7


def test_an_installation_that_was_set_up_anew_counts_from_one(tunerd: Tunerd, place: Place) -> None:
    place.start()
    earlier = datetime.now(UTC) - timedelta(hours=1)
    place.publish(fresh(revision=70, issued_at=earlier))
    assert place.once(tunerd).code == 0
    (place.stream / "tunerd.recommendations.jsonl").write_text("")
    place.publish(fresh(revision=1))
    assert place.once(tunerd).code == 0
    assert place.revision() == 1


def test_what_the_topic_let_go_of_leaves_the_file(tunerd: Tunerd, place: Place) -> None:
    place.start()
    place.publish(fresh(), None)
    place.publish(fresh(key="llm"), key="llm")
    assert place.once(tunerd).code == 0
    assert (place.revision(), place.revision("llm")) == (None, 1)


def test_without_a_stream_the_file_stays_and_it_says_so(tunerd: Tunerd, place: Place) -> None:
    place.file.write_bytes(b"as it was\n")
    said = place.once(tunerd)
    assert said.code == 1
    assert "no daemon has been there" in said.err
    assert "stays as it is" in said.err
    assert place.file.read_bytes() == b"as it was\n"


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 100, b"{" * 10_000, b'{"key":"a","value":{}}\n']
)
def test_rubbish_in_the_file_is_replaced(tunerd: Tunerd, place: Place, content: bytes) -> None:
    place.start()
    place.publish(fresh())
    place.file.write_bytes(content)
    assert place.once(tunerd).code == 0
    assert place.revision() == 1


def test_a_pipe_in_its_place_is_replaced(tunerd: Tunerd, place: Place) -> None:
    place.start()
    place.publish(fresh())
    os.mkfifo(place.file)
    assert place.once(tunerd).code == 0
    assert place.file.is_file()


def test_what_is_wrong_with_the_call_is_said_at_once(tunerd: Tunerd, place: Place) -> None:
    nowhere = place.file.parent / "nowhere" / "file"
    given = ("--settings", place.settings, "--file", nowhere, "--spool", nowhere)
    said = tunerd("subscribe", *given)
    assert said.code == 2
    assert "--file" in said.err
    assert "--spool" in said.err
    place.settings.write_text("= no TOML")
    assert place.once(tunerd).code == 2
    place.settings.unlink()
    assert place.once(tunerd).code == 2


def test_a_file_that_cannot_be_written_is_an_error(tunerd: Tunerd, place: Place) -> None:
    place.start()
    place.file.mkdir()
    (place.file / "in the way").touch()
    assert place.once(tunerd).code == 2  # click: it is a directory
    place.file = place.file.parent / ("x" * 300)
    said = place.once(tunerd)
    assert said.code == 1
    assert "cannot write" in said.err


def test_the_spool_is_sent_and_emptied(tunerd: Tunerd, place: Place) -> None:
    place.start()
    lines = [json.dumps(EVENT | {"event_id": str(number)}) for number in range(3)]
    place.spool.write_text("\n".join(lines) + "\n\n")
    assert place.once(tunerd, "--spool", place.spool) == Said(0, "", "")
    assert [one["event_id"] for one in place.events()] == ["0", "1", "2"]
    assert not place.spool.exists()


def test_what_was_set_aside_and_not_sent_is_sent_first(tunerd: Tunerd, place: Place) -> None:
    """Somebody killed the one before in the middle of it."""
    place.start()
    aside = place.spool.with_name("spool.jsonl.sending")
    aside.write_text(json.dumps(EVENT) + "\n")
    place.spool.write_text(json.dumps(EVENT | {"event_id": "later"}) + "\n")
    assert place.once(tunerd, "--spool", place.spool).code == 0
    assert [one["event_id"] for one in place.events()] == ["e", "later"]
    assert not aside.exists()


def test_events_wait_while_the_stream_is_away(tunerd: Tunerd, place: Place) -> None:
    place.spool.write_text(json.dumps(EVENT) + "\n")
    said = place.once(tunerd, "--spool", place.spool)
    assert said.code == 1
    assert "events wait in" in said.err
    place.start()
    assert place.once(tunerd, "--spool", place.spool).code == 0
    assert [one["event_id"] for one in place.events()] == ["e"]


def test_an_endless_line_in_the_spool_holds_nothing_up(tunerd: Tunerd, place: Place) -> None:
    place.start()
    place.spool.write_bytes(b"x" * 3_000_000 + b"\n" + json.dumps(EVENT).encode() + b"\n")
    said = place.once(tunerd, "--spool", place.spool)
    assert said.code == 0
    assert "left out" in said.err
    assert [one["event_id"] for one in place.events()] == ["e"]


@pytest.mark.slow
def test_it_follows_says_when_the_stream_goes_and_ends_at_once(place: Place) -> None:
    place.start()
    place.publish(fresh())
    with place.running("--spool", place.spool) as process:
        wait_until(place.file.exists, 20, "a file")
        place.publish(fresh(revision=2))
        wait_until(lambda: place.revision() == 2, 5, "the next revision")
        place.file.unlink()
        wait_until(place.file.exists, 5, "a file that somebody removed is written again")
        place.spool.write_text(json.dumps(EVENT) + "\n")
        wait_until((place.stream / "tunerd.jobs.jsonl").exists, 5, "an event")
        place.stream.rename(place.stream.with_name("gone"))
        wait_until(place.says("stays as it is"), 20, "that the stream is away")
        place.stream.with_name("gone").rename(place.stream)
        wait_until(place.says("is back"), 20, "that the stream is back")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
        assert time.monotonic() - began < 1
    assert place.revision() == 2
    assert not list(place.file.parent.glob(f".{place.file.name}.*"))


@pytest.mark.slow
def test_over_kafka_an_outage_is_said_and_survived(place: Place, kafka_server: KafkaServer) -> None:
    bootstrap, prefix = kafka_server.bootstrap, f"sub-{uuid4().hex[:8]}"
    place.settings.write_text(
        f'[stream]\nkind = "kafka"\n[stream.kafka]\nbootstrap_servers = "{bootstrap}"\n'
        f'[topics]\njobs = "{prefix}.jobs"\nrecommendations = "{prefix}.recommendations"\n'
    )
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics(
        {f"{prefix}.{one}": {"num_partitions": 2} for one in ("jobs", "recommendations")}
    )
    admin.close()

    def publish(value: dict[str, Any]) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        raw = json.dumps(value).encode()
        producer.send(f"{prefix}.recommendations", key=KEY.encode(), value=raw).get(timeout=20)
        producer.close()

    publish(fresh())
    with place.running("--spool", place.spool) as process:
        wait_until(place.file.exists, 30, "a file")
        assert place.revision() == 1
        kafka_server.kill()
        wait_until(place.says("stays as it is"), 40, "that the broker is away")
        place.spool.write_text(json.dumps(EVENT) + "\n")
        assert place.revision() == 1
        kafka_server.restart()
        publish(fresh(revision=2))
        wait_until(lambda: place.revision() == 2, 60, "the next revision")
        assert "is back" in place.log.read_text()
        aside = place.spool.with_name("spool.jsonl.sending")
        wait_until(lambda: not place.spool.exists() and not aside.exists(), 60, "the event")
        kafka_server.freeze()
        try:
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
            assert time.monotonic() - began < 1
        finally:
            kafka_server.thaw()
    events = read_events(bootstrap, f"{prefix}.jobs")
    assert [one["event_id"] for one in events] == ["e"]
