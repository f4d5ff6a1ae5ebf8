"""The Gaussian process: its gradients, what it interpolates, and what it knows that it does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.exact_gp import JITTER, ExactGP, Kernel, posterior

CONTEXT = np.array([True, True, False, False, False])


def rows(n: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What a configuration does depends on the context."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 5))
    y = np.sin(Z[:, 2]) * (1 + 0.5 * Z[:, 0]) + 0.3 * Z[:, 1]
    return Z, y / y.std(), rng.uniform(0.3, 1.0, n)


@pytest.mark.slow
@given(st.integers(0, 10_000))
def test_the_gradient_is_that_of_the_posterior(seed: int) -> None:
    Z, y, weight = rows(20, seed)
    kernel = Kernel.start(CONTEXT)
    theta = kernel.theta + np.random.default_rng(seed).normal(0, 0.3, len(kernel.theta))
    _, gradient = posterior(kernel.at(theta), Z, y, weight)
    step = 1e-5
    for i, along in enumerate(np.eye(len(theta)) * step):
        ahead, _ = posterior(kernel.at(theta + along), Z, y, weight)
        behind, _ = posterior(kernel.at(theta - along), Z, y, weight)
        assert gradient[i] == pytest.approx((ahead - behind) / (2 * step), rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_it_predicts_what_it_has_not_seen_and_knows_where_it_has_seen_nothing() -> None:
    Z, y, weight = rows(200)
    kernel = Kernel.start(CONTEXT).fitted(Z, y, weight)
    process = ExactGP.given(kernel, Z[:150], y[:150], weight[:150])
    mean, variance = process.predict(Z[150:])
    assert np.corrcoef(mean, y[150:])[0, 1] > 0.97
    _, far = process.predict(Z[150:] + 20.0)
    assert np.median(far) > 3 * np.median(variance)
    assert (far <= kernel.variance + 1e-9).all()


def test_columns_that_say_nothing_get_long_lengths() -> None:
    Z, y, weight = rows(150)
    lengths = Kernel.start(CONTEXT).fitted(Z, y, weight).lengths
    assert lengths[2] < lengths[3] - 1
    assert lengths[2] < lengths[4] - 1


def test_errors_of_rows_left_out_are_those_of_leaving_them_out() -> None:
    Z, y, weight = rows(40)
    kernel = Kernel.start(CONTEXT).fitted(Z, y, weight)
    told = ExactGP.given(kernel, Z, y, weight).left_out()
    for i in (0, 7, 39):
        others = np.arange(40) != i
        mean, variance = ExactGP.given(kernel, Z[others], y[others], weight[others]).predict(
            Z[i : i + 1]
        )
        noise = np.exp(kernel.noise) / weight[i] + JITTER * (1.0 + kernel.variance)
        assert told[i] == pytest.approx((y[i] - mean[0]) / np.sqrt(variance[0] + noise), rel=1e-6)


def test_state_survives_to_the_last_bit() -> None:
    kernel = Kernel.start(CONTEXT).fitted(*rows(50))
    again = Kernel.load(kernel.dump())
    np.testing.assert_array_equal(kernel.theta, again.theta)
    np.testing.assert_array_equal(kernel.context, again.context)


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=10, max_size=10), st.integers(0, 1_000))
def test_wherever_the_search_for_a_kernel_tries_there_is_an_answer(
    high: list[bool], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.integers(-2, 3, (120, 5)).astype(float) * np.array([1.0, 0.0, 2.0, 1.0, 0.5])
    y, weight = rng.normal(size=120), rng.uniform(0.3, 1.0, 120)
    kernel = Kernel.start(CONTEXT)
    value, gradient = posterior(
        kernel.at(np.where(high, kernel.ends[:, 1], kernel.ends[:, 0])), Z, y, weight
    )
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
