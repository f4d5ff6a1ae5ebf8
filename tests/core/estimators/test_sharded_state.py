"""State by context: the order of jobs survives a checkpoint, and a job changes one blob."""

import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.estimators.sharded_state import ShardedState

KEYS = st.sampled_from([f"study|n={n}" for n in range(60)])
PUTS = st.lists(st.tuples(KEYS, st.integers()), max_size=80)


def pack(told: Sequence[tuple[str, int, int]]) -> bytes:
    return json.dumps(told).encode()


def unpack(blob: bytes) -> Iterable[tuple[str, int, int]]:
    return [(key, turn, item) for key, turn, item in json.loads(blob)]


def filled(puts: Iterable[tuple[str, int]]) -> ShardedState[int]:
    shelves: ShardedState[int] = ShardedState()
    for key, item in puts:
        shelves.put(key, item)
    return shelves


def test_empty_shelves_are_no_blobs() -> None:
    assert ShardedState[int]().dump("own.", pack) == {}
    assert dict(ShardedState.load({"other": b"rubbish"}, "own.", unpack)) == {}


@pytest.mark.slow
@given(PUTS, PUTS, st.integers(0, 5))
def test_what_is_loaded_goes_on_as_what_was_dumped(
    before: list[tuple[str, int]], after: list[tuple[str, int]], dropped: int
) -> None:
    shelves = filled(before)
    for _ in range(min(dropped, len(shelves))):
        shelves.drop_first()
    again = ShardedState.load({"other": b"", **shelves.dump("own.", pack)}, "own.", unpack)
    assert list(again.items()) == list(shelves.items())
    for key, item in after:
        for one in (shelves, again):
            one.put(key, item)
    assert list(again.items()) == list(shelves.items())
    assert again.dump("own.", pack) == shelves.dump("own.", pack)


@given(PUTS)
def test_the_last_put_is_last_and_the_first_is_dropped(puts: list[tuple[str, int]]) -> None:
    shelves = filled(puts)
    last = dict(puts)
    order = list(dict.fromkeys(key for key, _ in reversed(puts)))[::-1]
    assert list(shelves.items()) == [(key, last[key]) for key in order]
    for key in order:
        assert shelves.drop_first() == last[key]
        assert key not in shelves


@pytest.mark.slow
@given(PUTS, KEYS, st.integers())
def test_a_job_changes_one_blob(puts: list[tuple[str, int]], key: str, item: int) -> None:
    shelves = filled(puts)
    before = shelves.dump("own.", pack)
    shelves.put(key, item)
    after = shelves.dump("own.", pack)
    assert sum(before.get(name) is not blob for name, blob in after.items()) == 1
    assert before.keys() <= after.keys()


def test_the_first_turns_are_those_of_the_order_it_begins_with() -> None:
    shelves = ShardedState([("b", 1), ("a", 2)])
    shelves.put("b", 3)
    told = sorted(one for blob in shelves.dump("", pack).values() for one in unpack(blob))
    assert told == [("a", 1, 2), ("b", 2, 3)]


def test_what_was_dropped_leaves_no_blob_behind() -> None:
    shelves = filled([("a", 1)])
    shelves.dump("", pack)
    shelves.drop_first()
    assert shelves.dump("", pack) == {}
