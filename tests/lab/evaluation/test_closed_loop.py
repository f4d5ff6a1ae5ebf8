"""The loop: everyone is put through the same, and regret is what it says."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.evaluation.loops import FAILS, STUDY, Oracle, Scripted, rows
from tunerd.core.observation import Status
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, RegretCurve, play, play_all
from tunerd.lab.evaluation.loop_results import loops
from tunerd.lab.evaluation.optimizers import RandomOptimizer
from tunerd.lab.evaluation.scores import regret_of_random
from tunerd.lab.evaluation.tabular import measured

TABLE = measured(STUDY, rows())
TARGET = TABLE.contexts[0]


def timeless(curves: Sequence[RegretCurve]) -> list[RegretCurve]:
    return [
        RegretCurve(c.context, c.context_key, c.seed, c.regret, c.tried, 0.0, 0.0, c.suggestions)
        for c in curves
    ]


@pytest.mark.parametrize("start", [0, 15])
def test_an_oracle_has_no_regret_after_its_first_job(start: int) -> None:
    curves = list(play_all(TABLE, Oracle(TABLE.contexts), BenchmarkPlan(jobs=30, start=start)))
    assert len(curves) == 2 * 3
    for curve in curves:
        assert len(curve.regret) == 30
        assert set(curve.regret[start:]) == {0.0}
    told = loops("oracle", curves, start)
    assert told.area == 0.0
    assert told.jobs_to_5_percent.share_reached == 1.0
    assert told.mean_regret[str(start + 1)] == 0.0


@pytest.mark.slow
def test_random_does_as_it_is_expected_to() -> None:
    """Against the exact expectation, in a table without failures or noise."""
    clean = measured(STUDY, [row for row in rows((8,), 1) if row.status is Status.SUCCEEDED])
    target = clean.contexts[0]
    plan = BenchmarkPlan(jobs=11, batch=3, start=0)
    regrets = np.array([play(target, RandomOptimizer(), plan, seed).regret for seed in range(400)])
    for jobs in (1, 3, 5, 11):
        error = regrets[:, jobs - 1].std() / 20
        expected = regret_of_random(target.regrets, jobs)
        assert regrets[:, jobs - 1].mean() == pytest.approx(expected, abs=3 * error)


def test_everyone_gets_the_same_start_and_the_same_outcomes() -> None:
    one, other = Scripted([*range(48)]), Scripted([*range(47, -1, -1)])
    for player in (one, other):
        play(TARGET, player, BenchmarkPlan(jobs=48, start=15), 1)
    assert one.told[0] == other.told[0]
    assert [outcome.index for outcome in one.told[0]] == TARGET.start(15, 1)
    came = [
        {outcome.index: outcome.job.metrics for batch in player.told[1:] for outcome in batch}
        for player in (one, other)
    ]
    both = came[0].keys() & came[1].keys()
    assert both
    assert all(came[0][i] == came[1][i] for i in both)


def test_jobs_come_in_order_and_say_what_they_came_to() -> None:
    player = Scripted([5, 5, 5, 0, 1])
    history = TABLE.others(TARGET)
    play(TARGET, player, BenchmarkPlan(jobs=5, start=0), 0, history)
    outcomes = player.told[0]
    jobs = [outcome.job for outcome in outcomes]
    assert [job.sequence for job in jobs] == [len(history) + i for i in range(1, 6)]
    assert min(job.finished_at for job in jobs) > max(job.finished_at for job in history)
    assert len({job.event_id for job in jobs}) == 5
    drawn = Counter(str(job.metrics) for job in jobs[:3])
    assert len(drawn) == len(TARGET.rows[5])  # both rows, one of them again
    for outcome in outcomes:
        assert outcome.score == STUDY.score(outcome.job.metrics)
        assert outcome.job.config == TARGET.configs[outcome.index]


def test_a_failure_is_told_as_a_failure() -> None:
    fails = [i for i, c in enumerate(TARGET.configs) if c["x"] == FAILS and c["y"] == "b"]
    player = Scripted(fails)
    curve = play(TARGET, player, BenchmarkPlan(jobs=2, start=0), 0)
    for outcome in player.told[0]:
        assert (outcome.score, outcome.ran) == (None, False)
        assert outcome.job.status is Status.OUT_OF_MEMORY
    assert curve.regret == (1.0, 1.0)  # nothing has run


@pytest.mark.slow
@given(st.lists(st.integers(0, 47), min_size=60, max_size=60), st.integers(0, 3))
def test_regret_is_that_of_the_best_that_ran(indices: list[int], seed: int) -> None:
    curve = play(TARGET, Scripted(indices), BenchmarkPlan(jobs=40, start=0, batch=7), seed)
    assert list(curve.tried) == indices[:40]
    best = np.minimum.accumulate(TARGET.regrets[indices[:40]])
    assert curve.regret == pytest.approx(best.tolist())


def test_a_lucky_row_does_not_make_a_configuration_better_than_it_is() -> None:
    """One that once ran and once failed counts by the runs that it has, once it has run."""
    table = rows((8,), 2)
    config = {"x": 6, "y": "c", "z": True}  # the best
    mixed = [
        msgspec.structs.replace(row, metrics={}, status=Status.FAILED)
        if dict(row.config) == config and row.event_id == first
        else row
        for first in [next(r.event_id for r in table if dict(r.config) == config)]
        for row in table
    ]
    target = measured(STUDY, mixed).contexts[0]
    index = target.configs.index(config)
    assert target.regrets[index] == 0.0
    curves = [
        play(target, Scripted([index, index]), BenchmarkPlan(jobs=2, start=0), seed)
        for seed in range(8)
    ]
    assert {curve.regret for curve in curves} == {(0.0, 0.0), (1.0, 0.0)}


def test_the_loop_ends_when_everything_was_tried() -> None:
    curve = play(TARGET, RandomOptimizer(), BenchmarkPlan(jobs=60, start=15, batch=10), 0)
    assert sorted(curve.tried) == list(range(48))
    assert curve.suggestions == 33
    assert len(curve.regret) == 60
    assert curve.regret[-1] == curve.regret[47] == 0.0
    short = play(TARGET, RandomOptimizer(), BenchmarkPlan(jobs=10, start=15), 0)
    assert len(short.regret) == 10
    assert short.suggestions == 0


@pytest.mark.parametrize("wrong", [[1, 2], [1, 2, 3, 4, 48], [-1, 0, 1, 2, 3], []])
def test_an_optimizer_that_answers_wrongly_is_found_out(wrong: list[int]) -> None:
    with pytest.raises(ValueError, match="scripted was asked for 5 of 48 configurations"):
        play(TARGET, Scripted(wrong), BenchmarkPlan(jobs=5, start=0), 0)


def test_the_same_again_is_the_same_to_the_bit() -> None:
    plan = BenchmarkPlan(jobs=30, seeds=(0, 4))
    first, again = (timeless(list(play_all(TABLE, RandomOptimizer(), plan))) for _ in range(2))
    assert first == again


def test_results_by_number_of_jobs() -> None:
    def curve(key: str, seed: int, *regret: float) -> RegretCurve:
        return RegretCurve({"n": 8}, key, seed, regret, (0, 1, 2, 3), 0.5, 0.3, 3)

    told = loops(
        "some",
        [
            curve("a", 0, 0.5, 0.4, 0.05, 0.0),
            curve("a", 1, 0.5, 0.4, 0.4, 0.4),
            curve("b", 0, 0.1, 0.04, 0.04, 0.04),
            curve("b", 1, 0.3, 0.2, 0.1, 0.0),
        ],
        start=1,
    )
    assert told.mean_regret == pytest.approx({"1": 0.35, "2": 0.26, "3": 0.1475, "4": 0.11})
    assert told.area == pytest.approx((0.26 + 0.1475 + 0.11) / 3)
    assert told.jobs_to_5_percent.median == 3.5  # 2, 3, 4, never
    assert told.jobs_to_5_percent.share_reached == 0.75
    assert told.seconds_per_suggestion == pytest.approx(0.1)
    for jobs, (low, high) in told.regret_band.items():
        assert 0 <= low <= told.mean_regret[jobs] <= high <= 0.5
    assert [c.seed for c in told.curves] == [0, 1, 0, 1]
    never = loops("never", [curve("a", 0, 0.5, 0.4)], start=0)
    assert never.jobs_to_5_percent.median is None
    assert never.jobs_to_5_percent.share_reached == 0.0
