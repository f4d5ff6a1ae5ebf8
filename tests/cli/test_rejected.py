"""``tunerd rejected`` and ``tunerd replay-rejected``: through a real ingest and publish."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import STUDY, Installation, Said
from tests.stages.fakes import FakeStream, Heard, Time
from tunerd.connections import stream_of
from tunerd.core.observation import Observation
from tunerd.events import Rejection, read_job, rejected_record
from tunerd.settings import load_settings
from tunerd.settings.studies import load_studies
from tunerd.stages.ingest import IngestStage
from tunerd.stages.publish import PublishStage
from tunerd.store.signals import MOST_SIGNALS
from tunerd.streams.base import StreamMessage

Tunerd = Callable[..., Said]

MAPPING = """
[[mapping]]
name = "ours"
[mapping.when]
kind = "ours"
[mapping.fields]
job_id = "id"
study = { value = "llm" }
status = { value = "succeeded" }
finished_at = "ended"
[mapping.context]
gpu = { value = "H100" }
n_gpus = { value = 8 }
[mapping.config]
tp = { value = 1 }
pp = { value = 1 }
[mapping.metrics]
speed = "speed"
"""


def event(number: int, study: str = "llm", speed: object = 10.0) -> dict[str, object]:
    return {
        "schema": "tunerd.job/1",
        "event_id": f"e{number}",
        "study": study,
        "job_id": f"j{number}",
        "status": "succeeded",
        "finished_at": datetime.now(UTC).isoformat(),
        "context": {"gpu": "H100", "n_gpus": 8},
        "config": {"tp": 1, "pp": 1},
        "metrics": {"speed": speed},
    }


@pytest.fixture
def stream(installation: Installation) -> Path:
    """Its folder, with one good event and six bad ones on the jobs topic."""
    folder = installation.folder / "tunerd-data" / "stream"
    folder.mkdir(parents=True)
    records = [
        json.dumps(event(1)),
        *(json.dumps(event(n, study="vision")) for n in (2, 3, 4)),
        json.dumps(event(5, speed="fast")),
        '{"schema": "tunerd.job/1", "event_id": "\\u001b[2J"}',
        "rubbish\x1b[31m",
    ]
    (folder / "tunerd.jobs.jsonl").write_text("".join(f"{one}\n" for one in records))
    return folder


def pump(installation: Installation) -> None:
    """Ingest and publish until nothing is left, as the daemon does."""
    settings, time, heard = load_settings(installation.file, {}), Time(), Heard()
    time.at = datetime.now(UTC)
    with installation.open_store() as store:
        stream = stream_of(settings)
        stream.ensure_topics()
        ingest = IngestStage(
            stream,
            store,
            settings.topics,
            "group",
            settings.ingest,
            heard,
            time.now,
            time.clock,
        )
        while ingest.step():
            pass
        ingest.close()
        publish = PublishStage(
            stream,
            store,
            settings.publish,
            settings.topics,
            "tunerd",
            heard,
            time.now,
            time.clock,
        )
        while publish.step():
            pass
        publish.close()


def test_reasons_are_counted_with_an_example(
    tunerd: Tunerd, installation: Installation, stream: Path
) -> None:
    del stream
    pump(installation)
    said = tunerd("rejected", "--settings", installation.file)
    assert said.code == 0, said.err
    assert "\x1b" not in said.out
    first = said.out.splitlines()[0].split()
    assert first[0] == "3"
    assert "study" in said.out
    assert "fast" in said.out
    assert "6 records rejected for 4 kinds of reason." in said.out
    found = tunerd("rejected", "--reason", "STUDY", "--json", "--settings", installation.file).json
    assert found["records"] == 3
    assert "/tunerd.jobs/" in found["reasons"][0]["latest"]["id"]


def test_what_would_be_accepted_now_is_sent_again_once(
    tunerd: Tunerd, installation: Installation, stream: Path
) -> None:
    pump(installation)
    jobs = stream / "tunerd.jobs.jsonl"
    before = jobs.read_text()
    said = tunerd("replay-rejected", "--settings", installation.file)
    assert "0 records sent again, 6 stay rejected." in said.out
    assert jobs.read_text() == before

    file = installation.study_file.with_name("vision.toml")
    file.write_text(STUDY.replace('"llm"', '"vision"'))
    study = next(one for one in load_studies(file.parent) if one.name == "vision")
    with installation.open_store() as store:
        now = datetime.now(UTC)
        store.publish_generation(study.name, study.content_hash, study.text, "test", now)
    dry = tunerd("replay-rejected", "--dry-run", "--json", "--settings", installation.file).json
    assert (dry["accepted_now"], dry["sent"]) == (3, 0)
    assert jobs.read_text() == before
    for _ in range(2):  # twice does no harm
        said = tunerd("replay-rejected", "--settings", installation.file)
        assert "3 records sent again, 3 stay rejected." in said.out
        pump(installation)
    with installation.open_store() as store:
        assert [one.job_id for one in store.observations("vision")] == ["j2", "j3", "j4"]
    assert tunerd("rejected", "--json", "--settings", installation.file).json["records"] == 6


def test_a_binary_cloudevent_goes_again_with_its_headers(
    tunerd: Tunerd, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a stream with headers, which a folder of lines has not."""
    value = json.dumps({name: v for name, v in event(1).items() if name != "event_id"}).encode()
    headers = (("ce_specversion", b"1.0"), ("ce_id", b"e1"), ("ce_source", b"slurm/a"))
    rejected = rejected_record(
        Rejection("study", "there is no study 'llm'"),
        cluster="c",
        topic="tunerd.jobs",
        partition="0",
        offset=3,
        value=value,
        original=headers,
    )
    stream = FakeStream()
    stream.sent.append(StreamMessage("tunerd.rejected", rejected.key, value, rejected.headers))
    monkeypatch.setattr("tunerd.connections.stream_of", lambda _settings: stream)
    said = tunerd("replay-rejected", "--settings", installation.file)
    assert said.out == "1 record sent again, 0 stay rejected.\n"
    (_, again) = stream.sent
    assert (again.topic, again.value, again.headers) == ("tunerd.jobs", value, headers)
    assert isinstance(read_job(again.value, again.headers, datetime.now(UTC)), Observation)


