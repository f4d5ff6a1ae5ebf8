"""The log-linear trend."""

import json

import numpy as np

from tunerd.core.estimators.trend import RidgeTrend

RNG = np.random.default_rng(0)
X = np.column_stack([2.0 ** RNG.uniform(0, 6, 300), RNG.integers(0, 3, 300), RNG.normal(size=300)])
EFFECT = np.array([0.0, 0.5, -0.3])
Y = 0.7 * np.log2(X[:, 0]) + EFFECT[X[:, 1].astype(int)] + RNG.normal(0, 0.01, 300)
CATEGORICAL = [False, True, False]
WEIGHT = np.ones(300)
ALL = np.ones(300, dtype=bool)


def test_a_power_law_is_carried_beyond_the_data() -> None:
    trend = RidgeTrend.fit(X, Y, WEIGHT, CATEGORICAL, [ALL])
    far = np.array([[2.0**9, 1.0, 0.0]])
    expected, leverage = trend.predict(far)
    assert abs(expected[0, 0] - (0.7 * 9 + 0.5)) < 0.1
    assert leverage[0] > 3 * np.median(trend.predict(X)[1])


def test_a_clean_law_is_carried_on_by_few_jobs() -> None:
    some = slice(0, 40)
    trend = RidgeTrend.fit(X[some], Y[some], WEIGHT[some], CATEGORICAL, [ALL[some]])
    found, _ = trend.predict(X)
    assert np.abs(found[:, 0] - Y).max() < 0.2


def test_it_pulls_no_further_than_four_standard_deviations() -> None:
    trend = RidgeTrend.fit(X, Y, WEIGHT, CATEGORICAL, [ALL])
    absurd = trend.predict(np.array([[2.0**60, 1.0, 0.0], [2.0**600, 1.0, 0.0]]))[0]
    assert absurd[0] == absurd[1]


def test_missing_values_unknown_categories_and_constants_stand_at_the_mean() -> None:
    constant = np.column_stack([X, np.full(300, 7.0), np.full(300, np.nan)])
    trend = RidgeTrend.fit(constant, Y, WEIGHT, [*CATEGORICAL, False, False], [ALL])
    nothing = np.full((1, 5), np.nan)
    assert abs(trend.predict(nothing)[0][0, 0] - Y.mean()) < 0.1
    odd = np.array([[-4.0, 99.0, 0.0, 1e9, 3.0]])
    assert np.isfinite(trend.predict(odd)[0]).all()


def test_each_mask_gets_its_own_regression() -> None:
    half = np.arange(300) < 150
    shifted = np.where(half, Y, Y + 1.0)
    trend = RidgeTrend.fit(X, shifted, WEIGHT, CATEGORICAL, [half, ~half])
    members, _ = trend.predict(X)
    assert members.shape == (300, 2)
    assert abs((members[:, 1] - members[:, 0]).mean() - 1.0) < 0.05


def test_one_row_and_no_rows_are_a_constant() -> None:
    one = RidgeTrend.fit(X[:1], Y[:1], WEIGHT[:1], CATEGORICAL, [ALL[:1]])
    np.testing.assert_allclose(one.predict(X)[0], Y[0])
    none = RidgeTrend.fit(X[:0], Y[:0], WEIGHT[:0], CATEGORICAL, [ALL[:0]])
    np.testing.assert_array_equal(none.predict(X)[0], 0.0)


def test_json_keeps_every_bit() -> None:
    trend = RidgeTrend.fit(X, Y, WEIGHT, CATEGORICAL, [ALL])
    again = RidgeTrend.load(json.loads(json.dumps(trend.dump())))
    for before, after in zip(trend.predict(X), again.predict(X), strict=True):
        np.testing.assert_array_equal(before, after)
