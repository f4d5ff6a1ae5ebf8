"""What is believed of configurations that did not run since a change."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.evidence.config_shifts import shifts
from tunerd.core.observation import Value

GRID: list[dict[str, Value]] = [
    {"tp": tp, "kind": kind} for tp in (1, 2, 4, 8) for kind in ("a", "b", "c")
]
NOISE = 0.02


def told(moved: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Means and deviations, given what some moved by, by their places in the grid."""
    seen = np.array([moved.get(i, math.nan) for i in range(len(GRID))])
    mean, sd = shifts(GRID, seen, np.full(len(GRID), NOISE**2))
    return mean.tolist(), sd.tolist()


def places(**values: Value) -> list[int]:
    return [i for i, one in enumerate(GRID) if values.items() <= one.items()]


def test_of_one_that_fell_nobody_knows_whether_the_others_did() -> None:
    mean, sd = told({0: -1.0})
    for i in range(1, len(GRID)):
        assert -1.0 < mean[i] < 0.0
        assert sd[i] > 0.4


def test_where_all_that_ran_moved_alike_the_rest_did_too() -> None:
    mean, sd = told({0: -0.5, 4: -0.5, 8: -0.5, 9: -0.5})
    for i in (1, 5, 10, 11):
        assert mean[i] == pytest.approx(-0.5, abs=0.1)
        assert sd[i] < 0.3


def test_what_shares_the_value_that_moved_is_expected_to_have_moved() -> None:
    a = dict.fromkeys(places(kind="a")[:3], -0.5)
    others = dict.fromkeys([*places(kind="b")[:2], *places(kind="c")[:2]], 0.0)
    mean, _ = told(a | others)
    assert mean[places(tp=8, kind="a")[0]] == pytest.approx(-0.5, abs=0.15)
    assert mean[places(tp=8, kind="b")[0]] == pytest.approx(0.0, abs=0.15)


def test_a_number_that_counts_the_other_way_is_told_beyond_what_ran() -> None:
    by_tp = {8: -1.0, 4: -0.33, 2: 0.33}
    mean, _ = told({places(tp=tp, kind="a")[0]: moved for tp, moved in by_tp.items()})
    assert (
        mean[places(tp=1, kind="a")[0]] > 0.2
    )  # a third of the way that tp = 2 went beyond 4 at least


def test_what_stayed_beside_one_that_fell_says_that_the_rest_stayed() -> None:
    mean, sd = told({0: -1.0, 4: 0.0, 8: 0.0, 10: 0.0})
    assert abs(mean[5]) < 0.15
    assert sd[5] < 0.4


def test_nothing_ran_and_nothing_is_known() -> None:
    mean, sd = told({})
    assert mean == [0.0] * len(GRID)
    assert all(math.isinf(one) for one in sd)


@pytest.mark.slow
@given(
    st.dictionaries(st.integers(0, len(GRID) - 1), st.floats(-5.0, 5.0), min_size=1),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.integers(0, 1000),
)
def test_it_is_the_same_in_any_unit_and_order(
    moved: dict[int, float], unit: float, seed: int
) -> None:
    seen = np.array([moved.get(i, math.nan) for i in range(len(GRID))])
    variance = np.full(len(GRID), NOISE**2)
    mean, sd = shifts(GRID, seen, variance)
    assert np.isfinite(mean).all()
    assert (sd > 0.0).all()
    order = np.random.default_rng(seed).permutation(len(GRID))
    other = shifts([GRID[i] for i in order], unit * seen[order], unit**2 * variance)
    np.testing.assert_allclose(other[0], unit * mean[order], rtol=1e-4, atol=1e-6 * unit)
    np.testing.assert_allclose(other[1], unit * sd[order], rtol=1e-3, atol=1e-6 * unit)
