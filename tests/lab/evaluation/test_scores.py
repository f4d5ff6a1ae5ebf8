"""Figures against hand-computed examples and scikit-learn's."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.core.tuning import study
from tests.needs import need_library
from tunerd.core.scores import kendall_large
from tunerd.lab.evaluation.scores import (
    auc,
    brier,
    calibration_error,
    regret,
    regret_of_random,
    regret_of_top,
    reliability,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_kendall_of_many_rows_is_that_of_few() -> None:
    values = rng().normal(size=(2, 1_500)).round(1)
    assert kendall_large(*values) == pytest.approx(stats.kendalltau(*values)[0])
    assert kendall_large(*values[:, :900]) == pytest.approx(stats.kendalltau(*values[:, :900])[0])
    assert math.isnan(kendall_large(np.ones(1_500), values[0]))


def test_regret_is_in_the_raw_metric_whatever_the_scale_and_goal() -> None:
    faster = study()
    assert regret(faster, math.log(90), math.log(100)) == pytest.approx(0.1)
    assert regret(faster, math.log(100), math.log(100)) == 0
    assert regret(faster, None, math.log(100)) == 1
    shorter = study(goal='"minimize"')
    assert regret(shorter, -math.log(110), -math.log(100)) == pytest.approx(0.1)
    assert regret(shorter, -math.log(500), -math.log(100)) == 1
    linear = study(scale='"linear"')
    assert regret(linear, 90.0, 100.0) == pytest.approx(0.1)
    assert regret(linear, -1.0, 0.0) == 1
    assert regret(linear, 1e-300, 2e-300) == pytest.approx(0.5)


@given(st.floats(-20, 20), st.floats(0, 20), st.sampled_from(['"maximize"', '"minimize"']))
def test_regret_is_a_share(best: float, behind: float, goal: str) -> None:
    told = regret(study(goal=goal), best - behind, best)
    assert 0 <= told <= 1
    assert told > 0 or behind < 1e-12


def test_regret_of_the_first_k_by_hand() -> None:
    regrets = np.array([0.5, 0.2, 0.0, 0.4, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0])
    ranking = np.array([12.0, 11, 1, 10, 9, 8, 7, 6, 5, 4, 3, 2])
    assert regret_of_top(regrets, ranking, 1, rng()) == 0.5
    assert regret_of_top(regrets, ranking, 3, rng()) == 0.2
    assert math.isnan(regret_of_top(regrets, ranking, 5, rng()))  # 12 are fewer than 4 · 5


def test_ties_are_broken_at_random_and_not_in_the_order_of_the_table() -> None:
    regrets = np.arange(20) / 20
    told = [
        regret_of_top(regrets, np.zeros(20), 1, np.random.default_rng(seed)) for seed in range(400)
    ]
    assert np.mean(told) == pytest.approx(regret_of_random(regrets, 1), abs=0.05)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_regret_of_a_random_order_is_the_mean_over_all_draws(k: int) -> None:
    regrets = rng().random(12)
    draws = [min(draw) for draw in itertools.combinations(regrets, k)]
    assert regret_of_random(regrets, k) == pytest.approx(np.mean(draws))


@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=50))
def test_auc_and_brier_agree_with_scikit_learn(pairs: list[tuple[int, bool]]) -> None:
    metrics = need_library("sklearn.metrics")
    said = np.array([p / 10 for p, _ in pairs])
    ran = np.array([r for _, r in pairs])
    assert brier(said, ran) == pytest.approx(float(np.mean((said - ran) ** 2)))
    if ran.all() or not ran.any():
        assert math.isnan(auc(said, ran))
        return
    assert auc(said, ran) == pytest.approx(metrics.roc_auc_score(ran, said))
    assert brier(said, ran) == pytest.approx(metrics.brier_score_loss(ran, said))


def test_calibration_by_hand() -> None:
    said = np.array([0.05, 0.05, 0.95, 1.0])
    ran = np.array([False, True, True, True])
    low, high = reliability(said, ran)
    assert (low.low, low.high, low.rows, low.said, low.ran) == (0.0, 0.1, 2, 0.05, 0.5)
    assert (high.rows, high.ran) == (2, 1.0)
    assert high.said == pytest.approx(0.975)
    assert calibration_error([low, high]) == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)
    assert math.isnan(calibration_error([]))
