"""Moving stores: what comes out is what went in, and a tuner goes on as if nothing had been."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.core.tuning import random_jobs
from tests.empty_store import empty_store
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import NAME, Tuning
from tunerd.errors import MisconfiguredError
from tunerd.stages.replay import derive
from tunerd.store import OutboxMessage, Store, open_store
from tunerd.store.tables import daemons, leases, metadata


def nothing(what: str, done: float, total: float) -> None:
    del what, done, total


def content(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row but those of running daemons; of leases the epoch."""
    found = {}
    with store._database.reading() as connection:
        for table in metadata.sorted_tables:
            if table is not daemons:
                columns = [leases.c.name, leases.c.epoch] if table is leases else table.columns
                rows = connection.execute(sa.select(*columns).order_by(*table.primary_key.columns))
                found[table.name] = [tuple(row) for row in rows]
    return found


@pytest.fixture
def tuned(store: Store) -> Tuning:
    """A store of each kind with a study that learned, was ordered about and has said things."""
    return tuned_on(store)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What came out of one: the file is the same whatever the store was on."""
    folder = tmp_path_factory.mktemp("exported")
    with open_store(empty_store(folder / "store.sqlite")) as store:
        store.export(folder / "all.gz", None, tuned_on(store).time.now(), nothing)
    return (folder / "all.gz").read_bytes()


def tuned_on(store: Store) -> Tuning:
    tuning = Tuning(store, Time(), Heard())
    tuning.publish()
    stage = tuning.start()
    tuning.add(random_jobs(40))
    tuning.run(stage)
    tuning.command("pin", context={}, config={"z": True})
    tuning.run(stage)
    with store.transaction() as tx:
        tx.enqueue(
            OutboxMessage(
                kind="rejected",
                message_id="a/b/c/1",
                topic="rejected",
                key=b"\x00\xff",
                value=b"\xff" * 10,
                created_at=tuning.time.now(),
            )
        )
    stage._background.shutdown()
    return tuning


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    with open_store(empty_store(tmp_path / "other.sqlite")) as opened:
        yield opened


def test_a_whole_store_comes_out_as_it_went_in(tuned: Tuning, empty: Store, tmp_path: Path) -> None:
    counts = tuned.store.export(tmp_path / "all.gz", None, tuned.time.now(), nothing)
    assert counts["observations"] == 40
    assert counts["outbox"]
    studies, loaded = empty.load(tmp_path / "all.gz", nothing)
    assert studies == [NAME]
    assert {name: n for name, n in counts.items() if n} == loaded
    assert content(empty) == content(tuned.store)


def test_a_whole_store_goes_into_postgresql(
    tuned: Tuning, postgres_url: str, tmp_path: Path
) -> None:
    """That is how an installation grows; new ids go on after the largest."""
    now = tuned.time.now()
    with tuned.store.transaction() as tx:
        tx.add_signal_points([("a", now, 1.0), ("b", now, 2.0)], now)
    tuned.store.export(tmp_path / "all.gz", None, tuned.time.now(), nothing)
    with open_store(postgres_url) as grown:
        grown.load(tmp_path / "all.gz", nothing)
        assert content(grown) == content(tuned.store)
        with grown.transaction() as tx:
            number = tx.add_command(NAME, "resume", {}, who="ann", why="", now=tuned.time.now())
            assert tx.add_signal_points([("c", now, 3.0)], now).fresh == 1
        assert number == len(tuned.store.commands(NAME, pending=False)) + 1
        assert set(grown.signal_names()) == {"a", "b", "c"}
        there = Tuning(grown, Time(tuned.time.at), Heard())
        stage = there.start()
        there.add(random_jobs(5, first=41, seed=41))
        there.run(stage)
        stage._background.shutdown()
        assert len(grown.observations(NAME)) == 45


def test_a_tuner_goes_on_there_as_here(tuned: Tuning, empty: Store, tmp_path: Path) -> None:
    tuned.store.export(tmp_path / "all.gz", None, tuned.time.now(), nothing)
    empty.load(tmp_path / "all.gz", nothing)
    there = Tuning(empty, Time(tuned.time.at), Heard())
    for tuning in (tuned, there):
        stage = tuning.start()
        tuning.add(random_jobs(30, first=41, seed=41))
        tuning.run(stage)
        stage._background.shutdown()
    assert {k: r.value for k, r in there.rows().items()} == {
        k: r.value for k, r in tuned.rows().items()
    }
    assert there.store.commands(NAME, pending=False)


def test_a_study_joins_others_and_its_orders_follow(
    tuned: Tuning, empty: Store, tmp_path: Path
) -> None:
    """Commands have other numbers there, and what was said can still be derived, but for those."""
    tuned.store.export(tmp_path / "one.gz", [NAME], tuned.time.now(), nothing)
    now = tuned.time.now()
    with empty.transaction() as tx:
        tx.publish_generation("other", "sha256:x", "text", "test", now)
        for _ in range(3):
            tx.add_command("other", "pause", {}, who="ann", why="", now=now)
    studies, counts = empty.load(tmp_path / "one.gz", nothing)
    assert studies == [NAME]
    assert "outbox" not in counts
    (pin,) = empty.commands(NAME, pending=False)
    assert pin.id == 4
    there = Tuning(empty, Time(tuned.time.at), Heard())
    number = there.command("lift", number=4)
    stage = there.start({"other": "it is no study"})
    there.run(stage)
    stage._background.shutdown()
    assert number == 5
    assert "lifted" in str(there.result(5))
    ids = empty.derivable(NAME, limit=100)
    assert ids
    kept = [row for _, one, _ in ids if (row := empty.derivation(one)) and row.basis["orders"]]
    assert kept
    derived = derive(empty, kept[0], "rebuilt")
    assert [check.same for check in derived.checks if check.what == "orders"] == [True]
    # What was published names the command by the number that it had.
    assert {one.field for one in derived.differences} <= {"reason"}


def test_a_lift_that_waits_lifts_the_same_order_there(
    tuned: Tuning, empty: Store, tmp_path: Path
) -> None:
    (pin,) = tuned.store.commands(NAME, pending=False)
    tuned.command("lift", number=pin.id)
    tuned.store.export(tmp_path / "one.gz", [NAME], tuned.time.now(), nothing)
    with empty.transaction() as tx:
        tx.publish_generation("other", "sha256:x", "text", "test", tuned.time.now())
        for _ in range(3):
            tx.add_command("other", "pause", {}, who="ann", why="", now=tuned.time.now())
    empty.load(tmp_path / "one.gz", nothing)
    there = Tuning(empty, Time(tuned.time.at), Heard())
    stage = there.start({"other": "it is no study"})
    there.run(stage)
    stage._background.shutdown()
    assert str(there.result(pin.id + 4)).startswith("lifted")


@pytest.mark.parametrize(
    "row",
    [
        b"[]",
        b"5",
        b"null",
        b'[["studies"],1]',
        b'["studies",1]',
        b'["nope",1]',
        b'["leases","a",null,"20x6-01-01T00:00:00",1]',
    ],
)
def test_a_wrong_row_changes_nothing(
    exported: bytes, empty: Store, tmp_path: Path, row: bytes
) -> None:
    file = tmp_path / "all.gz"
    head, _, rest = gzip.decompress(exported).partition(b"\n")
    file.write_bytes(gzip.compress(b"\n".join([head, row, rest])))
    before = content(empty)
    with pytest.raises(MisconfiguredError, match="damaged"):
        empty.load(file, nothing)
    assert content(empty) == before


@pytest.mark.parametrize("harm", ["cut", "flipped", "no gzip", "another file", "older", "twice"])
def test_what_is_not_whole_changes_nothing(
    exported: bytes, empty: Store, tmp_path: Path, harm: str
) -> None:
    file = tmp_path / "all.gz"
    file.write_bytes(exported)
    text = gzip.decompress(exported)
    if harm == "cut":
        file.write_bytes(gzip.compress(text[: len(text) // 2].rpartition(b"\n")[0] + b"\n"))
    elif harm == "flipped":
        file.write_bytes(gzip.compress(text.replace(b'"succeeded"', b'"cancelled"', 1)))
    elif harm == "no gzip":
        file.write_bytes(text)
    elif harm == "another file":
        file.write_bytes(gzip.compress(b'{"format":"something"}\n[]\n'))
    elif harm == "older":
        file.write_bytes(gzip.compress(text.replace(b'"schema":"0', b'"schema":"9', 1)))
    else:
        empty.load(file, nothing)
    before = content(empty)
    with pytest.raises(MisconfiguredError) as raised:
        empty.load(file, nothing)
    assert raised.value.problems[0].where == "FILE"
    assert content(empty) == before


def test_a_study_that_is_not_there(store: Store, tmp_path: Path) -> None:
    with pytest.raises(MisconfiguredError, match="there is no study 'nope'"):
        store.export(tmp_path / "x.gz", ["nope"], Time().now(), nothing)
