"""What a study is compared with: a person's hand sweep, random search, and the best there is.

The hand sweep is the human baseline of the shipped studies. A person changes few things at a time
and treats all layers alike, in at most twenty jobs; here the jobs are free of noise, which favours
the person. Random search spends as many measured jobs as tunerd does. :func:`climb` knows the cost
model and spends what it likes: an estimate of the true best, for benchmarks only.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray
from tunerd.core.observation import Scalar, Status, Value
from tunerd.core.space import Space
from tunerd.simulation.simulator import Simulator, job_rng

__all__ = [
    "HAND_SWEEP_JOBS",
    "Searched",
    "baselines_as_toml",
    "climb",
    "hand_sweep",
    "random_search",
]

HAND_SWEEP_JOBS = 20
JOINT_CHANGES = 1_000  # tried per step of a climb

Stage = Mapping[str, Sequence[Value]]

_SWEEPS: dict[str, tuple[dict[str, Value], tuple[Stage, ...]]] = {
    # Strategy and memory first, as everyone would, then the tables, then memory once more.
    "ads-fsdp": (
        {"sharding": "FULL_SHARD", "hbm_reserved": 0.81, "row_wise_tables": 16},
        (
            {
                "sharding": ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"],
                "hbm_reserved": [0.77, 0.81, 0.85],
            },
            {"row_wise_tables": [0, 8, 24, 32, 40, 48, 64]},
            {"hbm_reserved": [0.79, 0.83, 0.78, 0.8, 0.82, 0.84]},
        ),
    ),
    # Tensor parallelism fills the node, the pipeline grows until the model fits; then the knobs
    # that papers recommend, one after the other (Narayanan et al. 2021, sec. 3: "takeaways").
    "llm-pretrain": (
        {
            "tp": 8,
            "pp": 8,
            "cp": 1,
            "micro_batch": 1,
            "interleave": 1,
            "precision": "bf16",
            "sharding": "SHARD_GRAD_OP",
            "recompute": "full",
        },
        (
            {"pp": [1, 2, 4, 8, 16]},
            {"recompute": ["selective", "none"]},
            {"precision": ["fp8"]},
            {"micro_batch": [2, 4]},
            {"interleave": [2, 4]},
            {"pp": [16, 8, 4]},
            {"recompute": ["none", "selective"]},
            {"tp": [4]},
            {"cp": [2]},
            {"micro_batch": [2]},
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found, and how it got there; ``curve`` has one entry per job."""

    config: dict[str, Value] | None
    """The best by what was measured; ``None`` when nothing ran."""
    expected: float
    """Its objective without noise; NaN when nothing ran."""
    curve: FloatArray
    """Noise-free objective of the best by measurement so far; NaN until something ran."""
    failed: int
    """Jobs that did not run."""


def hand_sweep(simulator: Simulator, context: Mapping[str, Scalar]) -> Searched:
    """The best of a person's sweep in this context. Raises ``ValueError`` for other studies."""
    study = simulator.study
    name = next((n for n in _SWEEPS if study.name == n or study.name.startswith(f"{n}-")), None)
    if name is None:
        raise ValueError(f"nobody has planned a hand sweep of study {study.name!r}")
    best, stages = _SWEEPS[name]
    space = Space(study, context)
    tried: list[dict[str, Value]] = []
    curve: list[float] = []
    found = float("nan")
    for stage in stages:
        around = best
        for values in itertools.product(*stage.values()):
            config = {**around, **dict(zip(stage, values, strict=True))}
            if len(tried) == HAND_SWEEP_JOBS or config in tried or space.encode(config) is None:
                continue
            tried.append(config)
            value = float(simulator.expected(context, [config])[0])
            if _better(simulator, value, found):
                best, found = config, value
            curve.append(found)
    failed = int(np.isnan(simulator.expected(context, tried)).sum()) if tried else 0
    return Searched(None if np.isnan(found) else best, found, np.array(curve), failed)


def baselines_as_toml(
    simulator: Simulator, swept: Sequence[tuple[str | None, Mapping[str, Scalar]]]
) -> str:
    """The ``[[baseline]]`` tables that hand sweeps give: one per condition and swept context."""
    blocks = []
    for when, context in swept:
        found = hand_sweep(simulator, context).config or {}
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in found.items())
        condition = "" if when is None else f"when = {json.dumps(when)}\n"
        blocks.append(f"[[baseline]]\n{condition}config = {{ {pairs} }}\n")
    return "\n".join(blocks)


def random_search(
    simulator: Simulator, context: Mapping[str, Scalar], jobs: int, seed: int
) -> Searched:
    """Launch random feasible configurations; keep the one that measured best, as one would."""
    space = Space(simulator.study, context)
    codes = space.sample(jobs, np.random.default_rng(seed))
    configs = [space.decode(row) for row in codes]
    expected = simulator.expected(context, space.columns(codes))
    metric = simulator.study.objective.metric
    best, seen, failed = -1, float("nan"), 0
    curve = np.full(len(configs), np.nan)
    for i, config in enumerate(configs):
        outcome = simulator.run(context, config, job_rng(seed, context, config, i))
        failed += outcome.status is not Status.SUCCEEDED
        value = outcome.metrics.get(metric, float("nan"))
        # What breaks a guard is worth nothing, however fast.
        if not np.isnan(expected[i]) and _better(simulator, value, seen):
            best, seen = i, value
        if best >= 0:
            curve[i] = expected[best]
    if best < 0:
        return Searched(None, float("nan"), curve, failed)
    return Searched(configs[best], float(expected[best]), curve, failed)


def climb(
    simulator: Simulator,
    context: Mapping[str, Scalar],
    seed: int = 0,
    starts: int = 8,
    known: Sequence[Mapping[str, Value]] = (),
) -> Searched:
    """Hill climbing over changes of one or two dimensions on the noise-free objective.

    ``known`` configurations are starts too, so that the result is never worse than they are.
    """
    space = Space(simulator.study, context)
    rng = np.random.default_rng(seed)
    pool = space.sample(64 * starts, rng)
    given = [code for code in map(space.encode, known) if code is not None]
    score = _scorer(simulator, context, space)
    order = np.argsort(-score(pool), kind="stable")[:starts]
    tops = [_climb_from(code, score, space, rng) for code in (*given, *pool[order])]
    best = max(tops, key=lambda code: float(score(code[None])[0]))
    config = space.decode(best)
    expected = float(simulator.expected(context, [config])[0])
    if np.isnan(expected):
        return Searched(None, expected, np.array([]), 0)
    return Searched(config, expected, np.array([expected]), 0)


def _better(simulator: Simulator, new: float, old: float) -> bool:
    """Whether the new objective beats the old one; NaN loses against everything."""
    if np.isnan(new) or np.isnan(old):
        return not np.isnan(new)
    return new > old if simulator.study.objective.goal == "maximize" else new < old


def _scorer(
    simulator: Simulator, context: Mapping[str, Scalar], space: Space
) -> Callable[[Codes], FloatArray]:
    sign = 1.0 if simulator.study.objective.goal == "maximize" else -1.0

    def score(codes: Codes) -> FloatArray:
        values = sign * simulator.expected(context, space.columns(codes))
        return np.where(np.isnan(values), -np.inf, values)

    return score


def _climb_from(
    start: Codes,
    score: Callable[[Codes], FloatArray],
    space: Space,
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
