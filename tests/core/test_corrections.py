"""A job that counted while it ran, and ended: it counts once, as what it turned out to be."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from tests.core.model.test_training import restored
from tests.core.tuning import (
    Inline,
    changed,
    job,
    learned_tuner,
    random_jobs,
    steps,
    study,
    true_speed,
)
from tunerd.core.evidence.config_stats import ConfigStats
from tunerd.core.observation import Observation, Status, Value, corrected, effective
from tunerd.core.tuner import Tuner

pytestmark = pytest.mark.slow

KEY = study().context_key({"n": 32})
CONFIG: dict[str, Value] = {"x": 6, "y": "c", "z": True}
SPEED = true_speed({"n": 32}, CONFIG)


def jobs(
    before: int = 60,
    between: int = 5,
    *,
    ran: float | None = SPEED,
    first: Status = Status.RUNNING,
    **end: Any,
) -> list[Observation]:
    """Random jobs, among them one that counts while it runs, and after others its end."""
    others = random_jobs(before + between)
    one = job(before + 1, {"n": 32}, CONFIG, speed=ran, status=first)
    known = [*others[:before], one]
    for other in others[before:]:
        known.append(structs.replace(other, sequence=len(known) + 1))
    at = len(known) + 1
    ending: Any = {"config": CONFIG, "speed": SPEED} | end
    last = job(at, {"n": 32}, **ending)
    return [*known, corrected(last, one)]


def learned(observations: Sequence[Observation], size: int = 4) -> Tuner:
    return learned_tuner(observations, size)


def trial(tuner: Tuner, config: dict[str, Value] = CONFIG) -> ConfigStats | None:
    if KEY not in tuner.contexts:
        return None
    trials = tuner.contexts[KEY].evidence.trials.values()
    return next((one for one in trials if one.config == config), None)


@pytest.mark.parametrize(
    ("factor", "size"), [(1.0, 1), (1.0, 80), (1.004, 4), (1.3, 1), (1.3, 4), (0.5, 80)]
)
def test_it_counts_once_with_the_speed_of_its_end(factor: float, size: int) -> None:
    found = jobs(speed=SPEED * factor)
    whole = jobs(speed=SPEED * factor, ran=SPEED * factor)
    told, alone = trial(learned(found, size)), trial(learned(whole[:-1], size))
    assert told is not None
    assert alone is not None
    assert (told.runs, told.ran, told.failures) == (alone.runs, alone.ran, alone.failures)
    assert told.mean == pytest.approx(alone.mean)
    assert [one[:2] for one in told.latest] == [one[:2] for one in alone.latest]


@pytest.mark.parametrize("between", [0, 5])
def test_one_that_ran_and_then_ran_out_of_memory_speaks_against_its_configuration(
    between: int,
) -> None:
    before = trial(learned(jobs(between=between)[:-1]))
    tuner = learned(jobs(between=between, status=Status.OUT_OF_MEMORY))
    told = trial(tuner)
    assert told is not None
    assert before is not None
    assert (told.runs, told.ran) == (before.runs - 1, before.ran - 1)
    assert told.failures == before.failures + 1


def test_one_that_was_cancelled_in_the_end_keeps_its_speed() -> None:
    told = trial(learned(jobs(status=Status.CANCELLED)))
    assert told is not None
    assert (told.runs, told.failures) == (1, 0)


@pytest.mark.parametrize("first", [Status.TIMEOUT, Status.FAILED, Status.PREEMPTED])
def test_a_late_report_gives_a_failed_one_its_speed(first: Status) -> None:
    tuner = learned(jobs(ran=None, first=first, status=first))
    told = trial(tuner)
    assert told is not None
    assert (told.runs, told.ran, told.failures) == (1, 1, 0)


def test_another_configuration_in_the_end_is_the_one_that_counts() -> None:
    other: dict[str, Value] = {"x": 5, "y": "c", "z": True}
    before, after = (learned(one) for one in (jobs(config=other)[:60], jobs(config=other)))

    def runs(tuner: Tuner, config: dict[str, Value]) -> int:
        found = trial(tuner, config)
        return found.runs if found else 0

    assert runs(after, CONFIG) == runs(before, CONFIG)
    assert runs(after, other) == runs(before, other) + 1


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_it_is_judged_once_and_its_row_is_put_right(factor: float) -> None:
    found = jobs(status=Status.FAILED, speed=SPEED * factor)
    tuner = learned(found[:-1])
    seen = tuner.window.scores(tuner.study.metric_value).rows
    (record,) = tuner.learn(found[-1:]).judged
    assert tuner.window.scores(tuner.study.metric_value).rows == seen
    assert record.corrects == 61
    assert not record.history
    assert record.outcome.status is Status.FAILED
    assert record.outcome.score == pytest.approx(tuner.study.score({"speed": SPEED * factor}))
    assert tuner.usability.jobs == sum(
        1 for one in found[:-1] if one.status is not Status.NODE_FAILURE
    )


def test_the_model_learns_an_end_that_changes_nothing_only_once() -> None:
    """The rows that a fit sees: one with a speed for each job that has one."""
    for factor in (1.0, 0.5):
        found = jobs(speed=SPEED * factor)
        tuner = learned(found)
        rows = tuner.training.replay.sample().rows
        known = [one for one in effective(found) if one.metrics]
        assert (rows.score == rows.score).sum() == len(known)
        assert rows.score[~(rows.score != rows.score)].max() < 20


@pytest.mark.parametrize(
    ("before", "end"),
    [(60, {}), (330, {"speed": SPEED / 2}), (60, {"status": Status.OUT_OF_MEMORY})],
)
def test_it_comes_out_the_same_after_a_restart(before: int, end: dict[str, Any]) -> None:
    found = jobs(before=before, **end)
    more = random_jobs(20, seed=1, first=len(found) + 1)
    tuner, parts = Tuner(study(), Inline()), dict[str, bytes]()
    for step in steps(found, 10):
        if tuner.learn(step).swapped:
            assert tuner.model is not None
            parts = tuner.model.dump()
    again = restored(tuner, parts, found)
    assert again.dump() == tuner.dump()
    for step in steps(more, 10):
        assert again.learn(step) == tuner.learn(step)
    assert again.dump() == tuner.dump()
    assert again.advise(KEY, None) == tuner.advise(KEY, None)


@pytest.mark.parametrize("end", [{}, {"speed": SPEED / 2}, {"status": Status.OUT_OF_MEMORY}])
def test_history_learned_anew_counts_it_once_too(end: dict[str, Any]) -> None:
    found = jobs(**end)
    tuner = Tuner(changed(("trees = 30", "trees = 31")), Inline())
    tuner.gather(found[:30])
    tuner.gather(found[30:])
    tuner.catch_up()
    assert trial(tuner) == trial(learned(found))
    tuner = Tuner(study(), Inline())
    tuner.gather(found)
    tuner.catch_up()
    assert trial(tuner) == trial(learned(found))


def test_effective_leaves_out_what_was_corrected() -> None:
    found = jobs()
    kept = effective(found)
    assert len(kept) == len(found) - 1
    assert found[60] not in kept
    assert effective(found[:-1]) == found[:-1]
