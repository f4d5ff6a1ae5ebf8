"""Optuna's Gaussian process sampler, its acquisition maximised over what exists.

The sampler fits an ARD Matérn process, takes log EI (qLogEI within a batch, times the probability
that constraints hold) and leaves how to maximise it to be replaced: here every configuration that
exists and is left is scored, which no search can beat.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna.samplers import GPSampler

from benchmarks.peers.optimizers.optuna_base import START, OptunaRun
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["OptunaGP"]

AT_ONCE = 1_000
"""Configurations scored at a time, so that memory stays small."""


class OptunaGP:
    name = "optuna_gp"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return OptunaRun(problem, seed, _Sampler(seed))


class _Sampler(GPSampler):  # type: ignore[misc]
    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed, n_startup_trials=START, warn_independent_sampling=False)
        self.there: Mapping[str, FloatArray] = {}
        self._order: list[str] = []

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        self._order = list(search_space)
        return super().sample_relative(study, trial, search_space)

    def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:
        del best_params
        # Numbers are in [0, 1] and categories are codes already, as the sampler wants them.
        points = np.stack([self.there[name] for name in self._order], axis=1)
        parts = np.array_split(points, max(len(points) // AT_ONCE, 1))
        values = np.concatenate([acqf.eval_acqf_no_grad(part) for part in parts])
        return points[int(np.argmax(values))]
