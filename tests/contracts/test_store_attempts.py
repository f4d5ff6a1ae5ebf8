"""What every store promises about attempts whose halves wait, and about what takes a place."""

import threading
from datetime import timedelta

import pytest

from tests.contracts.store_data import LATER, NOW, STUDY, add_study, observation
from tunerd.core.observation import CorrectedObservation, Status, corrected, effective
from tunerd.store import AttemptRow, Store

A, B, OTHER = ("a", "1", 1), ("a", "1", 2), ("b", "1_3", 1)


def keep(store: Store, key: tuple[str, str, int], **changes: object) -> None:
    with store.transaction() as tx:
        row = tx.take_attempts([key], NOW)[key]
        row.halves, row.missing = "{}", "completed"
        for name, value in changes.items():
            setattr(row, name, value)
        tx.save_attempts([row])


class TestAttempts:
    def test_one_is_made_and_comes_back_as_it_was_kept(self, store: Store) -> None:
        with store.transaction() as tx:
            rows = tx.take_attempts([B, A, A, OTHER], NOW)
            assert rows == {key: AttemptRow(key, NOW, NOW) for key in (A, B, OTHER)}
            assert all(row.is_new for row in rows.values())
            row = rows[A]
            row.study, row.missing, row.last_at = STUDY, "reported,completed", LATER
            row.sequence, row.corrections, row.material, row.halves = 7, 2, "sha256:x", '{"é": 1}'
            tx.save_attempts([row])
            tx.drop_attempts([B])
        with store.transaction() as tx:
            assert tx.take_attempts([A], LATER) == {A: row}
            assert tx.take_attempts([B], LATER)[B].first_at == LATER

    def test_nothing_is_kept_of_a_transaction_that_fails(self, store: Store) -> None:
        def fail() -> None:
            with store.transaction() as tx:
                tx.take_attempts([A], NOW)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert store.waiting_attempts() == []

    def test_a_key_that_no_column_can_keep_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="NUL"), store.transaction() as tx:
            tx.take_attempts([("a", "\0", 1)], NOW)

    def test_those_that_miss_something_are_counted_and_listed(self, store: Store) -> None:
        keep(store, A, last_at=NOW - timedelta(days=9), study=STUDY, missing="reported")
        keep(store, B, last_at=NOW - timedelta(days=8), sequence=4)
        keep(store, OTHER, last_at=NOW, missing="study,config")
        keep(store, ("b", "2", 1), last_at=NOW - timedelta(days=99), ended=True, missing="")
        before = NOW - timedelta(days=7)
        counts = store.attempt_counts(before)
        assert (counts.waiting, counts.incomplete) == (1, 2)
        assert counts.oldest_at == NOW - timedelta(days=9)
        found = store.waiting_attempts(before=before)
        assert [(one.cluster, one.job_id, one.attempt) for one in found] == [A, B]
        assert [one.counts for one in found] == [False, True]
        assert store.waiting_attempts(limit=3)[-1].missing == ("study", "config")
        assert [one.study for one in store.waiting_attempts(study=STUDY)] == [STUDY]
        assert len(store.waiting_attempts(limit=1)) == 1

    def test_an_empty_store_has_none(self, store: Store) -> None:
        counts = store.attempt_counts(NOW)
        assert (counts.waiting, counts.incomplete, counts.oldest_at) == (0, 0, None)
        with store.transaction() as tx:
            assert tx.take_attempts([], NOW) == {}
            tx.save_attempts([])
            tx.drop_attempts([])
            assert tx.prune_attempts(ended=True, before=LATER) == 0

    def test_old_ones_are_forgotten_in_small_pieces(self, store: Store) -> None:
        for number in range(5):
            keep(store, ("a", str(number), 1), ended=number < 3, last_at=NOW)
        with store.transaction() as tx:
            assert tx.prune_attempts(ended=True, before=NOW) == 0
            assert tx.prune_attempts(ended=True, before=LATER, limit=2) == 2
            assert tx.prune_attempts(ended=True, before=LATER, limit=2) == 1
        assert len(store.waiting_attempts()) == 2

    def test_two_that_take_the_same_attempts_wait_for_each_other(self, store: Store) -> None:
        """Each adds to what the other kept, known before or not."""
        keep(store, A, corrections=0)
        keys = [A, B, OTHER, *(("c", str(n), 1) for n in range(50))]

        def count() -> None:
            for _ in range(5):
                with store.transaction() as tx:
                    rows = tx.take_attempts(keys, NOW)
                    for row in rows.values():
                        row.corrections += 1
                        row.halves = "{}"
                    tx.save_attempts(list(rows.values()))

        threads = [threading.Thread(target=count) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        with store.transaction() as tx:
            rows = tx.take_attempts(keys, NOW)
        assert {row.corrections for row in rows.values()} == {15}


class TestCorrections:
    def test_one_comes_back_with_what_it_takes_the_place_of(self, store: Store) -> None:
        add_study(store)
        first = observation("a", status=Status.RUNNING)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [first, observation("b")], NOW)
        earlier, other = store.observations(STUDY)
        last = corrected(observation("a2", metrics={"x": 2.5}), earlier)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [last], NOW)
        found = store.observations(STUDY)
        assert isinstance(found[2], CorrectedObservation)
        assert found[2].earlier == earlier
        assert found[2].metrics == {"x": 2.5}
        assert found[:2] == [earlier, other]
        assert effective(found) == found[1:]
        assert store.observations_at(STUDY, [3, 1]) == [found[2], earlier]
        assert store.observations(STUDY, after=2) == [found[2]]
        assert store.corrected_sequences(STUDY) == {1}
        assert type(found[1]) is not CorrectedObservation

    def test_where_history_has_an_event_is_known(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation("a"), observation("b")], NOW)
        one = store.observations(STUDY)[1]
        asked = [(one.source, one.event_id), (one.source, "c"), ("else", one.event_id)]
        assert store.event_places(asked) == {(one.source, one.event_id): (STUDY, 2)}
        assert store.event_places([]) == {}
