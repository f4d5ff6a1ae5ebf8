"""What predictors share about their errors."""

import numpy as np
import pytest

from tunerd.core.predictors.errors import follow_errors


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
