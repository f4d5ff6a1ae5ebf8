"""What holds and is not on its topic any more: which of it is said again, and when."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pytest

from tests.contracts.store_data import STUDY, add_study
from tests.stages.fakes import Time
from tests.stages.test_publish import keep
from tunerd.errors import StoreBehindError
from tunerd.stages.upkeep import TopicRepair
from tunerd.store import Store
from tunerd.streams.base import LastValue


@dataclass
class Topic:
    """A table that says what the test has it say."""

    last: dict[bytes, LastValue] = field(default_factory=dict)
    changed: set[bytes] | None = None
    new: set[bytes] | None = None
    """What the next refresh reads; None: everything."""

    def put(self, word: bytes, value: bytes | None, at_ms: int = 0) -> None:
        key = name(word.decode()).encode()
        digest = None if value is None else blake2b(value, digest_size=16).digest()
        self.last[key] = LastValue(at_ms, digest)
        if self.new is not None:
            self.new.add(key)

    def lose(self) -> None:
        """It was made anew."""
        self.last.clear()
        self.new = None

    def refresh(self) -> dict[bytes, LastValue]:
        self.changed, self.new = self.new, set()
        return self.last

    def close(self) -> None:
        pass


def made(store: Store, time: Time, behind: str | None = None) -> tuple[TopicRepair, Topic]:
    """``behind`` is why the store must not go on."""
    add_study(store)
    topic = Topic()
    return TopicRepair(store, topic, "recommendations", time.now, lambda: behind), topic


def name(key: str) -> str:
    return f"{STUDY}|{key}"


def hold(store: Store, time: Time, key: str, revision: int, **changes: Any) -> None:
    keep(store, time, name(key), revision, **changes)


def waiting(store: Store) -> list[tuple[bytes, int | None]]:
    found = [((one.key or b"").split(b"|")[-1], one.revision) for one in store.unsent(10)]
    with store.transaction() as tx:
        tx.mark_sent([one.id for one in store.unsent(10)], Time().now())
    return found


def test_what_is_lost_overwritten_or_freed_is_said_again_and_the_rest_is_not(
    store: Store, time: Time
) -> None:
    upkeep, topic = made(store, time)
    for key, revision in (("lost", 1), ("strange", 2), ("freed", 3), ("there", 4)):
        hold(store, time, key, revision)
    hold(store, time, "over", 5, valid_until=time.now())
    rows = {row.context_key: row for row in store.recommendations(store.studies()[0].name)}
    topic.put(b"strange", b"not ours")
    topic.put(b"freed", None)
    topic.put(b"there", rows[name("there")].value.encode())
    assert upkeep.step() == 3
    assert sorted(waiting(store)) == [(b"freed", 3), (b"lost", 1), (b"strange", 2)]


def test_while_something_waits_nothing_is_missed(store: Store, time: Time) -> None:
    upkeep, _ = made(store, time)
    hold(store, time, "a", 1)
    assert upkeep.step() == 1
    assert upkeep.step() == 0
    assert waiting(store) == [(b"a", 1)]


def test_who_is_never_heard_is_not_repeated_without_end(store: Store, time: Time) -> None:
    """Somebody whose clock is ahead stays the latest, whatever is sent."""
    upkeep, topic = made(store, time)
    hold(store, time, "a", 1)
    topic.put(b"a", b"not ours", at_ms=9_999_999_999_999)
    assert upkeep.step() == 1
    waiting(store)
    assert upkeep.step() == 0
    time.pass_(minutes=11)
    assert upkeep.step() == 1


def test_a_store_that_was_restored_does_not_say_what_is_old(store: Store, time: Time) -> None:
    upkeep, topic = made(store, time, "it holds later revisions")
    hold(store, time, "lost", 1)
    topic.put(b"lost", None)
    assert upkeep.step() == 1  # nothing stands there
    waiting(store)
    topic.put(b"lost", b"a later one")
    for _ in range(2):
        with pytest.raises(StoreBehindError, match="later revisions"):
            upkeep.step()
    assert waiting(store) == []


def test_what_is_overwritten_once_more_is_said_once_more(store: Store, time: Time) -> None:
    upkeep, topic = made(store, time)
    hold(store, time, "a", 1)
    for moment in (1, 2):
        topic.put(b"a", b"not ours", moment)
        assert upkeep.step() == 1
        waiting(store)


def test_a_withdrawal_is_said_again_only_where_something_else_stands(
    store: Store, time: Time
) -> None:
    upkeep, topic = made(store, time)
    hold(store, time, "a", 2, state="withdrawn", renew_at=time.now())
    hold(store, time, "free", 2, state="withdrawn")
    topic.put(b"free", b"an old revision")
    assert upkeep.step() == 0
    topic.put(b"a", b"an old revision")
    assert upkeep.step() == 1


def test_what_is_sent_meanwhile_is_compared_when_it_is_there(store: Store, time: Time) -> None:
    upkeep, topic = made(store, time)
    assert upkeep.step() == 0
    hold(store, time, "a", 1)
    topic.put(b"a", b"1")
    assert upkeep.step() == 0
    topic.put(b"a", None)
    assert upkeep.step() == 1
    waiting(store)
    topic.put(b"a", b"1")
    assert upkeep.step() == 0
    topic.lose()
    assert upkeep.step() == 1
