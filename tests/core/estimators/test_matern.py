"""How alike two places are, beside the formula and beside differences of it."""

import numpy as np

from tunerd.core.estimators.matern import matern, sloped, squares

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))


def test_distances_and_covariance_are_those_of_the_book() -> None:
    apart = ((A[:, None] - B) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares(A, B), apart, rtol=1e-12)
    r = np.sqrt(5.0 * apart)
    expected = (1.0 + r + r**2 / 3.0) * np.exp(-r)
    np.testing.assert_allclose(sloped(apart)[0], expected, rtol=1e-12)
    np.testing.assert_allclose(matern(apart), expected, rtol=1e-12)


def test_the_same_place_is_wholly_alike() -> None:
    far_out = 1e4 * A  # what rounding leaves of a distance may not make a place unlike itself
    np.testing.assert_allclose(np.diag(matern(squares(A, A))), 1.0, rtol=1e-12)
    assert np.diag(matern(squares(far_out, far_out))).min() > 1.0 - 1e-6


def test_the_slope_is_what_a_longer_length_does() -> None:
    apart, step = squares(A, B), 1e-6
    up, down = (matern(apart * np.exp(-2.0 * s)) for s in (step, -step))
    np.testing.assert_allclose(
        (up - down) / (2.0 * step), 5.0 / 3.0 * apart * sloped(apart)[1], atol=1e-8
    )
