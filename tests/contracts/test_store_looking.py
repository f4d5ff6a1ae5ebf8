"""What every store promises to those who look often: pages, and what they keep in memory."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.contracts.store_data import NOW, STUDY, add_study, observation
from tests.contracts.test_store_derivations import one as said
from tests.contracts.test_store_predictions import judged, keep
from tunerd.core.observation import Status
from tunerd.errors import CorruptDataError, UnknownStudyError
from tunerd.store import ContextRow, Store


def add_jobs(store: Store, count: int) -> None:
    jobs = [
        observation(
            f"e{number}",
            user=f"user-{number % 3}" if number % 4 else None,
            status=Status.FAILED if number % 5 == 0 else Status.SUCCEEDED,
            candidate_id=f"c-{number % 2}",
        )
        for number in range(1, count + 1)
    ]
    with store.transaction() as tx:
        tx.add_observations(STUDY, jobs, NOW)


class TestPredictions:
    def test_what_is_new_comes_in_order_live_and_imported(self, store: Store) -> None:
        add_study(store)
        add_study(store, "another")
        keep(store, judged(1), judged(2, history=True), judged(3, days=-9), judged(5))
        assert store.predictions_after(STUDY, 0, 10) == [
            judged(1),
            judged(2, history=True),
            judged(3, days=-9),
            judged(5),
        ]
        assert [job.sequence for job in store.predictions_after(STUDY, 1, 2)] == [2, 3]
        assert store.predictions_after(STUDY, 5, 10) == []
        assert store.predictions_after("another", 0, 10) == []

    def test_some_by_their_sequences(self, store: Store) -> None:
        add_study(store)
        keep(store, judged(1), judged(2), judged(4))
        assert store.predictions_at(STUDY, [4, 1, 3]) == {1: judged(1), 4: judged(4)}
        assert store.predictions_at(STUDY, []) == {}


class TestObservations:
    def test_the_latest_first(self, store: Store) -> None:
        add_study(store)
        assert store.latest_sequences(STUDY) == []
        add_jobs(store, 20)
        assert store.latest_sequences(STUDY, limit=3) == [20, 19, 18]
        assert store.latest_sequences(STUDY, before=4) == [3, 2, 1]
        assert store.latest_sequences("nowhere") == []

    @pytest.mark.parametrize(
        ("equal", "expected"),
        [
            ({"username": "user-1"}, [19, 13, 10, 7, 1]),
            ({"status": "failed"}, [20, 15, 10, 5]),
            ({"username": "user-1", "status": "failed"}, [10]),
            ({"job_id": "job-e7"}, [7]),
            ({"candidate_id": "c-0", "status": "failed"}, [20, 10]),
            ({"username": "' OR 1=1 --"}, []),
        ],
    )
    def test_only_some(self, store: Store, equal: dict[str, str], expected: list[int]) -> None:
        add_study(store)
        add_jobs(store, 20)
        assert store.latest_sequences(STUDY, equal=equal) == expected

    def test_no_further_back_than_asked(self, store: Store) -> None:
        add_study(store)
        add_jobs(store, 20)
        failed = {"status": "failed"}
        assert store.latest_sequences(STUDY, equal=failed, look_back=8) == [20, 15]
        assert store.latest_sequences(STUDY, equal=failed, before=12, look_back=3) == [10]

    def test_whose_they_are(self, store: Store) -> None:
        add_study(store)
        add_jobs(store, 6)
        assert store.usernames(STUDY, 2, 5) == {2: "user-2", 3: "user-0", 5: "user-2"}


class Jobs(msgspec.Struct):
    jobs: int


class TestContexts:
    def test_one_and_some(self, store: Store) -> None:
        add_study(store)
        long = "k|" + "x" * 5000
        states: dict[str, dict[str, Any]] = {key: {"jobs": n} for n, key in enumerate("abc")}
        states[long] = {"jobs": 9, "more": [1]}
        rows = [ContextRow(key, state, NOW, 1) for key, state in states.items()]
        with store.transaction() as tx:
            tx.save_context_states(STUDY, rows)
        assert store.context_state(STUDY, "b") == rows[1]
        assert store.context_state(STUDY, long) == rows[3]
        assert store.context_state(STUDY, "nowhere") is None
        parts = store.context_parts(STUDY, Jobs, ["c", long, "nowhere"])
        assert {key: part.jobs for key, part in parts.items()} == {"c": 2, long: 9}
        assert store.context_parts(STUDY, Jobs, []) == {}
        assert store.context_parts(STUDY, Jobs).keys() == states.keys()

    def test_those_with_the_latest_jobs(self, store: Store) -> None:
        add_study(store)
        ago = {"a": 3, "b": 1, "c": None, "d": 2}
        rows = [
            ContextRow(key, {}, None if days is None else NOW - timedelta(days=days), 1)
            for key, days in ago.items()
        ]
        with store.transaction() as tx:
            tx.save_context_states(STUDY, rows)
        assert store.latest_contexts(STUDY, 9) == ["b", "d", "a", "c"]
        assert store.latest_contexts(STUDY, 2) == ["b", "d"]

    def test_a_part_of_what_a_study_saved(self, store: Store) -> None:
        add_study(store)
        assert store.study_part(STUDY, Jobs) is None
        with store.transaction() as tx:
            tx.save_study_state(STUDY, {"jobs": 7, "more": [1]}, epoch=1, now=NOW)
        assert store.study_part(STUDY, Jobs) == Jobs(7)
        with pytest.raises(CorruptDataError, match="state of study"):
            store.study_part(STUDY, ContextRow)


def test_what_was_said_in_a_context(store: Store) -> None:
    add_study(store, "llm")
    with store.transaction() as tx:
        for number in range(1, 6):
            tx.save_derivation(said(number))
        tx.save_derivation(replace(said(6), context_key="llm|n=9"))
    assert store.said_in("llm", "llm|n=8", 3) == [said(5), said(4), said(3)]
    assert store.said_in("llm", "llm|n=7") == []


def test_the_latest_commands(store: Store) -> None:
    add_study(store)
    with store.transaction() as tx:
        for number in range(5):
            tx.add_command(STUDY, f"c{number}", {}, who="ann", why="", now=NOW)
    assert [one.command for one in store.latest_commands(STUDY, 2)] == ["c4", "c3"]
    assert store.latest_commands("nowhere", 2) == []


def test_the_overview_of_one_study(store: Store) -> None:
    add_study(store)
    add_study(store, "other")
    add_jobs(store, 2)
    overview, _ = store.overview()
    assert store.overview_of(STUDY) == overview
    with pytest.raises(UnknownStudyError, match="it knows: llm-pretrain, other; did you mean"):
        store.overview_of("llm-pretrian")
