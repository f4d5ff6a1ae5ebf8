"""Jobs that count while they run, through the tune stage: rows, restarts and what is derived."""

import pytest
from msgspec import structs

from tests.stages.tuning import NAME, Tuning, job, random_jobs, study, true_speed
from tunerd.core.observation import Observation, Status, Value, corrected
from tunerd.stages.preview import preview
from tunerd.stages.replay import derive
from tunerd.store import ProvenanceRow, Store

CONTEXT: dict[str, Value] = {"n": 8}
CONFIG: dict[str, Value] = {"x": 5, "y": "c", "z": True}
SPEED = true_speed(CONTEXT, CONFIG)


def running(number: int, speed: float = SPEED) -> Observation:
    return job(number, CONTEXT, CONFIG, speed=speed, status=Status.RUNNING)


def end(
    store: Store, number: int, earlier: int, speed: float = SPEED, **changes: object
) -> Observation:
    (before,) = store.observations_at(NAME, [earlier])
    last = structs.replace(job(number, CONTEXT, CONFIG, speed=speed), **changes)
    return corrected(last, before)


def go(tuning: Tuning, *jobs: Observation) -> int:
    """Jobs come in and are learned; the sequence of the last."""
    tuning.add(jobs)
    tuning.run(tuning.made[-1])
    row = tuning.store.study(NAME)
    assert row is not None
    return row.last_sequence


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_an_attempt_has_one_row_with_what_came_of_it(tuning: Tuning, factor: float) -> None:
    tuning.publish()
    tuning.start()
    store = tuning.store
    go(tuning, *random_jobs(60))
    at = go(tuning, running(61))
    (row,) = (one for one in store.predictions(NAME) if one.sequence == at)
    assert row.outcome.status is Status.RUNNING
    go(tuning, *random_jobs(5, first=62, seed=2))
    last = go(tuning, end(store, 67, at, SPEED * factor, status=Status.TIMEOUT))
    rows = {one.sequence: one for one in store.predictions(NAME)}
    assert last not in rows
    assert len(rows) == last - 1
    found, state = rows[at].outcome, tuning.made[-1].store.study(NAME)
    assert state is not None
    assert state.learned_sequence == last
    assert found.status is Status.TIMEOUT
    assert found.predicted == row.outcome.predicted
    assert found.score == pytest.approx(
        (row.outcome.score or 0) + {1.0: 0, 0.5: -0.6931}[factor], abs=1e-3
    )
    lead, before = (one.entry.lead if one.entry else None for one in (found, row.outcome))
    if before is not None:
        assert lead == pytest.approx(before + {1.0: 0, 0.5: -0.6931}[factor], abs=1e-3)


def said(store: Store) -> list[ProvenanceRow]:
    found = [store.derivation(one) for _, one, _ in store.derivable(NAME, limit=1000)]
    return sorted((one for one in found if one is not None), key=lambda one: one.said_at)


@pytest.mark.parametrize("jobs", [60, 320])
def test_what_was_said_is_derived_and_goes_on_after_a_restart(tuning: Tuning, jobs: int) -> None:
    tuning.publish()
    tuning.start()
    store = tuning.store
    go(tuning, *random_jobs(jobs))
    number = jobs + 1
    for speed, ends in ((SPEED, SPEED), (SPEED, SPEED * 0.6), (SPEED * 2, SPEED)):
        at = go(tuning, running(number, speed))
        go(tuning, *random_jobs(12, first=number + 1, seed=number))
        go(tuning, end(store, number + 13, at, ends))
        tuning.start()
        number += 14
    at = go(tuning, running(number))
    go(tuning, *random_jobs(12, first=number + 1, seed=number))
    go(tuning, end(store, number + 13, at, status=Status.OUT_OF_MEMORY))
    tuning.start()
    go(tuning, *random_jobs(12, first=number + 14, seed=number + 1))
    assert not tuning.lines.of("learned anew")
    kept = said(store)
    assert len(kept) > 3
    for one in kept[-2:]:
        derived = derive(store, one)
        assert derived.same, (one.sequence, derived.checks, derived.differences)


def test_a_preview_counts_an_attempt_once(tuning: Tuning) -> None:
    tuning.publish()
    tuning.start()
    at = go(tuning, *random_jobs(20), running(21))
    go(tuning, end(tuning.store, 22, at, status=Status.FAILED))
    found = preview(tuning.store, study(), study(explore_share="0.2"))
    assert found.jobs == 21


def test_a_new_generation_counts_an_attempt_once(tuning: Tuning) -> None:
    tuning.publish()
    tuning.start()
    store = tuning.store
    at = go(tuning, *random_jobs(60), running(61))
    go(tuning, end(store, 62, at, SPEED / 2))
    tuning.publish(explore_share="0.2")
    tuning.start()
    go(tuning, *random_jobs(5, first=63, seed=3))
    state = next(
        one.state for one in store.context_states(NAME) if one.context_key == tuning.key(8)
    )
    (trial,) = (one for one in state["evidence"]["trials"].values() if one["config"] == CONFIG)
    known = [
        one
        for one in (*random_jobs(60), *random_jobs(5, first=63, seed=3))
        if one.context == CONTEXT and one.config == CONFIG and one.metrics
    ]
    assert trial["runs"] == len(known) + 1
