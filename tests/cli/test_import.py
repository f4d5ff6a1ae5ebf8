"""``tunerd import`` up to the jobs topic; what follows is in ``tests/integration``."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import STUDY, Installation, Said
from tunerd.core.observation import Observation
from tunerd.errors import StreamUnavailableError
from tunerd.events import read_job
from tunerd.lab.importing import sending
from tunerd.streams.jsonl.sink import JsonlSink

Tunerd = Callable[..., Said]
HEADER = "gpu,n_gpus,tp,pp,speed,day"
MAPPING = '[mapping]\nfinished_at = "day"\n'


def table(folder: Path, *rows: str, name: str = "jobs.csv", header: str = HEADER) -> Path:
    file = folder / name
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def rows(count: int) -> list[str]:
    """Jobs of different speed, newest first."""
    days = [f"2024-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(count)]
    return [f"H100,8,2,1,{place}.5,{day}" for place, day in enumerate(reversed(days))]


def on_topic(installation: Installation) -> list[Observation]:
    """What the jobs topic has."""
    path = installation.folder / "tunerd-data" / "stream" / "tunerd.jobs.jsonl"
    found = [read_job(line, (), datetime.now(UTC)) for line in path.read_bytes().splitlines()]
    assert all(isinstance(one, Observation) for one in found)
    return [one for one in found if isinstance(one, Observation)]


@pytest.fixture
def sends(installation: Installation, tunerd: Tunerd) -> Callable[..., Said]:
    """Import into the study without waiting for a daemon."""
    installation.study_file.write_text(STUDY + MAPPING)

    def command(*arguments: object, study: object = "llm") -> Said:
        return tunerd("import", "--settings", installation.file, "--send-only", study, *arguments)

    return command


@pytest.mark.slow
def test_own_events_of_jobs_that_all_failed_are_sent(
    installation: Installation, sends: Tunerd
) -> None:
    """They teach what runs, as they do when they come live; and a later one may have run."""
    installation.study_file.write_text(STUDY)  # own events need no mapping
    file = installation.folder / "events.jsonl"

    def write(count: int, *more: dict[str, Any], metrics: dict[str, float]) -> None:
        failed = [
            own_event(i, status="out_of_memory", metrics=metrics, minute=i % 60)
            for i in range(count)
        ]
        file.write_text("".join(json.dumps(one) + "\n" for one in [*failed, *more]))

    write(7, metrics={})
    said = sends(file)
    assert (said.code, "7 sent" in said.out) == (0, True)
    assert "begins with jobs without 'speed': they teach what runs" in said.err
    assert {one.status for one in on_topic(installation)} == {"out_of_memory"}
    write(1_100, own_event(2_000, status="succeeded", metrics={"speed": 3.5}), metrics={})
    assert sends(file).code == 0
    assert [one.metrics for one in on_topic(installation) if one.metrics] == [{"speed": 3.5}]
    write(7, metrics={"sped": 1.0})  # something was measured: then the name is wrong
    said = sends(file)
    assert (said.code, "no column for the objective, 'speed'" in said.err) == (2, True)


def own_event(number: int, *, minute: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "schema": "tunerd.job/1",
        "type": "completed",
        "source": "sim",
        "event_id": f"e{number}",
        "study": "llm",
        "job_id": f"j{number}",
        "attempt": 1,
        "finished_at": f"2026-11-01T00:{minute:02}:00Z",
        "context": {"gpu": "H100", "n_gpus": 8},
        "config": {"tp": 2, "pp": 1},
        **more,
    }


def test_jobs_are_sent_oldest_first_and_marked(installation: Installation, sends: Tunerd) -> None:
    said = sends(table(installation.folder, *rows(50)))
    assert said.code == 0, said.err
    assert "50 rows, of which 50 are jobs (50 with speed; 50 succeeded)" in said.out
    found = on_topic(installation)
    assert [one.metrics["speed"] for one in found] == [place + 0.5 for place in range(49, -1, -1)]
    assert all(one.history for one in found)
    assert found[0].context == {"gpu": "H100", "n_gpus": 8}
    assert found[0].config == {"tp": 2, "pp": 1}
    assert list((installation.folder / "tunerd-data" / "imports").iterdir()) == []


def test_importing_again_sends_the_same_events(installation: Installation, sends: Tunerd) -> None:
    file = table(installation.folder, *rows(20), *rows(3))
    sends(file)
    first = on_topic(installation)
    assert len({one.event_id for one in first}) == 23
    longer = table(installation.folder, *rows(20), "H100,8,4,1,9,2024-03-01", *rows(3))
    sends(longer)
    again = on_topic(installation)[23:]
    known = {(one.event_id, one.content_hash) for one in first}
    assert len(again) == 24
    assert sum((one.event_id, one.content_hash) in known for one in again) == 23


def test_what_cannot_be_used_is_counted_and_written(
    installation: Installation, sends: Tunerd
) -> None:
    bad = "H100,8,two,1,3.5,2024-01-01"
    file = table(installation.folder, *rows(5), bad, bad, "x,y", "H100,8,2,1,,2024-01-01")
    said = sends(file, "--json", "--rejects", installation.folder / "rejects.jsonl")
    assert said.code == 0
    told = said.json
    assert (told["rows"], told["usable"], told["sent"]) == (9, 5, 5)
    assert told["unusable"] == {
        "config.tp: expected an integer": 2,
        "row: has 2 fields, the header has 6": 1,
        "metrics.speed: is missing, and so is a status": 1,
    }
    entries = [json.loads(line) for line in Path(told["rejects"]).read_text().splitlines()]
    assert [one["row"] for one in entries] == [6, 7, 8, 9]
    assert entries[0]["field"] == "config.tp"
    assert entries[0]["found"] == "the text 'two'"
    assert entries[0]["values"]["tp"] == "two"
    assert entries[2]["text"] == "x,y"


def test_rejects_have_a_place_of_their_own(installation: Installation, sends: Tunerd) -> None:
    said = sends(table(installation.folder, *rows(1), "x,y"))
    [found] = (installation.folder / "tunerd-data" / "imports").iterdir()
    assert f"1 could not be used, see {found}" in said.out
    assert len(found.read_text().splitlines()) == 1


def test_nothing_that_can_be_used(installation: Installation, sends: Tunerd) -> None:
    said = sends(table(installation.folder, "H100,8,two,1,3.5,2024-01-01"))
    assert said.code == 1
    assert "1 could not be used" in said.out
    assert not (installation.folder / "tunerd-data" / "stream").exists()


def test_a_dry_run_sends_nothing(installation: Installation, tunerd: Tunerd) -> None:
    other = installation.folder / "elsewhere.toml"
    other.write_text(STUDY.replace('"llm"', '"new"') + MAPPING)
    said = tunerd(
        *("import", "--settings", installation.file, "--dry-run", other),
        table(installation.folder, *rows(5), "x,y"),
    )
    assert said.code == 0, said.err
    assert "6 rows, of which 5 are jobs" in said.out
    assert "Nothing was sent" in said.out
    assert not (installation.folder / "tunerd-data" / "stream").exists()
    one = table(installation.folder, *rows(1))
    said = tunerd("import", "--settings", installation.file, "--dry-run", other, one)
    assert "1 row, of which 1 is a job" in said.out
    assert not (installation.folder / "tunerd-data" / "imports").exists()


def test_a_mapping_beside_the_study(installation: Installation, sends: Tunerd) -> None:
    mapping = installation.folder / "old.toml"
    mapping.write_text('columns = { speed = { column = "kspeed", factor = 1000 } }\n')
    header = HEADER.replace("speed", "kspeed")
    file = table(installation.folder, "H100,8,2,1,0.5,2024-01-01", header=header)
    said = sends(file, "--mapping", mapping)
    assert said.code == 0, said.err
    [found] = on_topic(installation)
    assert found.metrics == {"speed": 500.0}
    assert found.finished_at.year == 1970  # this mapping says nothing of days
    mapping.write_text('columns = { speed = "nothing", tp = "tensor" }\nlabels = ["queue"]\n')
    said = sends(file, "--mapping", mapping)
    assert said.code == 2
    assert said.err.count("old.toml: mapping.") == 3
    assert "it has gpu, n_gpus, tp, pp, kspeed, day" in said.err


def test_only_studies_that_the_daemon_will_know(installation: Installation, sends: Tunerd) -> None:
    file = table(installation.folder, *rows(2))
    assert sends(file, study=installation.study_file).code == 0
    said = sends(file, study="lm")
    assert said.code == 2
    assert "there is no study 'lm'" in said.err
    assert "did you mean 'llm'?" in said.err
    other = installation.folder / "new.toml"
    other.write_text(STUDY.replace('"llm"', '"new"'))
    said = sends(file, study=other)
    assert said.code == 2
    assert f"cp {other} {installation.folder / 'studies'}/" in said.err
    other.write_text(STUDY.replace("approve", "publish"))
    said = sends(file, study=other)
    assert said.code == 2
    assert "is another version of 'llm'" in said.err


def test_a_table_that_is_none(installation: Installation, sends: Tunerd) -> None:
    said = sends(installation.folder / "nothing.csv")
    assert said.code == 2
    assert "there is no such file" in said.err


def test_an_import_that_was_stopped_goes_on(
    installation: Installation, sends: Tunerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "BATCH", 10)
    sent, send = [0], JsonlSink.send

    def breaks(self: JsonlSink, messages: Any) -> None:
        if sent[0] == 3:
            raise StreamUnavailableError("the folder is gone")
        sent[0] += 1
        send(self, messages)

    file = table(installation.folder, *rows(100), "x,y")
    with monkeypatch.context() as broken:
        broken.setattr(JsonlSink, "send", breaks)
        said = sends(file)
    assert said.code == 1
    assert "the folder is gone" in said.err
    said = sends(file)
    assert said.code == 0
    assert "Going on where an import of these tables stopped (30 of 100 jobs sent)" in said.err
    assert "101 rows, of which 100 are jobs" in said.out
    assert "1 could not be used" in said.out
    found = on_topic(installation)
    assert len(found) == len({one.event_id for one in found}) == 100
