"""What every store promises about jobs in quarantine."""

from typing import Any

from tests.contracts.store_data import LATER, NOW, STUDY, add_study, observation
from tunerd.core.observation import ReleasedObservation
from tunerd.store import QuarantineRow, Store


def row(sequence: int, **changes: Any) -> QuarantineRow:
    values: dict[str, Any] = {
        "study": STUDY,
        "sequence": sequence,
        "reason": "far",
        "text": "1,000 times farther than every other job of its context",
        "value": 412_000.5,
        "context_key": "llm-pretrain|gpu=H100",
        "config_id": "c1",
        "held_at": NOW,
    }
    return QuarantineRow(**values | changes)


def filled(store: Store) -> list[QuarantineRow]:
    """Three jobs of two users, the first two in quarantine."""
    add_study(store)
    jobs = [
        observation("e1", user="eve", extra={"nodes": ["n1", "n2"]}),
        observation("e2", user="bob"),
        observation("e3"),
    ]
    rows = [row(1), row(2, reason="bounds", value=None, held_at=LATER)]
    with store.transaction() as tx:
        tx.add_observations(STUDY, jobs, NOW)
        tx.add_quarantined(rows)
    return rows


def test_jobs_are_found_by_reason_user_and_node(store: Store) -> None:
    first, second = filled(store)
    assert store.quarantined() == [second, first]
    assert store.quarantined(STUDY, user="eve") == [first]
    assert store.quarantined(STUDY, reason="bounds") == [second]
    assert store.quarantined(node="n2") == [first]
    assert store.quarantined("another") == store.quarantined(node="n3") == []
    assert store.quarantined(limit=1) == [second]
    assert store.quarantine_counts() == {STUDY: 2}
    assert store.quarantine_rows(STUDY, [1, 3]) == {1: first}


def test_a_release_comes_into_history_once(store: Store) -> None:
    filled(store)
    for times in (1, 2):
        with store.transaction() as tx:
            released = tx.release_quarantined(STUDY, [1, 3], who="ann", why="new nodes", now=LATER)
        assert released == ([1] if times == 1 else [])
    (again,) = store.observations(STUDY, after=3)
    assert isinstance(again, ReleasedObservation)
    assert (again.sequence, again.earlier.sequence, again.user) == (4, 1, "eve")
    assert (again.source, again.content_hash) == ("slurm/a", "sha256:e1")
    assert store.observations_at(STUDY, [4]) == [again]
    settled = store.quarantine_rows(STUDY, [1])[1]
    assert (settled.state, settled.settled_by, settled.why) == ("released", "ann", "new nodes")
    assert settled.settled_at == LATER
    assert store.quarantine_counts() == {STUDY: 1}


def test_what_was_called_bad_waits_no_more_and_can_still_be_released(store: Store) -> None:
    filled(store)
    with store.transaction() as tx:
        tx.settle_quarantined(STUDY, [1], "bad", who="ann", why="a slip", now=NOW)
        tx.add_quarantined([row(1)])  # history was learned anew
    assert store.bad_sequences(STUDY) == {1}
    assert [job.sequence for job in store.quarantined(STUDY)] == [2]
    with store.transaction() as tx:
        assert tx.release_quarantined(STUDY, [1], who="ann", why="it was not", now=NOW) == [1]
    assert store.bad_sequences(STUDY) == set()


def test_a_study_that_finds_nothing_wrong_lets_out(store: Store) -> None:
    filled(store)
    with store.transaction() as tx:
        tx.leave_quarantine(STUDY, [2], LATER)
    assert store.quarantine_rows(STUDY, [1])[1].state == "learned"
    assert store.quarantine_counts() == {STUDY: 1}
    with store.transaction() as tx:
        tx.add_quarantined([row(1)])  # a later version finds it wrong again
    assert store.quarantine_rows(STUDY, [1])[1] == row(1)
