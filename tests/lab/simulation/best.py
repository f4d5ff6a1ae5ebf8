"""An estimate of the best that there is, by who knows the cost model and spends what it likes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray
from tunerd.core.observation import Scalar, Value
from tunerd.core.space import SearchSpace
from tunerd.lab.simulation.simulator import Simulator

JOINT_CHANGES = 1_000  # tried per step of a climb


def climb(
    simulator: Simulator,
    context: Mapping[str, Scalar],
    seed: int = 0,
    starts: int = 8,
    known: Sequence[Mapping[str, Value]] = (),
) -> tuple[dict[str, Value], float]:
    """Hill climbing over changes of one to three dimensions on the noise-free objective, which
    comes with the configuration; NaN when it does not run.

    ``known`` configurations are starts too, so that the result is never worse than they are.
    """
    space = SearchSpace(simulator.study, context)
    rng = np.random.default_rng(seed)
    pool = space.sample(64 * starts, rng)
    given = [code for code in map(space.encode, known) if code is not None]
    score = _scorer(simulator, context, space)
    order = np.argsort(-score(pool), kind="stable")[:starts]
    tops = [_climb_from(code, score, space, rng) for code in (*given, *pool[order])]
    best = max(tops, key=lambda code: float(score(code[None])[0]))
    config = space.decode(best)
    expected = float(simulator.expected(context, [config])[0])
    return config, expected


def _scorer(
    simulator: Simulator, context: Mapping[str, Scalar], space: SearchSpace
) -> Callable[[Codes], FloatArray]:
    sign = 1.0 if simulator.study.objective.goal == "maximize" else -1.0

    def score(codes: Codes) -> FloatArray:
        values = sign * simulator.expected(context, space.columns(codes))
        return np.where(np.isnan(values), -np.inf, values)

    return score


def _climb_from(
    start: Codes,
    score: Callable[[Codes], FloatArray],
    space: SearchSpace,
    rng: np.random.Generator,
) -> Codes:
    best, value = start, float(score(start[None])[0])
    while True:
        near = _neighbours(best, space.sizes, rng)
        near = near[space.feasible(near)]
        if not len(near):
            return best
        scores = score(near)
        top = int(np.argmax(scores))
        if not scores[top] > value:
            return best
        best, value = near[top], float(scores[top])


def _neighbours(code: Codes, sizes: IntArray, rng: np.random.Generator) -> Codes:
    """All changes of one dimension, and random changes of two or three together."""
    single = []
    for dimension, size in enumerate(sizes):
        for choice in range(int(size)):
            if choice != code[dimension]:
                changed = code.copy()
                changed[dimension] = choice
                single.append(changed)
    several = np.repeat(code[None], JOINT_CHANGES, axis=0)
    for _ in range(3):
        at = rng.integers(len(sizes), size=JOINT_CHANGES)
        several[np.arange(JOINT_CHANGES), at] = rng.integers(sizes[at])
    return np.concatenate([np.array(single, dtype=code.dtype).reshape(-1, len(sizes)), several])
