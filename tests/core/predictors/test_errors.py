"""What predictors share about their errors."""

import numpy as np
import pytest

from tunerd.core.predictors.errors import follow_errors, noise_of, quantile


@pytest.mark.parametrize("wrong_by", [0.2, 1.0, 3.0])
def test_noise_comes_to_what_four_in_five_jobs_stay_below(wrong_by: float) -> None:
    rng = np.random.default_rng(0)
    noise, seen = 1.0, []
    for _ in range(400):
        noise = follow_errors(noise, np.abs(rng.normal(0, wrong_by, 10)) / np.sqrt(noise))
        seen.append(noise)
    assert np.sqrt(np.mean(seen[-200:])) == pytest.approx(wrong_by, rel=0.1)


def test_a_wild_job_moves_the_noise_no_more_than_any_other_outside() -> None:
    one, wild = (follow_errors(4.0, np.array([error])) for error in (1.3, 1e6))
    assert 4.0 < wild == one < 4.1
    assert follow_errors(4.0, np.full(50, 1e6)) < 3 * 4.0
    assert follow_errors(4.0, np.array([0.1])) < 4.0


def test_a_job_that_has_faded_moves_the_noise_less() -> None:
    error = np.array([5.0])
    now, some = (follow_errors(4.0, error, np.array([count])) for count in (1.0, 0.3))
    assert now == follow_errors(4.0, error)
    assert some - 4.0 == pytest.approx(0.3 * (now - 4.0))


def test_faded_errors_count_less_until_there_are_too_few_of_today() -> None:
    rng = np.random.default_rng(0)
    today, before = rng.normal(0, 0.1, 60), rng.normal(0, 1.0, 300)
    errors = np.append(before, today)
    counts = np.append(np.full(300, 0.001), np.ones(60))
    alone = noise_of(today, errors, 1.0)
    assert noise_of(errors, errors, 1.0, counts) == pytest.approx(alone, rel=0.1)
    few = slice(0, 305)
    assert noise_of(errors[few], errors, 1.0, counts[few]) > 20 * alone
    for alike in (0.001, 1.0):
        assert quantile(errors, 0.8, np.full(360, alike)) == np.quantile(errors, 0.8)
