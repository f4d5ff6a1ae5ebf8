"""``tunerd import`` with real processes: to the first recommendation, and through any kill."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.core.tuning import TEXT, random_jobs
from tests.integration.daemons import PATIENCE_S, Daemon, events
from tunerd.connections import stream_of
from tunerd.errors import TunerdError
from tunerd.settings import load_settings
from tunerd.stages.ingest import IngestStage
from tunerd.store import Store, open_store

STUDY = TEXT.replace('"publish"', '"observe"') + "[mapping]\nfinished_at = 'end'\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Daemon]:
    """An installation on a folder in which no daemon runs yet."""
    daemon = Daemon(tmp_path / "place", studies={"toy": STUDY})
    yield daemon
    daemon.end()


def table(folder: Path, count: int, name: str = "old.csv", seed: int = 1) -> Path:
    """Jobs of the toy study of years ago; two rows are exactly alike, one cannot be used."""
    lines = ["n,x,y,z,speed,status,end"]
    for place, one in enumerate(random_jobs(count - 1, seed=seed)):
        speed = one.metrics.get("speed", "")
        config = ",".join(str(one.config[key]) for key in "xyz")
        day = f"2019-{1 + place * 11 // count:02}-01T{place % 24:02}:00:00"
        lines.append(f"{one.context['n']},{config},{speed},{one.status.value},{day}")
    lines += [lines[1], "4,two,a,true,3.0,succeeded,2019-01-01"]
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    return file


def command(place: Daemon, file: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "tunerd", "import", "--settings", str(place.file)]
    return [*program, "--json", *options, "toy", str(file)]


def imported(place: Daemon, file: Path, *options: str) -> dict[str, Any]:
    """Import a table; what came of it."""
    done = subprocess.run(
        command(place, file, *options),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def killed(place: Daemon, file: Path, when: Callable[[], bool], *options: str) -> bool:
    """Import a table, but kill -9 once ``when``; says whether it was before the end."""
    with (place.folder / "killed").open("w") as log:
        process = subprocess.Popen(command(place, file, *options), stdout=log, stderr=log)
    deadline = time.monotonic() + 2 * PATIENCE_S
    while process.poll() is None and not when():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # else this takes one core, and what it waits for the other
    process.kill()
    return process.wait() == -signal.SIGKILL


def ingest(place: Daemon, store: Store, count: int) -> None:
    """Take in all that is on the jobs topic: ``count`` jobs and what comes behind them."""

    class Deaf:
        def hear(self, report: object, /) -> None:
            pass

    settings = load_settings(place.file, {})
    stage = IngestStage(
        *(stream_of(settings), store, settings.topics, settings.name, settings.ingest, Deaf()),
        now=lambda: datetime.now(UTC),
        clock=time.monotonic,
    )
    deadline = time.monotonic() + PATIENCE_S
    row = None
    while stage.step() or row is None or row.last_sequence < count:
        row = store.study("toy")
        assert time.monotonic() < deadline
    stage.close()


def exactly_once(place: Daemon, store: Store, count: int, cut: int = 0) -> None:
    """Whether history has each row of the table once, oldest first, and nothing was rejected but
    lines that ``cut`` kills may have cut short; their rows were sent again."""
    ingest(place, store, count)
    row = store.study("toy")
    assert row is not None
    found = store.observations("toy", limit=2 * count)
    assert len(found) == len({one.event_id for one in found}) == row.last_sequence == count
    times = [one.finished_at for one in found]
    assert times == sorted(times)
    assert sum(depth.unsent for depth in store.outbox_depths().values()) <= cut


def publish(store: Store) -> None:
    store.publish_generation("toy", "sha256:x", STUDY, "test", datetime.now(UTC))


# -- to the first recommendation --------------------------------------------------------------


def test_where_no_daemon_runs_it_leads_to_a_recommendation(place: Daemon) -> None:
    file = table(place.folder, 120)
    told = imported(place, file)
    assert (told["rows"], told["usable"], told["sent"], told["known"]) == (121, 120, 120, 0)
    assert told["unusable"] == {"config.x: expected an integer": 1}
    assert told["learned"]
    assert told["recommendations"] == 3
    with place.store() as store:
        rows = store.recommendations("toy")
        assert {row.state for row in rows} == {"observed"}
        judged = store.predictions("toy", history=True)
        assert len(judged) == 120
        store.guard(datetime.now(UTC)).release()  # no daemon was left behind
    # Again: nothing is sent. With another mapping: nothing is doubled.
    told = imported(place, file)
    assert (told["sent"], told["known"], told["recommendations"]) == (0, 120, 3)
    place.write_study(STUDY + "columns = { speed = { factor = 2.0 } }\n")
    told = imported(place, file)
    scored = told["with_objective"]
    assert (told["sent"], told["conflicts"], told["known"]) == (0, scored, 120 - scored)
    assert place.study().last_sequence == 120


def test_a_table_starts_over_in_a_study_of_another_name(tmp_path: Path) -> None:
    """And what was imported into the first stays where it is, under the ids that it has."""
    other = STUDY.replace('"toy"', '"other"')
    place = Daemon(tmp_path / "place", studies={"toy": STUDY, "other": other})
    file = place.folder / "old.csv"
    row = "8,2,a,true,7.5,succeeded,2020-01-01"
    file.write_text("\n".join(["n,x,y,z,speed,status,end", *[row] * 2, row.replace("2,a", "3,b")]))

    def into(study: str) -> tuple[int, list[int]]:
        done = subprocess.run(
            [*command(place, file)[:-2], study, str(file)],
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE_S,
            check=False,
        )
        told = json.loads(done.stdout)
        return done.returncode, [told[name] for name in ("sent", "known", "conflicts")]

    for study in ("toy", "other"):
        assert into(study) == (0, [3, 0, 0])
    for study in ("toy", "other"):
        assert into(study) == (0, [0, 3, 0])
    with place.store() as store:
        first, second = (store.observations(study) for study in ("toy", "other"))
        assert [one.metrics for one in first] == [one.metrics for one in second]
        assert len({one.event_id for one in (*first, *second)}) == 6
        assert not store.outbox_depths()
    # With another mapping nothing of it can be sent: that is no success.
    place.write_study(STUDY + "columns = { speed = { factor = 2.0 } }\n")
    assert into("toy") == (1, [0, 0, 3])


def test_a_daemon_that_runs_does_the_work_and_may_start_anew_meanwhile(place: Daemon) -> None:
    place.start()
    place.send(events(5))
    with (place.folder / "said").open("w") as log:
        process = subprocess.Popen(
            command(place, table(place.folder, 200)), stdout=log, stderr=subprocess.DEVNULL
        )
    place.until(lambda: place.study().learned_sequence > 5, "it learns")
    assert place.stop()[0] == 0
    time.sleep(2.5)  # the import looks every second whether somebody has the store
    place.start()
    assert process.wait(PATIENCE_S) == 0
    told = json.loads((place.folder / "said").read_text())
    assert (told["sent"], told["learned"]) == (200, True)
    assert place.study().learned_sequence == 205


def test_a_daemon_that_does_not_know_the_study_is_asked_to_look(place: Daemon) -> None:
    (place.folder / "studies" / "toy.toml").unlink()
    place.start()
    place.write_study(STUDY)
    file = table(place.folder, 50)
    done = subprocess.run(command(place, file), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "SIGHUP" in done.stderr
    assert place.process is not None
    place.process.send_signal(signal.SIGHUP)
    place.until(lambda: len(place.lines("study")) == 1, "it reads its studies again")
    assert imported(place, file)["sent"] == 50


# -- kill -9 ----------------------------------------------------------------------------------


def test_killed_while_reading_and_while_sending_each_row_is_there_once(place: Daemon) -> None:
    file = table(place.folder, 6_000)
    topic = place.folder / "data" / "stream" / "tunerd.jobs.jsonl"
    spools = place.folder / "data" / "imports"
    rng = random.Random(5)

    def size() -> int:
        return topic.stat().st_size if topic.exists() else 0

    def read_some() -> bool:
        wal = [one for one in spools.glob("*-wal") if one.stat().st_size > 1_000_000]
        return bool(wal) and rng.random() < 0.1

    was_killed = [killed(place, file, read_some, "--send-only")]
    for _ in range(2):
        before = size()
        was_killed.append(
            killed(place, file, lambda at=before: size() > at, "--send-only")  # type: ignore[misc]
        )
    assert any(was_killed)
    told = imported(place, file, "--send-only")
    assert (told["rows"], told["usable"]) == (6_001, 6_000)
    assert sum(told["unusable"].values()) == 1
    with open_store(f"sqlite:///{place.folder}/data/tunerd.sqlite") as store:
        publish(store)
        exactly_once(place, store, 6_000, cut=2)


def test_interrupted_or_killed_while_it_is_learned_nothing_is_left_behind(place: Daemon) -> None:
    file = table(place.folder, 200)
    imports = place.folder / "data" / "imports"

    def learned(count: int) -> bool:
        time.sleep(0.02)
        try:
            return place.study().learned_sequence > count
        except (TunerdError, AssertionError):  # it is being made
            return False

    with (place.folder / "said").open("w") as log:
        process = subprocess.Popen(
            command(place, file), stdout=log, stderr=log, start_new_session=True
        )
    place.until(lambda: learned(0), "it learns")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE_S) == 1
    assert "interrupted" in (place.folder / "said").read_text()
    with place.store() as store:
        store.guard(datetime.now(UTC)).release()  # no daemon was left behind
    before = place.study().learned_sequence
    killed(place, file, lambda: learned(before))
    told = imported(place, file)
    assert (told["usable"], told["learned"], told["recommendations"]) == (200, True, 3)
    assert list(imports.glob("*.sqlite*")) == []
    with place.store() as store:
        exactly_once(place, store, 200)
        store.guard(datetime.now(UTC)).release()


def test_killed_on_kafka_each_row_is_there_once(
    tmp_path: Path, kafka_bootstrap: str, unique: str
) -> None:
    place = Daemon(tmp_path / "p", bootstrap=kafka_bootstrap, name=unique, studies={"toy": STUDY})
    file = table(place.folder, 6_000)
    spools = place.folder / "data" / "imports"

    def sending() -> bool:
        return any(b'"sending"' in one.read_bytes() for one in spools.glob("*-wal"))

    killed(place, file, sending, "--send-only")
    killed(place, file, sending, "--send-only")
    imported(place, file, "--send-only")
    with open_store(f"sqlite:///{place.folder}/data/tunerd.sqlite") as store:
        publish(store)
        exactly_once(place, store, 6_000)
