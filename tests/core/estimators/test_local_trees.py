"""Trees beside a process: what they are worth is told by configurations left out."""

from collections.abc import Callable

import numpy as np
import pytest

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.local_gp import LocalGP
from tunerd.core.estimators.local_trees import LocalTrees

GROUPS = np.arange(4)
Truth = Callable[[FloatArray], FloatArray]


def smooth(Z: FloatArray) -> FloatArray:
    return np.asarray(Z @ np.array([1.0, -0.5, 0.25, 0.1]), np.float64)


def steps(Z: FloatArray) -> FloatArray:
    return np.asarray((Z > 0) @ np.array([2.0, 1.0, 0.5, 0.0]), np.float64)


def learned(truth: Truth, n: int, seed: int = 0) -> tuple[LocalGP, LocalTrees | None, FloatArray]:
    """A process, trees beside it, and places that neither has seen."""
    Z = np.random.default_rng(seed).normal(size=(n + 200, 4))
    score, weight = truth(Z[:n]), np.ones(n)
    process = LocalGP.fit(GROUPS, Z[:n], score, weight)
    return process, LocalTrees.fit(process, score, weight), Z[n:]


def off(mean: FloatArray, truth: FloatArray) -> float:
    return float(np.sqrt(np.mean((mean - truth) ** 2)))


@pytest.mark.parametrize("seed", range(3))
def test_trees_are_believed_where_steps_decide(seed: int) -> None:
    process, trees, Z = learned(steps, 60, seed)
    assert trees is not None
    mean, _ = process.predict(Z)
    assert trees.weight > 0.5
    assert off(trees.beside(Z, mean), steps(Z)) < 0.8 * off(mean, steps(Z))


@pytest.mark.parametrize("seed", range(3))
def test_a_process_is_believed_where_all_is_smooth(seed: int) -> None:
    process, trees, Z = learned(smooth, 60, seed)
    assert trees is not None
    mean, _ = process.predict(Z)
    assert trees.weight < 0.1
    assert off(trees.beside(Z, mean), smooth(Z)) < 0.1


def test_there_are_none_of_a_few_configurations_or_of_one_score() -> None:
    assert learned(smooth, 9)[1] is None
    assert learned(smooth, 10)[1] is not None
    assert learned(lambda Z: np.full(len(Z), 2.5), 30)[1] is None


@pytest.mark.parametrize("n", [10, 11, 12, 15, 20, 40, 100, 200])
def test_what_is_said_is_a_number(n: int) -> None:
    process, trees, Z = learned(steps, n, seed=n)
    assert trees is not None
    assert 0.0 <= trees.weight <= 1.0
    assert np.isfinite(trees.beside(Z, process.predict(Z)[0])).all()


def test_what_is_said_does_not_hang_on_the_unit() -> None:
    (process, one, Z), (other, far, _) = (
        learned(steps, 60),
        learned(lambda Z: 1e5 + 1e-2 * steps(Z), 60),
    )
    assert one is not None
    assert far is not None
    assert far.weight == pytest.approx(one.weight, abs=0.05)
    near = one.beside(Z, process.predict(Z)[0])
    there = (far.beside(Z, other.predict(Z)[0]) - 1e5) / 1e-2
    assert there == pytest.approx(near, abs=0.1)


def test_the_same_jobs_give_the_same_trees() -> None:
    (process, one, Z), (_, other, _) = learned(steps, 25), learned(steps, 25)
    assert one is not None
    assert other is not None
    mean, _ = process.predict(Z)
    assert (one.beside(Z, mean) == other.beside(Z, mean)).all()
