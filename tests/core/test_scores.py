"""Figures that compare predictions with what happened."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tunerd.core.scores import (
    MOST_ERROR,
    PrequentialWindow,
    kendall,
    mape,
    pearson,
    spearman,
    within_contexts,
)

Pairs = list[tuple[int, int]]
pairs = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=60)


@pytest.mark.slow
@given(pairs)
def test_rank_correlations_agree_with_scipy_ties_included(values: Pairs) -> None:
    predicted, actual = np.array(values, dtype=np.float64).T
    if np.ptp(predicted) == 0 or np.ptp(actual) == 0:
        assert math.isnan(kendall(predicted, actual))
        assert math.isnan(spearman(predicted, actual))
        return
    assert kendall(predicted, actual) == pytest.approx(stats.kendalltau(predicted, actual)[0])
    assert spearman(predicted, actual) == pytest.approx(stats.spearmanr(predicted, actual)[0])
    assert pearson(predicted, actual) == pytest.approx(stats.pearsonr(predicted, actual)[0])


def test_kendall_works_in_strips() -> None:
    rng = np.random.default_rng(0)
    actual = rng.normal(size=2_500)  # more than two strips
    predicted = actual + rng.normal(size=2_500)
    assert kendall(predicted, actual) == pytest.approx(stats.kendalltau(predicted, actual)[0])


def test_nothing_to_compare_is_nan() -> None:
    none, one = np.empty(0), np.ones(1)
    for score in (kendall, spearman, pearson):
        assert math.isnan(score(none, none))
        assert math.isnan(score(one, one))
    assert math.isnan(mape(none, none))
    assert math.isnan(within_contexts(kendall, none, none, []))


def test_mape_is_relative_to_the_actual_value() -> None:
    assert mape(np.array([110.0, 80.0, 5.0]), np.array([100.0, 100.0, 0.0])) == pytest.approx(0.15)


@pytest.mark.parametrize("close", [5e-324, -1e-300, 1e-9])
def test_one_job_close_to_zero_does_not_drown_all_others(close: float) -> None:
    actual, predicted = np.full(100, 100.0), np.full(100, 110.0)
    actual[0] = close
    assert mape(predicted, actual) == pytest.approx(0.99 * 0.1 + 0.01 * MOST_ERROR)
    predicted[1] = math.inf  # what exp() makes of a guess that is far off
    assert mape(predicted, actual) == pytest.approx(0.98 * 0.1 + 0.02 * MOST_ERROR)


def test_within_contexts_looks_at_each_context_alone() -> None:
    # Two contexts far apart, ranked backwards inside each: over all rows together that looks good.
    actual = np.concatenate([np.arange(10.0), 100 + np.arange(10.0)])
    predicted = np.concatenate([-np.arange(10.0), 100 - np.arange(10.0)])
    keys = ["a"] * 10 + ["b"] * 10
    assert kendall(predicted, actual) > 0
    assert within_contexts(kendall, predicted, actual, keys) == pytest.approx(-1.0)


def test_within_contexts_weighs_by_rows_and_leaves_small_ones_out() -> None:
    actual = np.concatenate([np.arange(24.0), np.arange(8.0), np.arange(7.0)])
    predicted = np.concatenate([np.arange(24.0), np.zeros(8), -np.arange(7.0)])
    keys = ["right"] * 24 + ["the same for all"] * 8 + ["too small"] * 7
    assert within_contexts(kendall, predicted, actual, keys) == pytest.approx(24 / 32)


@pytest.mark.parametrize("contexts", [33, 34])
def test_where_all_contexts_are_small_many_of_them_count(contexts: int) -> None:
    actual = np.tile(np.arange(3.0), contexts)
    predicted = np.tile([0.0, 2.0, 1.0], contexts)  # one pair in three is swapped
    keys = [f"{i // 3}" for i in range(3 * contexts)]
    found = within_contexts(kendall, predicted, actual, keys)
    assert math.isnan(found) if contexts == 33 else found == pytest.approx(1 / 3)
    large = np.arange(8.0)
    both = np.concatenate([predicted, large]), np.concatenate([actual, large])
    assert within_contexts(kendall, *both, [*keys, *["large"] * 8]) == pytest.approx(1.0)


def test_within_contexts_skips_contexts_where_nothing_differs() -> None:
    actual = np.concatenate([np.arange(8.0), np.ones(8)])
    predicted = np.arange(16.0)
    keys = ["a"] * 8 + ["b"] * 8
    assert within_contexts(kendall, predicted, actual, keys) == pytest.approx(1.0)


def test_window_keeps_the_latest_and_survives_json() -> None:
    window = PrequentialWindow(size=20)
    for i in range(50):
        window.add("c", float(i), float(i % 7))
    again = PrequentialWindow.load(json.loads(json.dumps(window.dump())))
    assert len(again) == 20
    keys, predicted, actual = again.arrays()
    assert keys == ("c",) * 20
    assert predicted.tolist() == [float(i) for i in range(30, 50)]
    assert actual.tolist() == [float(i % 7) for i in range(30, 50)]
    again.add("c", 50.0, 1.0)
    assert len(again) == 20


def test_window_scores_are_in_raw_metric_values_only_for_mape() -> None:
    window = PrequentialWindow()
    for i in range(16):
        window.add("c", math.log(110.0 + i), math.log(100.0 + i))
    scores = window.scores(math.exp)
    assert scores.rows == 16
    assert scores.kendall == scores.kendall_within == pytest.approx(1.0)
    assert scores.spearman_within == pytest.approx(1.0)
    assert scores.mape == pytest.approx(np.mean([10 / (100 + i) for i in range(16)]))


def test_empty_window_says_nan() -> None:
    scores = PrequentialWindow().scores()
    assert scores.rows == 0
    assert math.isnan(scores.kendall)
    assert math.isnan(scores.kendall_within)
