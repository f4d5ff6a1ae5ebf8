"""Weights of predictors by what they said of jobs left out."""

from dataclasses import replace

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.stacked_regression import MemberPredictions, weights_of

EQUAL = np.full(3, 1 / 3)


def record(n: int, off: FloatArray, contexts: int = 10) -> MemberPredictions:
    """Three members that are ``off`` by so much, in contexts that lie far apart."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, contexts, n)
    score = 5.0 * group + rng.normal(size=n)
    mean = score[:, None] + off * rng.normal(size=(n, 3))
    keys = tuple(f"c{i}" for i in group)
    return MemberPredictions(mean, np.ones((n, 3)), score, keys)


def test_a_member_that_does_not_help_gets_nothing() -> None:
    weights = weights_of(record(400, np.array([0.2, 0.2, 3.0])), EQUAL)
    np.testing.assert_allclose(weights.sum(), 1.0)
    assert weights[2] == 0.0
    assert abs(weights[0] - weights[1]) < 0.15


def test_what_is_off_by_the_same_for_all_of_a_context_costs_little() -> None:
    told = record(400, np.array([0.5, 0.5, 0.5]))
    level = np.array([float(key[1:]) for key in told.keys])
    shifted = np.column_stack([told.mean[:, 0] + 3.0 * level, told.mean[:, 1:]])
    same = MemberPredictions(shifted, told.spread, told.score, told.keys)
    assert weights_of(same, EQUAL)[0] > 0.2


def test_without_jobs_the_prior_stands_and_few_move_it_little() -> None:
    prior = np.array([0.5, 0.3, 0.2])
    np.testing.assert_array_equal(weights_of(MemberPredictions.empty(3), prior), prior)
    few = weights_of(record(4, np.array([0.2, 0.4, 0.4])), prior)
    assert np.abs(few - prior).max() < 0.35


def test_perfect_and_equal_members_share() -> None:
    np.testing.assert_allclose(weights_of(record(50, np.zeros(3)), EQUAL), EQUAL, atol=1e-6)


def test_the_member_that_fits_what_has_faded_does_not_win() -> None:
    before, today = record(300, np.array([0.2, 3.0, 3.0])), record(60, np.array([3.0, 0.2, 3.0]))
    assert weights_of(before.joined(today), EQUAL)[0] > 0.5
    faded = replace(before, counts=np.full(300, 0.001)).joined(today)
    np.testing.assert_allclose(weights_of(faded, EQUAL), weights_of(today, EQUAL), atol=0.02)
    again = MemberPredictions.of(faded.take(slice(250, 340)).arrays(), faded.keys[250:340])
    np.testing.assert_array_equal(again.told, faded.told[250:340])


def test_where_nothing_has_faded_weights_are_the_same_bits() -> None:
    told = record(90, np.array([0.2, 0.4, 1.0]))
    full = replace(told, counts=np.ones(90))
    np.testing.assert_array_equal(weights_of(full, EQUAL), weights_of(told, EQUAL))
    assert "counts" not in told.arrays()  # checkpoints are as they were
