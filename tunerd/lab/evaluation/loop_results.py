"""What closed loops say, as JSON: means over contexts and seeds, and every curve."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from tunerd import __version__
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Scalar
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, RegretCurve
from tunerd.lab.evaluation.optimizers import TunerdOptimizer
from tunerd.lab.evaluation.tabular import TabularBenchmark

__all__ = [
    "ContextCurve",
    "JobsToTarget",
    "OptimizerResult",
    "SimulationResult",
    "loops",
    "simulation",
]

NEAR = 0.05
"""Regret below which one is as good as there."""
DRAWS = 2_000


class JobsToTarget(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs it took to come within 5 % of the best."""

    median: float | None
    """Over contexts and seeds, those that never got there counted as longest; null if most did
    not."""
    share_reached: float


class ContextCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One context with one seed."""

    context: dict[str, Scalar]
    context_key: str
    seed: int
    regret: tuple[float, ...]
    """After 1, 2, … jobs; 1 while nothing has run."""
    tried: tuple[int, ...]
    """Configuration of each job, numbered in the order in which they occur in the table."""


class OptimizerResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one optimizer did."""

    optimizer: str
    mean_regret: dict[str, float]
    """By number of jobs, "1", "2", …: as a share of the best, mean over contexts and seeds."""
    regret_band: dict[str, tuple[float, float]]
    """95 % bootstrap interval of that mean, contexts and seeds drawn anew."""
    area: float
    """Mean of ``mean_regret`` over the jobs after the start."""
    jobs_to_5_percent: JobsToTarget
    seconds_per_suggestion: float | None
    """Learning included; null when nothing was left to suggest."""
    seconds_to_begin: float
    """For what was known beforehand, in one context."""
    curves: tuple[ContextCurve, ...]


class SimulationResult(OptimizerResult, frozen=True, kw_only=True):
    """What ``tunerd simulate --json`` writes: how tunerd did, and on what."""

    schema: Literal["tunerd.lab.simulation/1"] = "tunerd.lab.simulation/1"
    tunerd: str
    """Version."""
    study: str
    study_hash: str
    source: str
    """Where the jobs came from."""
    rows: int
    """Jobs used."""
    unusable: dict[str, int]
    """Rows that could not be used, by reason."""
    left_out: dict[str, int]
    """Jobs that took no part in closed loops, by reason."""
    configurations: dict[str, int]
    """How many there are, by context key."""
    min_configs: int
    jobs: int
    batch: int
    start: int
    seeds: tuple[int, ...]
    history: str
    unknown: str | None
    searcher: str
    predictor: str
    follow: str
    random: OptimizerResult
    """The yardstick: configurations not yet tried, at random, from the same start."""


def simulation(
    table: TabularBenchmark,
    plan: BenchmarkPlan,
    player: TunerdOptimizer,
    own: OptimizerResult,
    random: OptimizerResult,
    *,
    source: str,
    unusable: Mapping[str, int],
) -> SimulationResult:
    """Put everything that is told together."""
    study = player.study(table.study)
    return SimulationResult(
        **{name: getattr(own, name) for name in OptimizerResult.__struct_fields__},
        tunerd=__version__,
        study=study.name,
        study_hash=study.content_hash,
        source=source,
        rows=len(table.observations),
        unusable=dict(unusable),
        left_out=dict(table.left_out),
        configurations={number.context_key: len(number.configs) for number in table.contexts},
        min_configs=table.min_configs,
        jobs=plan.jobs,
        batch=plan.batch,
        start=plan.start,
        seeds=plan.seeds,
        history=plan.history,
        unknown=plan.unknown,
        searcher=study.search.searcher,
        predictor=study.predictor.name,
        follow=player.follow,
        random=random,
    )


def loops(optimizer: str, curves: Sequence[RegretCurve], start: int) -> OptimizerResult:
    """Put the curves of one optimizer together; each context counts the same."""
    regrets = np.array([curve.regret for curve in curves])
    mean = regrets.mean(axis=0)
    band = _band(curves, regrets)
    reached = np.array([_first(curve.regret) for curve in curves])
    median = float(np.median(reached))
    suggestions = sum(curve.suggestions for curve in curves)
    suggest_s = sum(curve.suggest_s for curve in curves)
    numbers = [str(n) for n in range(1, regrets.shape[1] + 1)]
    after = mean[min(start, len(mean) - 1) :]
    return OptimizerResult(
        optimizer=optimizer,
        mean_regret=dict(zip(numbers, mean.tolist(), strict=True)),
        regret_band={n: (low, high) for n, (low, high) in zip(numbers, band.tolist(), strict=True)},
        area=float(after.mean()),
        jobs_to_5_percent=JobsToTarget(
            median=None if np.isinf(median) else median,
            share_reached=float(np.isfinite(reached).mean()),
        ),
        seconds_per_suggestion=suggest_s / suggestions if suggestions else None,
        seconds_to_begin=float(np.mean([curve.begin_s for curve in curves])),
        curves=tuple(
            ContextCurve(
                context=dict(curve.context),
                context_key=curve.context_key,
                seed=curve.seed,
                regret=curve.regret,
                tried=curve.tried,
            )
            for curve in curves
        ),
    )


def _first(regret: Sequence[float]) -> float:
    """Number of jobs after which regret is small; infinite if it never is."""
    return next((n for n, loss in enumerate(regret, 1) if loss <= NEAR), float("inf"))


def _band(curves: Sequence[RegretCurve], regrets: FloatArray) -> FloatArray:
    """(jobs, 2) interval of the mean; contexts and seeds are drawn independently."""
    contexts = {key: i for i, key in enumerate(dict.fromkeys(c.context_key for c in curves))}
    seeds = {seed: i for i, seed in enumerate(sorted({c.seed for c in curves}))}
    table = np.zeros((len(contexts), len(seeds), regrets.shape[1]))
    for curve, regret in zip(curves, regrets, strict=True):
        table[contexts[curve.context_key], seeds[curve.seed]] = regret
    rng = np.random.default_rng(0)
    n, m = len(contexts), len(seeds)
    drawn = np.einsum(
        "dc,cst,ds->dt",
        rng.multinomial(n, np.full(n, 1 / n), size=DRAWS) / n,
        table,
        rng.multinomial(m, np.full(m, 1 / m), size=DRAWS) / m,
        optimize=True,
    )
    band: FloatArray = np.quantile(drawn, [0.025, 0.975], axis=0).T
    return band
