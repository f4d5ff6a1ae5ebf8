"""What was tried in one context, as evidence for configurations near it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.arrays import FloatArray
from tunerd.core.feasibility import context_outcomes as tried
from tunerd.core.feasibility.context_outcomes import ContextOutcomes


def corrected(seed: int, jobs: int) -> FloatArray:
    """Probabilities of a context with some jobs, expected well or badly."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(jobs, 4), scale=rng.choice([0.1, 0.35, 1.0])).astype(np.float32)
    found, runs = ContextOutcomes(), rng.random()
    for _ in range(int(rng.integers(1, 4))):
        for point in points:
            found.add(point.tobytes(), bool(rng.random() < runs), bool(rng.random() < 0.7))
            found.expect(point.tobytes(), float(rng.beta(0.3, 0.3)))
    asked = rng.normal(size=(50, 4), scale=0.5)
    return found.correct(asked, rng.random(50), runs, classified=bool(rng.random() < 0.5))


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(1, 120))
def test_it_stops_where_further_steps_would_change_nothing(seed: int, jobs: int) -> None:
    said = corrected(seed, jobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tried, "CLOSE", 1e-9)
        exactly = corrected(seed, jobs)
    assert np.abs(said - exactly).max() < 0.001


def failed(count: int, *, classified: bool) -> FloatArray:
    """What becomes of .9 beside configurations that failed though .9 was expected, and far away
    from all of them."""
    rng, found = np.random.default_rng(0), ContextOutcomes()
    points = rng.normal(size=(count, 4), scale=0.3).astype(np.float32)
    for point in points:
        found.add(point.tobytes(), ran=False, firm=True)
        found.expect(point.tobytes(), 0.9)
    asked = np.array([points[0] + 0.05, np.full(4, 9.0)])
    return found.correct(asked, np.full(2, 0.9), 0.9, classified=classified)


def test_a_classifier_may_be_off_in_a_whole_context_and_explains_part_of_what_is_near() -> None:
    near, far = failed(1, classified=True)
    near_without, far_without = failed(1, classified=False)
    assert near_without < near < 0.7  # one failure beside it …
    assert far_without == pytest.approx(0.9)
    assert 0.7 < far < 0.9  # … says little of what is far away …
    assert failed(12, classified=True)[1] < 0.65  # … twelve much more
    assert failed(12, classified=False)[1] == pytest.approx(0.9)


def test_what_failed_itself_is_believed_less_than_what_is_as_good_as_the_same() -> None:
    rng, found = np.random.default_rng(0), ContextOutcomes()
    points = rng.normal(size=(60, 8)).astype(np.float32)
    for point in points:
        found.add(point.tobytes(), ran=False, firm=True)
    itself = points.astype(np.float64)
    beside = itself + 1e-3
    said, said_beside = (
        found.correct(asked, np.full(60, 0.9), 0.9, classified=False) for asked in (itself, beside)
    )
    assert (said < said_beside - 0.01).all()
