"""Policies conditioned on what is feasible: probabilities, gradient, entropy."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from tests.contracts.test_searcher import SPACES
from tunerd.core.arrays import FloatArray
from tunerd.core.searchers import policy
from tunerd.core.searchers.policy import CategoricalPolicies
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study

TIED = SearchSpace(
    parse_study("""
schema = 1
name = "tied"
[objective]
metric = "speed"
goal = "maximize"
[parameters]
a = { type = "int", values = [1, 2, 4] }
b = { type = "int", values = [1, 2, 4] }
alone = { type = "int", values = [1, 2, 3, 4] }
flag = { type = "bool" }
[constraints]
product = "a * b == 4 or a * b == 8"
not_three = "alone != 3"
"""),
    {},
)
"""Tuples (a, b): (1,4) (2,2) (4,1) (2,4) (4,2); three values of ``alone``; two of ``flag``."""
FEASIBLE = TIED.table(100)
assert FEASIBLE is not None
LOGITS = np.random.default_rng(1).normal(size=(2, int(TIED.sizes.sum())))


def policies(logits: FloatArray = LOGITS) -> CategoricalPolicies:
    found = CategoricalPolicies(TIED, len(logits))
    found.logits = logits.copy()
    return found


def chances(logits: FloatArray) -> FloatArray:
    """(S, feasible configurations) by definition: ∝ exp(sum of logits) over what is feasible."""
    assert FEASIBLE is not None
    start = np.concatenate([[0], np.cumsum(TIED.sizes)[:-1]])
    weights = np.exp(logits[:, FEASIBLE + start].sum(axis=2))
    found: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return found


def numeric_gradient(function: Callable[[FloatArray], FloatArray], at: FloatArray) -> FloatArray:
    """Central differences of a function (S, logits) → (S,)."""
    found = np.zeros_like(at)
    for place in range(at.shape[1]):
        step = np.zeros_like(at)
        step[:, place] = 1e-5
        found[:, place] = (function(at + step) - function(at - step)) / 2e-5
    return found


@pytest.mark.parametrize("table_rows", [8_192, 0])
def test_it_draws_only_what_is_feasible(table_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TABLE_ROWS", table_rows)  # 0: drawn alone, then repaired
    for space in (TIED, *SPACES.values()):
        found = CategoricalPolicies(space, 3)
        found.logits = np.random.default_rng(0).normal(scale=3.0, size=found.logits.shape)
        codes = found.draw(64, np.random.default_rng(0))
        assert codes.shape == (3, 64, len(space.sizes))
        assert space.feasible(codes.reshape(-1, codes.shape[2])).all()


def test_it_draws_with_the_probabilities_of_its_definition() -> None:
    assert FEASIBLE is not None
    codes = policies().draw(20_000, np.random.default_rng(0))
    for seed, expected in enumerate(chances(LOGITS)):
        counts = Counter(map(bytes, np.ascontiguousarray(codes[seed])))
        for row, chance in zip(FEASIBLE, expected, strict=True):
            # 6 standard deviations of a binomial: 1e-8 that one of sixty counts fails.
            sd = np.sqrt(chance * (1 - chance) / 20_000)
            assert abs(counts[row.tobytes()] / 20_000 - chance) < 6 * sd


def test_the_gradient_is_that_of_the_log_probability() -> None:
    assert FEASIBLE is not None
    rng = np.random.default_rng(2)
    picked = rng.integers(len(FEASIBLE), size=(2, 16))
    advantage = rng.normal(size=(2, 16))
    advantage -= advantage.mean(axis=1, keepdims=True)

    def objective(logits: FloatArray) -> FloatArray:
        logs = np.log(chances(logits))
        taken = np.take_along_axis(logs, picked, axis=1)
        total: FloatArray = (advantage * taken).mean(axis=1)
        return total

    exact = policies().gradient(FEASIBLE[picked], advantage)
    np.testing.assert_allclose(exact, numeric_gradient(objective, LOGITS), atol=1e-8)


def test_the_entropy_gradient_is_exact() -> None:
    def entropy(logits: FloatArray) -> FloatArray:
        p = chances(logits)
        total: FloatArray = -(p * np.log(p)).sum(axis=1)
        return total

    exact = policies().entropy_gradient()
    np.testing.assert_allclose(exact, numeric_gradient(entropy, LOGITS), atol=1e-8)


def test_the_uniform_policy_has_no_entropy_to_gain() -> None:
    found = policies(np.zeros_like(LOGITS))
    assert FEASIBLE is not None
    # (1,4) and (4,1) hold choices that fewer tuples share: uniform over tuples is the maximum.
    np.testing.assert_allclose(found.entropy_gradient(), 0.0, atol=1e-12)


def test_logits_far_apart_stay_finite() -> None:
    found = policies(LOGITS * 1e4)
    codes = found.draw(8, np.random.default_rng(0))
    assert TIED.feasible(codes.reshape(-1, codes.shape[2])).all()
    assert np.isfinite(found.entropy_gradient()).all()
