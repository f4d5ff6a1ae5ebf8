"""One prediction beside what happened."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tests.core.tuning import job, renamed, study
from tunerd.core.observation import Observation, Status
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.forecast_scores import ForecastEvaluation, GroundTruth, judge
from tunerd.lab.evaluation.forecaster import JobForecasts, checked, stripped

STUDY = study()


def config(i: int) -> dict[str, int | str | bool]:
    """The i-th of 48 configurations."""
    return {"x": i % 8 + 1, "y": "abc"[i // 8 % 3], "z": i // 24 % 2 == 1}


def jobs(speeds: Sequence[float | None], n: int = 8) -> list[Observation]:
    """One job per configuration, None for one that ran out of memory."""
    return [
        job(
            i + 1,
            {"n": n},
            dict(config(i)),
            speed=speed,
            status=Status.SUCCEEDED if speed is not None else Status.OUT_OF_MEMORY,
        )
        for i, speed in enumerate(speeds)
    ]


def judged(observations: Sequence[Observation], foretold: JobForecasts) -> ForecastEvaluation:
    return judge(GroundTruth.of(STUDY, observations), foretold, np.random.default_rng(0))


def told(values: Sequence[float]) -> JobForecasts:
    return JobForecasts(np.log(np.array(values, dtype=np.float64)))


def test_a_perfect_prediction_is_perfect() -> None:
    speeds = [float(v) for v in range(10, 50)]
    perfect = judged(jobs(speeds), told(speeds))
    for figures in (perfect.overall, perfect.within, *perfect.per_context.values()):
        assert figures.kendall_tau == figures.spearman == pytest.approx(1)
        assert figures.pearson == pytest.approx(1)
        assert figures.mape == pytest.approx(0)
        assert set(figures.regret_at.values()) == {0.0}
        assert figures.rows == 40
        assert figures.coverage is figures.auc is figures.brier is None


def test_regret_is_that_of_the_best_of_the_first_k_by_hand() -> None:
    speeds = [float(v) for v in range(61, 101)]  # best 100
    ranking = list(speeds)
    ranking[19] = 1_000.0  # 80 is said to be the best, then 100, 99, …
    figures = judged(jobs(speeds), told(ranking)).overall
    assert figures.regret_at == {"1": pytest.approx(0.2), "3": 0.0, "5": 0.0, "10": 0.0}
    assert figures.random_regret_at["1"] == pytest.approx(1 - np.mean(speeds) / 100)


def test_contexts_with_few_jobs_say_nothing_of_ranks_nor_of_many_picks() -> None:
    few = judged(jobs([1.0, 2, 3, 4, 5, 6, 7]), told([1.0, 2, 3, 4, 5, 6, 7])).overall
    assert few.kendall_tau is few.spearman is few.pearson is None
    assert few.mape == pytest.approx(0)
    assert few.regret_at == {"1": 0.0, "3": None, "5": None, "10": None}


def test_within_contexts_is_weighed_by_jobs_and_regret_by_contexts() -> None:
    small, large = (
        jobs([float(v) for v in range(1, 13)], n=8),
        jobs([float(v) for v in range(1, 25)], n=16),
    )
    backwards = [13.0 - v for v in range(1, 13)]
    forwards = [float(v) for v in range(1, 25)]
    found = judged([*small, *large], told([*backwards, *forwards]))
    assert found.within.kendall_tau == pytest.approx((12 * -1 + 24 * 1) / 36)
    assert found.within.regret_at["1"] == pytest.approx((11 / 12 + 0) / 2)
    assert found.overall.regret_at == found.within.regret_at
    assert found.within.contexts == 2
    assert {f.rows for f in found.per_context.values()} == {12, 24}


def test_repeats_of_a_configuration_are_one() -> None:
    speeds = [float(v) for v in range(10, 40)]
    lucky = job(99, {"n": 8}, dict(config(0)), speed=100.0)
    observations = [*jobs(speeds), lucky]
    figures = judged(observations, told([*speeds, 10.0])).overall
    # Configuration 0 ran at 10 and at 100: its mean on the log scale is 31.6, best is 39.
    assert figures.regret_at["1"] == 0.0
    of_lucky = judged(observations, told([50.0, *speeds[1:], 50.0])).overall
    assert of_lucky.regret_at["1"] == pytest.approx(1 - math.sqrt(10 * 100) / 39)


def test_configurations_are_told_apart_by_what_was_renamed() -> None:
    speeds = [float(v) for v in range(10, 40)]
    found = judge(
        GroundTruth.of(renamed(), jobs(speeds)), told(speeds[::-1]), np.random.default_rng(0)
    )
    assert found.overall.regret_at == judged(jobs(speeds), told(speeds[::-1])).overall.regret_at


def test_a_configuration_that_mostly_fails_did_not_run() -> None:
    speeds = [float(v) for v in range(10, 40)]
    again = [job(90 + i, {"n": 8}, dict(config(29)), status=Status.OUT_OF_MEMORY) for i in range(2)]
    observations = [*jobs(speeds), *again]
    figures = judged(observations, told([*speeds, 39.0, 39.0])).overall
    assert figures.regret_at["1"] == 1.0  # its first pick, the fastest, does not run
    assert figures.regret_at["3"] == 0.0


def test_failures_come_last_by_the_probability_to_run() -> None:
    speeds: list[float | None] = [float(v) for v in range(10, 30)] + [None] * 20
    score = np.log(np.arange(10.0, 50.0))  # the failures are said to be the fastest
    runs = np.array([0.95] * 20 + [0.1] * 20)
    assert judged(jobs(speeds), JobForecasts(score)).overall.regret_at["3"] == 1.0
    figures = judged(jobs(speeds), JobForecasts(score, runs=runs)).overall
    assert figures.regret_at["1"] == 0.0
    assert figures.auc == 1.0
    assert figures.ran == 0.5
    assert figures.brier == pytest.approx((0.05**2 + 0.1**2) / 2)
    assert figures.ece == pytest.approx((0.05 + 0.1) / 2)
    assert figures.rows == 20


def test_calibration_is_told_in_bins() -> None:
    speeds: list[float | None] = [1.0] * 8 + [None] * 2
    bins = judged(jobs(speeds), JobForecasts(np.zeros(10), runs=np.full(10, 0.8))).calibration
    (one,) = bins
    assert (one.low, one.high, one.rows) == (0.8, 0.9, 10)
    assert one.said == pytest.approx(0.8)
    assert one.ran == pytest.approx(0.8)


def test_jobs_that_say_nothing_are_no_measurement() -> None:
    speeds = [float(v) for v in range(10, 14)]
    cancelled = [
        job(50 + i, {"n": 8}, dict(config(10 + i)), status=Status.CANCELLED) for i in range(20)
    ]
    figures = judged([*jobs(speeds), *cancelled], told([*speeds, *[99.0] * 20])).overall
    assert figures.regret_at == {"1": 0.0, "3": None, "5": None, "10": None}


def test_where_nothing_ran_there_is_no_regret() -> None:
    figures = judged(jobs([None] * 12), told([1.0] * 12)).overall
    assert set(figures.regret_at.values()) == {None}
    assert figures.rows == figures.contexts == 0
    assert figures.ran == 0


def test_a_speed_that_broke_a_guard_teaches_speed_but_is_no_pick() -> None:
    guard = "[guards]\nmemory = { max = 76 }\n[context]"
    strict = parse_study(STUDY.text.replace("[context]", guard))
    speeds = [float(v) for v in range(10, 30)]
    observations = jobs(speeds)
    broken = {"speed": 29.0, "memory": 80.0}
    observations[-1] = msgspec.structs.replace(observations[-1], metrics=broken)
    found = judge(GroundTruth.of(strict, observations), told(speeds), np.random.default_rng(0))
    assert found.overall.rows == 20
    assert found.overall.regret_at["1"] == 1.0
    assert found.overall.ran == 0.95


def test_coverage_and_width_of_the_band() -> None:
    score = np.log(np.arange(1.0, 11.0))
    outside = np.arange(10) == 0
    band = JobForecasts(
        score, np.where(outside, 5.0, score - 0.1), np.where(outside, 5.4, score + 0.3)
    )
    figures = judged(jobs([float(v) for v in range(1, 11)]), band).overall
    assert figures.coverage == 0.9
    assert figures.band == 0.8
    assert figures.band_width == pytest.approx(0.4)


def test_the_same_of_all_jobs_counts_as_no_correlation() -> None:
    figures = judged(jobs([1.0, 2, 3, 4, 5, 6, 7, 8]), told([5.0] * 8)).overall
    assert figures.kendall_tau == figures.spearman == figures.pearson == 0.0


def test_who_only_ranks_is_not_judged_by_units() -> None:
    figures = judged(
        jobs([float(v) for v in range(1, 11)]), JobForecasts(np.arange(10.0), only_ranks=True)
    ).overall
    assert figures.kendall_tau == 1.0
    assert figures.pearson is figures.mape is None


def test_what_is_asked_about_says_nothing_of_what_happened() -> None:
    one = job(3, {"n": 8}, dict(config(0)), speed=3.0)
    seen = stripped(one)
    assert seen.metrics == {}
    assert seen.status is stripped(job(3, {}, {}, status=Status.OUT_OF_MEMORY)).status
    assert (seen.context, seen.config, seen.event_id) == (one.context, one.config, one.event_id)
    assert one.metrics == {"speed": 3.0}


@pytest.mark.parametrize(
    ("foretold", "says"),
    [
        (JobForecasts(np.zeros(3)), "score has shape"),
        (JobForecasts(np.array([0.0, math.nan])), "score is not a number"),
        (JobForecasts(np.array([0.0, math.inf])), "score is not a number"),
        (JobForecasts(np.zeros(2), low=np.zeros(2)), "both low and high"),
        (JobForecasts(np.zeros(2), runs=np.array([0.5, 1.5])), "outside 0..1"),
    ],
)
def test_what_cannot_be_judged_names_who_said_it(foretold: JobForecasts, says: str) -> None:
    with pytest.raises(ValueError, match=f"somebody: .*{says}"):
        checked("somebody", foretold, 2)
