"""Optuna's TPE, its default sampler, over the configurations that exist.

TPE draws 24 candidates from the density of good trials and takes the one that is likeliest good
against bad. Here everything that exists and is left is a candidate, through the estimator class
that the sampler lets users replace. On the measured tables that was better than to draw from the
density among what exists, than to draw freely and take the nearest, and than one density per
parameter (``multivariate=False``).
"""

from collections.abc import Mapping
from typing import Any

from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

from benchmarks.peers.optimizers.optuna_base import START, OptunaRun
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["OptunaTPE"]


class OptunaTPE:
    name = "optuna_tpe"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return OptunaRun(problem, seed, _Sampler(seed))


class _Sampler(TPESampler):  # type: ignore[misc]
    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed, n_startup_trials=START)
        self.there: Mapping[str, FloatArray] = {}

        class OnGrid(_ParzenEstimator):  # type: ignore[misc]
            def sample(this, rng: Any, size: int) -> Any:  # noqa: N805
                del rng, size
                return {name: self.there[name] for name in this._search_space}

        self._parzen_estimator_cls = OnGrid
