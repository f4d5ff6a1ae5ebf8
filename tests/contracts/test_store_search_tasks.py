"""What every store promises of searches that instances do for each other."""

import zlib

import pytest
import sqlalchemy as sa

from tests.contracts.store_data import STUDY, add_study
from tests.contracts.test_store_instances import A, B, join
from tunerd.store import CollectedSearch, SearchTask, Store, open_store, study_lease
from tunerd.store.tables import search_tasks

BUILD = "22-abc 123"


def task(key: str, **changes: object) -> SearchTask:
    values = {
        "study": STUDY,
        "epoch": 1,
        "generation": 1,
        "context_key": key,
        "sequence": 7,
        "model": "sha256:m",
        "made_by": BUILD,
        "basis": {"states": {key: {"jobs": 0.1}}, "running": None},
    }
    return SearchTask(**values | changes)  # type: ignore[arg-type]


@pytest.fixture
def offered(store: Store) -> list[int]:
    """Three tasks of a study in epoch 1."""
    add_study(store)
    assert store.take_lease(study_lease(STUDY), "a/1", 600) == 1
    with store.transaction() as tx:
        tx.fence(STUDY, 1)
        return tx.offer_searches([task("one"), task("two"), task("three")])


def claim(store: Store, owner: str = "b/1", ttl_s: float = 60.0, **changes: object) -> str | None:
    """Key of the context that an instance takes."""
    with store.transaction() as tx:
        taken = tx.claim_search(owner, **{"made_by": BUILD, "ttl_s": ttl_s} | changes)  # type: ignore[arg-type]
    return None if taken is None else taken.context_key


def finish(store: Store, number: int, result: bytes | None, owner: str = "b/1") -> bool:
    with store.transaction() as tx:
        return tx.finish_search(number, owner, result)


def collect(store: Store, *, unclaimed_s: float = 600.0) -> list[CollectedSearch]:
    with store.transaction() as tx:
        return tx.collect_searches(STUDY, unclaimed_s=unclaimed_s)


def left(store: Store) -> int:
    with store._database.reading() as connection:
        query = sa.select(sa.func.count()).select_from(search_tasks)
        return int(connection.execute(query).scalar_one())


def test_a_task_comes_out_as_it_went_in_and_goes_to_one(store: Store, offered: list[int]) -> None:
    with store.transaction() as tx:
        taken = tx.claim_search("b/1", BUILD, 60.0)
    assert taken == task("one", id=offered[0])
    assert [claim(store, owner) for owner in ("c/1", "b/1", "c/1")] == ["two", "three", None]


def test_what_is_finished_is_taken_out_once(store: Store, offered: list[int]) -> None:
    assert [claim(store), claim(store)] == ["one", "two"]
    assert collect(store) == []
    assert finish(store, offered[0], b"result")
    assert finish(store, offered[1], None)  # it failed
    rows = [
        CollectedSearch(offered[0], "one", True, b"result"),
        CollectedSearch(offered[1], "two", True, None),
    ]
    assert collect(store) == rows
    assert collect(store) == []
    assert collect(store, unclaimed_s=0.0) == [CollectedSearch(offered[2], "three", False, None)]
    assert left(store) == 0


def test_a_claim_that_ran_out_is_its_owners_again_and_nobody_elses(
    store: Store, offered: list[int]
) -> None:
    assert claim(store, ttl_s=-1.0) == "one"
    assert not finish(store, offered[0], b"late")
    assert claim(store) == "two"
    assert collect(store) == [CollectedSearch(offered[0], "one", True, None)]
    assert not finish(store, offered[0], b"later")
    assert claim(store) == "three"


def test_only_who_has_it_may_finish_it_and_only_once(store: Store, offered: list[int]) -> None:
    assert claim(store) == "one"
    assert not finish(store, offered[0], b"theirs", owner="c/1")
    assert not finish(store, offered[1], b"unclaimed")
    assert finish(store, offered[0], b"mine")
    assert not finish(store, offered[0], b"again")
    assert collect(store)[0].result == b"mine"


def test_others_builds_and_studies_that_are_left_alone_are_passed_over(
    store: Store, offered: list[int]
) -> None:
    assert len(offered) == 3
    assert claim(store, made_by="22-abc 124") is None
    assert claim(store, besides=[STUDY]) is None
    assert claim(store) == "one"


def test_nobody_takes_what_is_ones_own_or_of_a_study_that_was_left(
    store: Store, offered: list[int]
) -> None:
    assert len(offered) == 3
    assert claim(store, "a/1") is None
    store.release_lease(study_lease(STUDY), "a/1", 1)
    assert claim(store) is None


@pytest.mark.parametrize(
    "damaged", [b"", b"nonsense", zlib.compress(b"\xff"), zlib.compress(b"[1")]
)
def test_what_is_damaged_is_taken_without_what_it_is_made_from(
    store: Store, offered: list[int], damaged: bytes
) -> None:
    with store.transaction() as tx:
        tx._connection.execute(sa.update(search_tasks).values(basis=damaged))
        assert tx.claim_search("b/1", BUILD, 60.0) == task("one", id=offered[0], basis={})


def test_nobody_searches_for_an_epoch_that_is_over(store: Store, offered: list[int]) -> None:
    assert claim(store) == "one"
    store.release_lease(study_lease(STUDY), "a/1", 1)
    assert store.take_lease(study_lease(STUDY), "c/1", 600) == 2
    assert claim(store) is None
    with store.transaction() as tx:
        tx.fence(STUDY, 2)
        tx.drop_searches(STUDY)
    assert left(store) == 0
    assert not finish(store, offered[0], b"late")


def test_two_that_look_at_once_take_two(store: Store, store_url: str, offered: list[int]) -> None:
    if not store.is_shareable:
        pytest.skip("SQLite is for one")
    with open_store(store_url) as other, store.transaction() as tx:
        first = tx.claim_search("b/1", BUILD, 60.0)
        assert claim(other, "c/1") == "two"
        with other.transaction() as owner:  # what is being written at this moment stays
            assert owner.collect_searches(STUDY, unclaimed_s=0.0) == [
                CollectedSearch(offered[2], "three", False, None)
            ]
    assert first is not None
    assert first.context_key == "one"
    assert collect(store, unclaimed_s=0.0) == []


def test_searches_for_others_are_counted(store: Store) -> None:
    join(store, A, B)
    with store.transaction() as tx:
        tx.note_search("b", "b/1")
        tx.note_search("b", "b/1")
        tx.note_search("a", "another process of a")
    assert {row.name: row.searched for row in store.instances()} == {"a": 0, "b": 2}
