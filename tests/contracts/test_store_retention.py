"""Jobs that leave history: what is dropped, what stays, and for how long."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.contracts.store_data import LATER, NOW, STUDY, add_study, observation
from tests.contracts.test_store_predictions import judged
from tests.contracts.test_store_quarantine import row
from tunerd.core.observation import Observation, Status, corrected
from tunerd.store import PrunedHistory, Store, TuneStep, open_store
from tunerd.store.retention import KEPT_STEPS


def jobs(count: int, first: int = 1) -> list[Observation]:
    return [
        observation(
            f"e{i}", user="ann", extra={"started_at": "2026-11-20T09:00:00Z", "labels": {"a": "b"}}
        )
        for i in range(first, first + count)
    ]


@pytest.fixture
def filled(store: Store) -> Store:
    """Ten jobs, the first three of them pruned."""
    add_study(store)
    with store.transaction() as tx:
        tx.add_observations(STUDY, jobs(10), NOW)
    with store.transaction() as tx:
        tx.lock_prunings(STUDY, LATER)
        assert tx.prune_jobs(STUDY, [1, 2, 3], LATER) == 3
    return store


def test_a_pruned_job_says_nothing_any_more(filled: Store) -> None:
    assert [job.sequence for job in filled.observations(STUDY)] == list(range(4, 11))
    with pytest.raises(LookupError, match="no observation with sequence 3"):
        filled.observations_at(STUDY, [4, 3])
    assert [job.sequence for job in filled.observations_left(STUDY, [4, 3, 99])] == [4]
    (job,) = filled.observations_at(STUDY, [3], pruned=True)
    assert (job.config, job.metrics) == ({}, {})
    assert job.extra == {"started_at": "2026-11-20T09:00:00Z"}
    assert (job.user, job.context) == ("ann", {"gpu": "H100", "n_gpus": 128})


def test_the_ledger_and_the_keys_of_contexts_still_have_it(filled: Store) -> None:
    assert filled.usernames(STUDY, 1, 10) == dict.fromkeys(range(1, 11), "ann")
    contexts = filled.job_contexts(STUDY, 0, 4)
    assert contexts == [(n, {"gpu": "H100", "n_gpus": 128}) for n in (1, 2, 3, 4)]


def test_it_is_a_duplicate_still_and_a_conflict(filled: Store) -> None:
    other = observation("e1", content_hash="sha256:other")
    again = observation("e1", attempt=2, content_hash="sha256:again")
    with filled.transaction() as tx:
        added = tx.add_observations(STUDY, [*jobs(3), other, again], LATER)
    assert (added.duplicates, added.conflicts) == (3, (other,))
    assert [job.event_id for job in added.fresh] == ["e1#2@"]
    assert added.first_sequence == 11


def test_attempts_of_one_job_are_told_apart_by_their_start(filled: Store) -> None:
    later = observation("e2", extra={"started_at": "2026-11-20T11:00:00Z"}, content_hash="x")
    with filled.transaction() as tx:
        added = tx.add_observations(STUDY, [later], LATER)
    assert [job.event_id for job in added.fresh] == ["e2#1@2026-11-20T11:00:00Z"]


def test_what_was_pruned_is_counted_once(filled: Store) -> None:
    assert filled.pruned_history(STUDY) == PrunedHistory(3, 0, 3, LATER)
    with filled.transaction() as tx:
        tx.lock_prunings(STUDY, LATER)
        assert tx.prune_jobs(STUDY, [2, 3, 5], LATER + timedelta(hours=1)) == 1
    with filled.transaction() as tx:
        tx.lock_prunings(STUDY, LATER)
        assert tx.prune_jobs(STUDY, [1], LATER) == 0
    assert filled.pruned_history(STUDY) == PrunedHistory(4, 0, 5, LATER + timedelta(hours=1))
    assert filled.pruned_history("other") is None


def test_a_forgotten_job_is_gone(filled: Store) -> None:
    with filled.transaction() as tx:
        tx.add_predictions(STUDY, [judged(1, history=True), judged(2), judged(4, history=True)])
        tx.lock_prunings(STUDY, LATER)
        assert tx.forget_jobs(STUDY, [1, 2, 4]) == 2
    assert filled.pruned_history(STUDY) == PrunedHistory(3, 2, 3, LATER)
    assert [job.sequence for job in filled.observations(STUDY)] == list(range(4, 11))
    with pytest.raises(LookupError):
        filled.observations_at(STUDY, [1], pruned=True)
    # The ledger asks for live jobs for as long as its own setting says.
    assert filled.predictions_at(STUDY, [1, 2, 4]).keys() == {2, 4}
    with filled.transaction() as tx:
        added = tx.add_observations(STUDY, jobs(3), LATER)
    assert (len(added.fresh), added.duplicates) == (2, 1)


def test_jobs_are_listed_from_the_latest_on(filled: Store) -> None:
    with filled.transaction() as tx:
        tx.lock_prunings(STUDY, LATER)
        tx.forget_jobs(STUDY, [2])
    past = filled.past_jobs(STUDY, 1, 5, LATER, 4)
    assert [(job.sequence, job.whole) for job in past] == [
        (5, True),
        (4, True),
        (3, False),
        (1, False),
    ]
    assert past[0].bytes > past[2].bytes > 0
    assert [job.sequence for job in filled.past_jobs(STUDY, 2, 5, NOW, 4)] == [5, 4]
    assert [job.sequence for job in filled.past_jobs(STUDY, 1, 9, LATER, 3)] == [9, 8, 7]


def test_when_jobs_came_in_is_found_among_gaps(store: Store) -> None:
    add_study(store)
    for day in range(20):
        with store.transaction() as tx:
            tx.add_observations(STUDY, jobs(5, first=5 * day + 1), NOW + timedelta(days=day))
    with store.transaction() as tx:
        tx.lock_prunings(STUDY, LATER)
        gone = [n for n in range(1, 70) if n % 7]
        tx.prune_jobs(STUDY, gone, LATER)
        tx.forget_jobs(STUDY, gone)
    for day in range(21):
        at = NOW + timedelta(days=day)
        until = store.received_until(STUDY, at)
        there = [n for n in range(1, 101) if n >= 70 or n % 7 == 0]
        assert [n for n in there if n <= until] == [n for n in there if n <= 5 * day]
    assert store.received_until("other", NOW) == 0


def test_jobs_that_others_need_are_named(filled: Store) -> None:
    with filled.transaction() as tx:
        (earlier,) = tx.observations_at(STUDY, [6])
        tx.add_observations(STUDY, [corrected(observation("end", attempt=1), earlier)], LATER)
        tx.add_quarantined([row(7), row(8)])
        tx.settle_quarantined(STUDY, [8], "learned", who="ann", why="", now=NOW)
    assert filled.quarantine_history(STUDY, list(range(1, 12))) == {7}
    assert filled.replaced_jobs(STUDY, list(range(1, 12))) == {6: [11]}
    with filled.transaction() as tx:
        tx.lock_prunings(STUDY, LATER)
        tx.prune_jobs(STUDY, [6, 11], LATER)
    assert filled.quarantine_history(STUDY, list(range(1, 12))) == {7}
    assert filled.replaced_jobs(STUDY, list(range(1, 12))) == {6: []}
    with filled.transaction() as tx:
        assert tx.release_quarantined(STUDY, [7], who="ann", why="", now=LATER) == [7]
    assert filled.quarantine_history(STUDY, list(range(1, 13))) == {12}
    assert filled.replaced_jobs(STUDY, [7, 12]) == {7: [12]}


def test_a_row_that_lost_its_configuration_is_damaged_and_was_not_pruned(
    filled: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with filled._database.writing() as connection:
        connection.execute(sa.text("UPDATE observations SET config = '' WHERE sequence = 5"))
    assert [job.sequence for job in filled.observations(STUDY)] == list(range(4, 11))
    (job,) = filled.observations_at(STUDY, [5])
    assert (job.status, job.metrics) == (Status.CANCELLED, {})
    assert "sequence 5, is damaged and teaches nothing" in caplog.text
    assert [job.whole for job in filled.past_jobs(STUDY, 5, 5, LATER, 1)] == [True]


def test_the_latest_end_is_moved_by_no_single_clock(store: Store) -> None:
    add_study(store)
    assert store.latest_end(STUDY) is None
    ahead = observation("e9", finished_at=NOW + timedelta(days=900))
    with store.transaction() as tx:
        tx.add_observations(STUDY, [*jobs(4), ahead], NOW)
    assert store.latest_end(STUDY) == observation("e1").finished_at


def test_what_takes_the_place_of_a_pruned_job_stands_alone(filled: Store) -> None:
    with filled.transaction() as tx:
        (earlier,) = tx.observations_at(STUDY, [6])
        tx.add_observations(STUDY, [corrected(observation("end"), earlier)], LATER)
        tx.lock_prunings(STUDY, LATER)
        tx.prune_jobs(STUDY, [6], LATER)
    (job,) = filled.observations_at(STUDY, [11])
    assert type(job) is Observation


@pytest.mark.slow
def test_old_steps_go_but_the_last_of_each_generation(store: Store) -> None:
    add_study(store)
    with store.transaction() as tx:
        for n in range(1, KEPT_STEPS + 11):
            tx.save_step(
                TuneStep(
                    study=STUDY,
                    epoch=0,
                    generation=1 + (n > 5),
                    sequence_from=n,
                    sequence_to=n,
                    seeds=[],
                    model=None,
                    finished_at=NOW + timedelta(minutes=n),
                )
            )
    with store.transaction() as tx:
        assert tx.prune_steps(STUDY, LATER) == 0
        tx.lock_prunings(STUDY, LATER)
        tx.add_observations(STUDY, jobs(20), NOW)
        tx.prune_jobs(STUDY, [2, 3], LATER)
        assert tx.prune_steps(STUDY, NOW) == 0
        assert tx.prune_steps(STUDY, LATER) == 3
        tx.prune_jobs(STUDY, [9], LATER)
        assert tx.prune_steps(STUDY, LATER) == 5
        tx.prune_jobs(STUDY, [20], LATER)
        assert tx.prune_steps(STUDY, LATER) == 1
    steps = [step.step for step in store.steps(STUDY, limit=2000)]
    assert steps[::-1] == [5, *range(11, KEPT_STEPS + 11)]
    assert store.learned_until(STUDY) == {2: KEPT_STEPS + 10, 1: 5}


def test_an_export_says_what_was_pruned(filled: Store, tmp_path: Path) -> None:
    def nothing(what: str, done: float, total: float) -> None:
        del what, done, total

    filled.export(tmp_path / "all.gz", [STUDY], NOW, nothing)
    url = f"sqlite:///{tmp_path}/other.sqlite"
    with open_store(url) as other:
        other.load(tmp_path / "all.gz", nothing)
        assert other.pruned_history(STUDY) == filled.pruned_history(STUDY)
        assert [job.sequence for job in other.observations(STUDY)] == list(range(4, 11))