@pytest.mark.slow
def test_one_signal_too_many_stays_rejected(
    tunerd: Tunerd, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    stream = FakeStream()
    monkeypatch.setattr("tunerd.connections.stream_of", lambda _settings: stream)
    for name in ("s0", "more"):
        record = {"schema": "tunerd.signal/1", "name": name, "time": now.isoformat(), "value": 1}
        rejected = rejected_record(
            Rejection("labels", "there are 1,000 signals already"),
            cluster="c",
            topic="tunerd.jobs",
            partition="0",
            offset=len(stream.sent),
            value=json.dumps(record).encode(),
        )
        stream.sent.append(
            StreamMessage("tunerd.rejected", rejected.key, rejected.value, rejected.headers)
        )
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_signal_points([(f"s{n}", now, 1.0) for n in range(MOST_SIGNALS)], now)
    said = tunerd("replay-rejected", "--dry-run", "--settings", installation.file)
    assert said.out.endswith("1 record would be sent again, 1 stay rejected.\n")


def test_nothing_was_rejected(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("rejected", "--settings", installation.file)
    assert (said.code, said.out) == (0, "0 records rejected for 0 kinds of reason.\n")
    said = tunerd("replay-rejected", "--settings", installation.file)
    assert said.out == "0 records sent again, 0 stay rejected.\n"


def test_a_mapping_that_was_added_counts(
    tunerd: Tunerd, installation: Installation, stream: Path
) -> None:
    """A record of another program, which nothing knew when it came."""
    record = {"kind": "ours", "id": "j9", "ended": datetime.now(UTC).isoformat(), "speed": 5.0}
    (stream / "tunerd.jobs.jsonl").write_text(json.dumps(record) + "\n")
    pump(installation)
    said = tunerd("replay-rejected", "--settings", installation.file)
    assert said.out.endswith("0 records sent again, 1 stay rejected.\n")
    (installation.folder / "ours.toml").write_text(MAPPING)
    installation.file.write_text(
        installation.file.read_text() + '[ingest]\nmappings = "ours.toml"\n'
    )
    said = tunerd("replay-rejected", "--dry-run", "--settings", installation.file)
    assert said.out == "1 record would be sent again, 0 stay rejected.\n", said.out + said.err
