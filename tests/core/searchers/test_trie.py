"""Drawing down a table: what it draws, and the gradients of what it draws."""

from collections import Counter

import numpy as np
import pytest

from tests.contracts.test_searcher import SPACES
from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers import policy
from tunerd.core.searchers.policy import CategoricalPolicies
from tunerd.core.searchers.trie import TrieSampler

TABLE = np.array([[0, 0, 1], [0, 2, 0], [0, 2, 1], [1, 1, 0], [2, 0, 0], [2, 0, 2]], np.int32)
SIZES = np.array([3, 3, 3])
START = np.array([0, 3, 6])
LOGITS = np.random.default_rng(1).normal(size=(2, 9))


def walk() -> TrieSampler:
    return TrieSampler(np.arange(3), TABLE, START, SIZES)


def log_chances(logits: FloatArray) -> FloatArray:
    """(S, rows) by definition: choice by choice, those that lead nowhere masked."""
    found = np.zeros((len(logits), len(TABLE)))
    for r, row in enumerate(TABLE):
        left = TABLE
        for column in range(3):
            rows = np.bincount(left[:, column], minlength=3)
            weights = rows * np.exp(logits[:, 3 * column : 3 * column + 3])
            found[:, r] += np.log(weights[:, row[column]] / weights.sum(axis=1))
            left = left[left[:, column] == row[column]]
    return found


def places(codes: Codes) -> list[int]:
    return [int(np.flatnonzero((row == TABLE).all(axis=1))[0]) for row in codes]


@pytest.mark.slow
def test_it_draws_rows_with_the_probabilities_of_its_definition() -> None:
    codes = walk().draw(LOGITS, 20_000, np.random.default_rng(0))
    for seed, logs in enumerate(log_chances(LOGITS)):
        counts = Counter(places(codes[seed]))
        for place, chance in enumerate(np.exp(logs)):
            # 6 standard deviations of a binomial: 1e-8 that one of twelve counts fails.
            assert abs(counts[place] / 20_000 - chance) < 6 * np.sqrt(chance / 20_000)


def test_a_policy_that_prefers_nothing_draws_rows_evenly() -> None:
    np.testing.assert_allclose(np.exp(log_chances(np.zeros((1, 9)))), 1 / 6)
    counts = Counter(places(walk().draw(np.zeros((1, 9)), 6_000, np.random.default_rng(0))[0]))
    assert min(counts.values()) > 800


def test_the_gradient_is_that_of_the_log_probability() -> None:
    rng = np.random.default_rng(2)
    picked, weights = rng.integers(6, size=(2, 10)), rng.normal(size=(2, 10))
    codes = TABLE[picked]

    def objective(logits: FloatArray) -> FloatArray:
        total: FloatArray = (weights * np.take_along_axis(log_chances(logits), picked, 1)).sum(1)
        return total

    chosen = np.zeros_like(LOGITS)
    for s in range(2):
        for row, weight in zip(codes[s], weights[s], strict=True):
            chosen[s, row + START] += weight
    exact = chosen - walk().expected(LOGITS, codes, weights)
    for place in range(9):
        step = np.zeros_like(LOGITS)
        step[:, place] = 1e-5
        numeric = (objective(LOGITS + step) - objective(LOGITS - step)) / 2e-5
        np.testing.assert_allclose(exact[:, place], numeric, atol=1e-8)


def test_the_entropy_gradient_widens_the_choices_that_were_made() -> None:
    before = walk()
    logits = 3 * LOGITS
    before.draw(logits, 500, np.random.default_rng(0))
    after = logits + 0.1 * before.entropy_gradient(logits)

    def entropy(logits: FloatArray) -> FloatArray:
        logs = log_chances(logits)
        total: FloatArray = -(np.exp(logs) * logs).sum(axis=1)
        return total

    assert (entropy(after) > entropy(logits)).all()


def test_policies_walk_tables_that_are_too_large_to_look_at_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "TABLE_ROWS", 64)
    space = SPACES["equalities"]
    found = CategoricalPolicies(space, 2)
    found.logits = np.random.default_rng(0).normal(scale=3.0, size=found.logits.shape)
    codes = found.draw(200, np.random.default_rng(0))
    assert space.feasible(codes.reshape(400, -1)).all()
    advantage = np.random.default_rng(1).normal(size=(2, 200))
    advantage -= advantage.mean(axis=1, keepdims=True)
    assert np.isfinite(found.gradient(codes, advantage)).all()


def test_a_table_that_nobody_could_afford_is_refused() -> None:
    table = np.stack([np.arange(3_000), np.arange(3_000)], axis=1).astype(np.int32)
    sizes = np.array([3_000, 3_000])
    assert not TrieSampler.fits(table, sizes)
    with pytest.raises(ValueError, match="too large"):
        TrieSampler(np.arange(2), table, np.array([0, 3_000]), sizes)
