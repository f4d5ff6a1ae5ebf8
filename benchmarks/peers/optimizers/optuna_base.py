"""What Optuna's samplers share: a study made anew for every batch from all jobs so far.

Jobs, the random start included, are added as finished trials, and a batch is asked for one by one
while the trials before it run: the samplers know what to make of that (constant liar, qLogEI). A
failed job is a trial with a broken constraint, ``Trial.set_constraint``'s way of saying that it is
infeasible; the constraint is there only once something failed, because with it a second model is
fitted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from benchmarks.peers.grid import PeerRun
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem

__all__ = ["START", "OptunaRun", "distributions", "quiet"]

START = 5
"""Jobs before the sampler is asked: with fewer, the next ones are random."""


def quiet() -> None:
    """Let Optuna say only what went wrong."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)


class OptunaRun(PeerRun):
    """Asks a sampler that takes what exists and is left, (n,) by dimension, in ``there``."""

    def __init__(self, problem: BenchmarkProblem, seed: int, sampler: Any) -> None:
        super().__init__(problem, seed)
        quiet()
        self.sampler = sampler
        self.distributions = distributions(self)

    def choose(self, n: int) -> Sequence[int]:
        if len(self.jobs) < START:
            return self.at_random(n)
        study = optuna.create_study(direction="maximize", sampler=self.sampler)
        study.add_trials(self._trials())
        picks: list[int] = []
        for _ in range(n):
            left = self.there[~np.isin(self.there, picks)]
            columns = self.grid.points[left].T
            names = [d.name for d in self.grid.dimensions]
            self.sampler.there = dict(zip(names, columns, strict=True))
            trial = study.ask(fixed_distributions=self.distributions)
            point = np.array([trial.params[d.name] for d in self.grid.dimensions])
            picks.append(self.grid.nearest(point, left))
        return picks

    def _trials(self) -> list[Any]:
        scores = self.scores
        failed = ~np.isfinite(scores) | (self.ran == 0)
        # A failed job has no value; the mean of the others says nothing about it.
        level = float(scores[~failed].mean()) if not failed.all() else 0.0
        values = np.where(failed, level, scores)
        return [
            optuna.trial.create_trial(
                params=self._parameters(self.grid.points[index]),
                distributions=self.distributions,
                value=float(value),
                constraints={"runs": 1.0 if bad else -1.0} if failed.any() else None,
            )
            for index, value, bad in zip(self.tried, values, failed, strict=True)
        ]

    def _parameters(self, point: FloatArray) -> dict[str, Any]:
        return {
            d.name: int(value) if d.categories else float(value)
            for d, value in zip(self.grid.dimensions, point, strict=True)
        }


def distributions(run: PeerRun) -> dict[str, BaseDistribution]:
    """Optuna's words for the grid's dimensions."""
    return {
        d.name: CategoricalDistribution(range(len(d.categories)))
        if d.categories
        else FloatDistribution(0.0, 1.0)
        for d in run.grid.dimensions
    }
