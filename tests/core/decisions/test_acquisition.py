"""What is worth trying, and which configurations are tried side by side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from tunerd.core.arrays import FloatArray
from tunerd.core.decisions.acquisition import (
    chosen,
    likely_first,
    log_expected_improvement,
    worth_trying,
)


@pytest.mark.parametrize("mean", [-30.0, -8.0, -1.5, -1.0, -0.5, 0.0, 3.0])
@pytest.mark.parametrize("sd", [0.2, 1.0, 5.0])
def test_expected_improvement_is_the_integral(mean: float, sd: float) -> None:
    def improvement(gain: float) -> float:
        return gain * float(np.exp(norm.logpdf(gain, mean, sd) - norm.logpdf(0.0, mean, sd)))

    whole, _ = quad(improvement, 0.0, max(mean, 0.0) + 12 * sd, limit=500)
    expected = np.log(whole) + norm.logpdf(0.0, mean, sd)
    found = log_expected_improvement(np.array([mean]), np.array([sd]), 0.0)[0]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.floats(1e-3, 1e3))
def test_a_better_mean_is_never_worth_less(means: list[float], sd: float) -> None:
    ordered = np.sort(np.array(means))
    found = log_expected_improvement(ordered, np.full(len(ordered), sd), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-9 * np.abs(found[1:])).all()


def test_what_hardly_runs_is_worth_less() -> None:
    mean, sd = np.zeros(3), np.ones(3)
    worth = worth_trying(mean, sd, np.array([0.1, 0.9, 0.0]), 0.5)
    assert np.argsort(-worth).tolist() == [1, 0, 2]
    assert np.isfinite(worth).all()


@given(
    st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(0.0, 1.0)), min_size=2, max_size=20),
    st.floats(0.01, 1.0),
)
def test_what_most_likely_fails_comes_after_all_else(
    told: list[tuple[float, float]], least: float
) -> None:
    worth, feasible = np.array(told).T
    ranked = likely_first(np.minimum(worth, 700.0), feasible, least)
    assert np.isfinite(ranked).all()
    likely = feasible >= least
    if likely.any() and not likely.all():
        assert ranked[likely].min() > ranked[~likely].max()
    order = np.argsort(worth[likely], kind="stable")
    assert (np.diff(ranked[likely][order]) >= 0).all()


def test_of_what_most_likely_fails_the_likeliest_comes_first() -> None:
    ranked = likely_first(np.array([-1.0, 0.5, -300.0]), np.array([0.1, 0.1, 0.2]), 0.8)
    assert np.argsort(-ranked).tolist() == [1, 0, 2]  # a slope: little hope counts as well
    assert np.argmax(likely_first(np.zeros(3), np.array([0.1, 0.3, 0.2]), 0.8)) == 1


def test_a_batch_takes_what_most_likely_fails_last() -> None:
    """However little is hoped of what runs; the first choice, at its word, does not either."""
    mean, sd = np.array([-500.0, 5.0, -400.0, 4.0]), np.full(4, 0.01)
    runs, alike = np.array([0.9, 0.4, 0.9, 0.45]), np.eye(4)
    picks = chosen(mean, sd, runs, 0.0, lambda row: alike[row], np.zeros(4), 4, least=0.5)
    assert picks[:2] == [2, 0]


def batch(mean: FloatArray, sd: FloatArray, alike: FloatArray, count: int) -> list[int]:
    n = len(mean)
    ran = np.ones(n)
    return chosen(mean, sd, ran, 0.0, lambda row: alike[row], np.zeros(n), count)


def test_a_batch_does_not_ask_the_same_thing_twice() -> None:
    # Two groups of three; within a group, one run says all.
    alike = np.kron(np.eye(2), np.full((3, 3), 0.999)) + 0.001 * np.eye(6)
    mean = np.array([0.10, 0.09, 0.08, 0.05, 0.04, 0.03])
    picks = batch(mean, np.full(6, 0.5), alike, 2)
    assert picks == [0, 3]
    assert batch(mean, np.full(6, 0.5), np.eye(6), 2) == [0, 1]


def test_a_batch_has_each_configuration_once_and_no_more_than_there_are() -> None:
    picks = batch(np.zeros(3), np.ones(3), np.ones((3, 3)), 10)
    assert sorted(picks) == [0, 1, 2]


def test_what_is_predicted_to_be_no_number_comes_last_and_once() -> None:
    mean = np.array([0.1, np.nan, 0.3, 0.2])
    assert batch(mean, np.full(4, 0.1), np.eye(4), 4) == [2, 3, 0, 1]


def test_the_first_choice_takes_predictions_at_their_word() -> None:
    """Of four that are unsure much is hoped; what is predicted best is sure to be a little better.
    Where others' jobs tell all that is believed, every other choice does."""
    mean, sd = np.array([-0.1, -0.1, 0.0, 0.05, 0.04]), np.array([2.0, 2.0, 2.0, 0.01, 0.01])

    def picks(*, elsewhere: bool) -> list[int]:
        nothing = np.zeros(5)
        return chosen(
            mean, sd, np.ones(5), 0.0, lambda row: np.eye(5)[row], nothing, 4, elsewhere=elsewhere
        )

    assert picks(elsewhere=False) == [3, 2, 0, 1]
    assert picks(elsewhere=True) == [3, 2, 4, 0]


def test_the_best_predicted_has_to_be_likely_to_run() -> None:
    mean, runs = np.array([0.3, 0.2]), np.array([0.05, 0.95])
    picks = chosen(mean, np.full(2, 0.1), runs, 0.0, lambda row: np.eye(2)[row], np.zeros(2), 1)
    assert picks == [1]


def test_with_nothing_known_the_best_predicted_comes_first() -> None:
    mean, sd = np.array([0.0, 1.0, 0.5]), np.array([9.0, 0.1, 0.1])
    picks = chosen(mean, sd, np.ones(3), None, lambda row: np.eye(3)[row], np.zeros(3), 2)
    assert picks == [1, 0]


def test_what_runs_stays_until_something_clearly_better_comes() -> None:
    mean, sd, nothing = np.array([0.50, 0.51]), np.ones(2), np.zeros(2)
    bonus = np.array([0.5, 0.0])

    def first(mean: FloatArray) -> int:
        alike = np.eye(2)
        return chosen(mean, sd, np.ones(2), 0.0, lambda row: alike[row], nothing, 1, bonus)[0]

    assert first(mean) == 0
    assert first(np.array([0.5, 3.0])) == 1
