"""How a difference is divided among what changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.explain.shapley import EXACT_UP_TO, shapley


def game(players: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """What each change is worth alone, and each pair beyond that."""
    rng = np.random.default_rng(seed)
    pairs = np.triu(rng.normal(size=(players, players)), 1)
    return rng.normal(size=players), pairs


def outcome(made: BoolArray, alone: FloatArray, pairs: FloatArray) -> FloatArray:
    x = made.astype(float)
    whole = x @ alone + np.einsum("np,pq,nq->n", x, pairs, x)
    return np.stack([whole, x @ alone], axis=1)


@given(players=st.integers(1, EXACT_UP_TO + 4), seed=st.integers(0, 99))
def test_pairs_are_shared_in_halves(players: int, seed: int) -> None:
    """Where no three changes interact, the answer is known; drawn orders find it as well, since
    each is gone through forwards and backwards."""
    alone, pairs = game(players, seed)
    found, exact = shapley(lambda made: outcome(made, alone, pairs), players, seed)
    assert exact == (players <= EXACT_UP_TO)
    assert found[:, 0] == pytest.approx(alone + (pairs + pairs.T).sum(axis=1) / 2)
    assert found[:, 1] == pytest.approx(alone)


def test_a_sample_is_always_the_same_and_sums_to_the_whole() -> None:
    def product(made: BoolArray) -> FloatArray:
        weighed: FloatArray = made.astype(float) @ np.linspace(-1, 1, 14)
        return np.asarray(np.exp(weighed)[:, None], np.float64)

    first, exact = shapley(product, 14, seed=3)
    assert not exact
    assert first.tobytes() == shapley(product, 14, seed=3)[0].tobytes()
    ends = product(np.array([[False] * 14, [True] * 14]))
    assert first.sum() == pytest.approx(float((ends[1] - ends[0])[0]))


def test_no_more_is_asked_than_may_be() -> None:
    asked = []

    def count(made: BoolArray) -> FloatArray:
        asked.append(len(made))
        return np.asarray(made.sum(axis=1)[:, None], np.float64)

    found, exact = shapley(count, 9, seed=0, most=100)
    assert not exact
    assert sum(asked) <= 100
    assert found[:, 0] == pytest.approx(np.ones(9))
