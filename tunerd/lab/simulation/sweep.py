"""What a study is compared with: a person's hand sweep, and random search.

The hand sweep is the human baseline of the shipped studies. A person changes few things at a time
and treats all layers alike, in at most twenty jobs; here the jobs are free of noise, which favours
the person. Random search spends as many measured jobs as tunerd does.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Scalar, Status, Value
from tunerd.core.space import SearchSpace
from tunerd.lab.simulation.simulator import Simulator, job_rng

__all__ = ["HAND_SWEEP_JOBS", "SweepResult", "hand_sweep", "random_search"]

HAND_SWEEP_JOBS = 20

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
class SweepResult:
    """What a search found, and how it got there; ``curve`` has one entry per job."""

    config: dict[str, Value] | None
    """The best by what was measured; ``None`` when nothing ran."""
    expected: float
    """Its objective without noise; NaN when nothing ran."""
    curve: FloatArray
    """Noise-free objective of the best by measurement so far; NaN until something ran."""
    failed: int
    """Jobs that did not run."""


def hand_sweep(simulator: Simulator, context: Mapping[str, Scalar]) -> SweepResult:
    """The best of a person's sweep in this context. Raises ``ValueError`` for other studies."""
    study = simulator.study
    name = next((n for n in _SWEEPS if study.name == n or study.name.startswith(f"{n}-")), None)
    if name is None:
        raise ValueError(f"nobody has planned a hand sweep of study {study.name!r}")
    best, stages = _SWEEPS[name]
    space = SearchSpace(study, context)
    tried: list[dict[str, Value]] = []
    curve: list[float] = []
    best_found = float("nan")
    for stage in stages:
        around = best
        for values in itertools.product(*stage.values()):
            config = {**around, **dict(zip(stage, values, strict=True))}
            if len(tried) == HAND_SWEEP_JOBS or config in tried or space.encode(config) is None:
                continue
            tried.append(config)
            value = float(simulator.expected(context, [config])[0])
            if _better(simulator, value, best_found):
                best, best_found = config, value
            curve.append(best_found)
    failed = int(np.isnan(simulator.expected(context, tried)).sum()) if tried else 0
    return SweepResult(None if np.isnan(best_found) else best, best_found, np.array(curve), failed)


def random_search(
    simulator: Simulator, context: Mapping[str, Scalar], jobs: int, seed: int
) -> SweepResult:
    """Launch random feasible configurations; keep the one that measured best, as one would."""
    space = SearchSpace(simulator.study, context)
    codes = space.sample(jobs, np.random.default_rng(seed))
    configs = [space.decode(row) for row in codes]
    expected = simulator.expected(context, space.columns(codes))
    metric = simulator.study.objective.metric
    best, best_value, failed = -1, float("nan"), 0
    curve = np.full(len(configs), np.nan)
    for i, config in enumerate(configs):
        outcome = simulator.run(context, config, job_rng(seed, context, config, i))
        failed += outcome.status is not Status.SUCCEEDED
        value = outcome.metrics.get(metric, float("nan"))
        # What breaks a guard is worth nothing, however fast.
        if not np.isnan(expected[i]) and _better(simulator, value, best_value):
            best, best_value = i, value
        if best >= 0:
            curve[i] = expected[best]
    if best < 0:
        return SweepResult(None, float("nan"), curve, failed)
    return SweepResult(configs[best], float(expected[best]), curve, failed)


def _better(simulator: Simulator, new: float, old: float) -> bool:
    """Whether the new objective beats the old one; NaN loses against everything."""
    if np.isnan(new) or np.isnan(old):
        return not np.isnan(new)
    return new > old if simulator.study.objective.goal == "maximize" else new < old
