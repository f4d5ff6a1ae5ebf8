"""A few runs stand for all repeats of a configuration."""

import numpy as np
import pytest

from tunerd.core.features.pooling import FEW, STAND_INS, held, location, pooled
from tunerd.core.features.rows import FeatureRows


def rows_of(scores: list[float], x: list[float], weight: float = 1.0) -> FeatureRows:
    n = len(scores)
    return FeatureRows(
        X=np.array(x)[:, None],
        score=np.array(scores),
        ran=np.ones(n),
        ran_weight=np.ones(n),
        context_key=("c",) * n,
        weight=np.full(n, weight),
        margin=np.full(n, np.nan),
    )


def test_what_ran_once_or_twice_stays_as_it_is() -> None:
    rows = rows_of([1.0, 2.0, 3.0, np.nan], [1.0, 2.0, 2.0, 3.0])
    found = pooled(rows)
    np.testing.assert_array_equal(found.score, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(found.X[:, 0], [1.0, 2.0, 2.0])


def test_a_few_runs_stand_for_a_hundred() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 32)
    found = pooled(rows_of([5.0, *(1.0 + noise).tolist()], [0.0, *[1.0] * 32]))
    assert len(found) == 1 + STAND_INS
    assert found.score[0] == 5.0
    assert found.score[1:].mean() == pytest.approx(1.0 + noise.mean(), abs=0.03)
    assert found.score[1:].std() > 0.02


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("wild", [-5.0, 5.0])
def test_one_wild_run_moves_what_is_learned_little(place: int, wild: float) -> None:
    scores = [1.0, 1.02, 0.97, 1.01, 0.99]
    calm = pooled(rows_of(scores, [1.0] * 5)).score.mean()
    scores[place] += wild
    found = pooled(rows_of(scores, [1.0] * 5))
    assert abs(np.average(found.score, weights=found.weight) - calm) < 0.03
    assert np.abs(found.score - calm).max() < 0.2


NOISY = [1.0, 1.02, 0.97, 1.01, 0.99, 1.03]


@pytest.mark.parametrize("wild", [-4.0, 4.0])
def test_a_wild_run_is_held_until_a_second_says_the_same(wild: float) -> None:
    recent = rows_of([*NOISY, 1.0 + wild], [1.0] * 7)
    new = recent.take(np.array([6]))
    assert held(new, recent)[1].score[6] == held(new, recent)[0].score[0]
    assert 0.1 < abs(held(new, recent)[0].score[0] - 1.0) < 0.5
    again = rows_of([*NOISY, 1.0 + wild, 1.05 + wild], [1.0] * 8)
    for found in held(again, again):
        np.testing.assert_array_equal(found.score, again.score)


def test_what_is_new_or_ran_seldom_or_is_a_fifth_slower_is_not_held() -> None:
    noise = np.random.default_rng(0).normal(0, 0.03, 12).tolist()
    recent = rows_of([*noise, -0.2, 5.0, np.nan], [*[1.0] * 13, 2.0, 1.0])
    for found in held(recent, recent):
        np.testing.assert_array_equal(found.score, recent.score)
    few = rows_of([*NOISY[: FEW - 2], 9.0], [1.0] * (FEW - 1))
    for found in held(few, few):
        np.testing.assert_array_equal(found.score, few.score)
    same = rows_of([1.0] * 6 + [2.0], [1.0] * 7)  # nobody knows how noisy runs are
    for found in held(same, same):
        np.testing.assert_array_equal(found.score, same.score)


def test_runs_count_by_their_weight() -> None:
    mean, _ = location(np.array([1.0, 2.0]), np.array([1.0, 0.25]))
    assert mean == pytest.approx(1.2)


def test_no_rows_are_no_rows() -> None:
    assert (
        len(pooled(FeatureRows.empty(3)))
        == len(held(FeatureRows.empty(3), FeatureRows.empty(3))[0])
        == 0
    )
