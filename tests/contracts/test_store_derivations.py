"""What recommendations were made from, on every kind of database."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tunerd.store import ProvenanceRow, Store

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)


def one(number: int, study: str = "llm") -> ProvenanceRow:
    return ProvenanceRow(
        study=study,
        recommendation_id=f"r-{number}",
        context_key=f"{study}|n=8",
        generation=1,
        sequence=number,
        said_at=AT + timedelta(minutes=number),
        message={"share": 0.1 + 0.2, "text": "näher"},
        basis={"states": {"b": 1, "a": [None, 2.5]}},
    )


@pytest.fixture
def publish(store: Store) -> Callable[[str], None]:
    def one_of(name: str) -> None:
        store.publish_generation(name, "h", "t", "test", AT)

    return one_of


def test_it_comes_back_as_it_went_in(store: Store, publish: Callable[[str], None]) -> None:
    publish("llm")
    with store.transaction() as tx:
        tx.save_derivation(one(1))
    assert store.derivation("r-1") == one(1)
    assert list(store.derivation("r-1").basis["states"]) == ["b", "a"]  # type: ignore[union-attr]
    assert store.derivation("r-2") is None


def test_the_latest_come_first_and_stay(store: Store, publish: Callable[[str], None]) -> None:
    publish("llm")
    publish("ads")
    with store.transaction() as tx:
        for number in range(1, 8):
            tx.save_derivation(one(number))
        tx.save_derivation(replace(one(3), generation=2))
        tx.save_derivation(one(9, "ads"))
        assert tx.prune_derivations("llm", 5, AT) == 2
    assert [name for _, name, _ in store.derivable("llm")] == ["r-7", "r-6", "r-5", "r-4", "r-3"]
    assert store.derivable(limit=1) == [("ads", "r-9", "ads|n=8")]
    assert store.derivation("r-3") == replace(one(3), generation=2)


def test_the_message_of_older_ones_stays_for_a_while(
    store: Store, publish: Callable[[str], None]
) -> None:
    publish("llm")
    with store.transaction() as tx:
        for number in range(1, 8):
            tx.save_derivation(one(number))
        assert tx.prune_derivations("llm", 3, AT) == 4
    assert store.derivation("r-2") is None
    assert store.issued("r-2") == replace(one(2), basis={})
    assert store.issued("r-7") is None
    with store.transaction() as tx:
        assert tx.prune_derivations("llm", 3, AT + timedelta(minutes=3)) == 0
    assert store.issued("r-2") is None
    assert store.issued("r-3") == replace(one(3), basis={})
