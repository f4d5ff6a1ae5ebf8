"""Optuna's CMA-ES, snapped to what exists.

CMA-ES wants its own samples back, so it cannot choose from a list: it proposes a point, and the
nearest configuration that exists is run in its place. If that was run before, its known value is
told at no cost and the sampler proposes again, so that generations go by without jobs; after
enough of that the nearest untried one is run. It starts around the best of the random jobs that
everyone gets (``x0``; warm-starting from all of them was worse). Categories enter as numbers in an
order of their mean score, because this sampler draws categories at random. A failed job has the
worst value so far: only ranks matter to it.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import CmaEsSampler

from benchmarks.peers.grid import PeerRun
from benchmarks.peers.optimizers.optuna_base import START, quiet
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun, TrialResult

__all__ = ["OptunaCMAES"]

FREE = 200
"""Proposals of known configurations that are answered before a job must be spent."""


class OptunaCMAES:
    name = "optuna_cmaes"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Run(problem, seed)


class _Run(PeerRun):
    def __init__(self, problem: BenchmarkProblem, seed: int) -> None:
        super().__init__(problem, seed)
        quiet()
        self.study: Any = None
        self.points = self.grid.points
        """Numbers and categories as numbers, all in [0, 1]."""
        self.waiting: dict[int, Any] = {}
        """Trials whose jobs run, by configuration."""
        self.known: dict[int, float] = {}

    def choose(self, n: int) -> Sequence[int]:
        if len(self.jobs) < START or not np.isfinite(self.scores).any():
            return self.at_random(n)
        if self.study is None:
            self._start()
        picks: list[int] = []
        free = FREE
        while len(picks) < n:
            trial = self.study.ask(fixed_distributions=self.distributions)
            point = np.array([trial.params[name] for name in self.distributions])
            left = self.there[~np.isin(self.there, picks)]
            among = left if free <= 0 else np.arange(len(self.points))
            index = int(among[np.argmin(((self.points[among] - point) ** 2).sum(axis=1))])
            if index in self.known:
                self.study.tell(trial, self.known[index])
                free -= 1
            elif index in picks:
                # Its value is not known yet; nothing is learned from this sample.
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
                free -= 1
            else:
                picks.append(index)
                self.waiting[index] = trial
        return picks

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        super().tell(jobs)
        scores = self.scores
        worst = float(np.nanmin(scores)) if np.isfinite(scores).any() else 0.0
        for job in jobs:
            value = job.score if job.score is not None and job.ran else worst
            self.known[job.index] = value
            trial = self.waiting.pop(job.index, None)
            if trial is not None:
                self.study.tell(trial, value)

    def _start(self) -> None:
        self.points = self._numbers()
        self.distributions = {d.name: FloatDistribution(0.0, 1.0) for d in self.grid.dimensions}
        best = max(self.known, key=self.known.__getitem__)
        x0 = dict(zip(self.distributions, self.points[best].tolist(), strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # x0 will go in Optuna 6
            sampler = CmaEsSampler(
                x0=x0, seed=self.seed, n_startup_trials=0, warn_independent_sampling=False
            )
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        # The sampler takes its search space from finished trials.
        known = optuna.trial.create_trial(
            params=x0, distributions=self.distributions, value=self.known[best]
        )
        self.study.add_trial(known)

    def _numbers(self) -> FloatArray:
        points = self.grid.points.copy()
        values = np.array([self.known[index] for index in self.tried])
        for d, dimension in enumerate(self.grid.dimensions):
            codes = range(len(dimension.categories))
            mean = [
                values[there].mean() if (there := points[self.tried, d] == code).any() else np.nan
                for code in codes
            ]
            order = np.argsort(np.argsort(np.nan_to_num(mean, nan=float(values.mean()))))
            if dimension.categories:
                points[:, d] = order[points[:, d].astype(int)] / max(len(codes) - 1, 1)
        return points
