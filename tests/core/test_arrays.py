"""What rooms of the core do with arrays alike."""

import numpy as np

from tunerd.core.arrays import jobs_of, shuffled


def test_who_counts_more_comes_earlier_and_alike_it_is_any_order() -> None:
    alike = shuffled(np.random.default_rng(3), np.full(50, 0.2))
    np.testing.assert_array_equal(alike, np.random.default_rng(3).permutation(50))
    counts = np.append(np.full(900, 0.01), np.ones(100))
    first = shuffled(np.random.default_rng(3), counts)
    np.testing.assert_array_equal(np.sort(first), np.arange(1000))
    # Among the first 50 the odds are 100 to 9 and hardly change.
    assert 40 <= (first[:50] >= 900).sum() <= 50
    assert len(shuffled(np.random.default_rng(3), np.zeros(0))) == 0


def test_jobs_count_as_many_as_tell_as_much() -> None:
    assert jobs_of(np.ones(7)) == 7.0
    assert 10.0 < jobs_of(np.append(np.ones(10), np.full(1000, 0.001))) < 13.0
    assert jobs_of(np.zeros(0)) == 0.0
