"""Champion against challenger: what tells them apart."""

import numpy as np
import pytest

from tunerd.core.model.comparison import FEW, contest
from tunerd.core.predictors.predictions import Predictions

RNG = np.random.default_rng(5)
KEYS = tuple("abcd"[i % 4] for i in range(64))
TRUTH = RNG.normal(0, 0.3, 64) + np.array([3.0 * "abcd".index(key) for key in KEYS])


def told(noise: float, shift: float = 0.0, n: int = 64, seed: int = 0) -> Predictions:
    """Predictions of the truth with an error of this size."""
    error = np.random.default_rng(seed).normal(0, noise, n)
    return Predictions.of_scores(TRUTH[:n] + error + shift, np.full(n, 0.1))


def test_who_orders_the_jobs_better_wins() -> None:
    won = contest(KEYS, TRUTH, told(0.5), told(0.05, seed=1))
    assert (won.won, won.by, won.jobs) == (True, "ranks", 64)
    lost = contest(KEYS, TRUTH, told(0.05), told(0.5, seed=1))
    assert (lost.won, lost.by) == (False, "ranks")
    assert lost.challenger.kendall is not None
    assert lost.champion.kendall is not None
    assert lost.champion.kendall > 0.8 > lost.challenger.kendall
    assert lost.champion.coverage is not None
    assert lost.champion.coverage > 0.9


def test_where_the_order_is_the_same_the_errors_tell() -> None:
    lost = contest(KEYS, TRUTH, told(0.01), told(0.01, shift=0.4))
    assert (lost.won, lost.by) == (False, "errors")
    won = contest(KEYS, TRUTH, told(0.01, shift=0.4), told(0.01))
    assert (won.won, won.by) == (True, "errors")
    assert won.champion.error == pytest.approx(0.4, abs=0.02)


def test_contexts_are_not_compared_with_each_other() -> None:
    """A challenger that knows which context is fast, and nothing about what is tuned."""
    between = np.array([3.0 * "abcd".index(key) for key in KEYS])
    blind = Predictions.of_scores(between, np.full(64, 0.3))
    # What the champion says of whole contexts is far off; within them it is right.
    sees = Predictions.of_scores(TRUTH - 2 * between, np.full(64, 0.3))
    assert not contest(KEYS, TRUTH, sees, blind).won


def test_the_same_predictions_are_even_and_the_newer_model_takes_over() -> None:
    even = contest(KEYS, TRUTH, told(0.1), told(0.1))
    assert (even.won, even.by) == (True, "even")


@pytest.mark.parametrize("scored", [0, 1, FEW - 1])
def test_too_few_jobs_cannot_tell_and_the_newer_model_takes_over(scored: int) -> None:
    score = np.where(np.arange(64) < scored, TRUTH, np.nan)
    few = contest(KEYS, score, told(0.01), told(2.0, seed=1))
    assert (few.won, few.by, few.jobs) == (True, "few", scored)


@pytest.mark.parametrize("jobs", [3, 64])
@pytest.mark.parametrize("says", [np.nan, np.inf])
def test_who_says_what_is_no_number_loses(jobs: int, says: float) -> None:
    broken = told(0.01)
    broken.mean[2] = says
    score = np.where(np.arange(64) < jobs, TRUTH, np.nan)
    lost = contest(KEYS, score, told(2.0), broken)
    assert (lost.won, lost.by, lost.challenger.error) == (False, "broken", None)
    won = contest(KEYS, score, broken, told(2.0))
    assert (won.won, won.by, won.champion.error) == (True, "broken", None)


def test_every_job_in_a_context_of_its_own_is_told_by_the_errors() -> None:
    keys = tuple(map(str, range(64)))
    lost = contest(keys, TRUTH, told(0.05), told(0.8, seed=1))
    assert (lost.won, lost.by) == (False, "errors")
    assert lost.champion.kendall is None
