"""SMAC3's facade for hyperparameters, its acquisition maximised over what exists.

Its defaults: a random forest of ten trees on log-scaled costs, log EI, one configuration in five
at random. Instead of SMAC's own local and random search every configuration that exists is scored,
through the maximizer that the facade lets users replace; random ones are drawn from them too. The
cost is what a job would take, so that its logarithm is the score. A failed job is told as crashed
with the worst cost that was seen, which SMAC trains on.
"""

import logging
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from ConfigSpace import Categorical, Configuration, ConfigurationSpace, Float
from smac import HyperparameterOptimizationFacade, Scenario
from smac.acquisition.maximizer import AbstractAcquisitionMaximizer
from smac.main.config_selector import ConfigSelector
from smac.runhistory import StatusType, TrialInfo, TrialValue

from benchmarks.peers.grid import PeerRun
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun, TrialResult

__all__ = ["SMAC"]

AT_RANDOM = 0.2
"""Share of configurations at random: the facade's default."""


class SMAC:
    name = "smac"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Run(problem, seed)


class _Run(PeerRun):
    def __init__(self, problem: BenchmarkProblem, seed: int) -> None:
        super().__init__(problem, seed)
        logging.getLogger("smac").setLevel(logging.ERROR)
        self.space = _space(self)
        self.configs = [self._config(point) for point in self.grid.points]
        self.index = {config: i for i, config in enumerate(self.configs)}
        self.waiting: dict[int, Any] = {}
        # SMAC writes its settings somewhere, whatever one says.
        self.folder = tempfile.mkdtemp(prefix="smac-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.facade = self._facade()

    def choose(self, n: int) -> Sequence[int]:
        if not np.isfinite(self.scores).any():
            return self.at_random(n)
        picks: list[int] = []
        for _ in range(n):
            trial = self.facade.ask()
            picks.append(self.index[trial.config])
            self.waiting[picks[-1]] = trial
        return picks

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        first = not np.isfinite(self.scores).any()
        super().tell(jobs)
        if not np.isfinite(self.scores).any():
            return
        costs = self._costs()
        since = 0 if first else len(self.jobs) - len(jobs)
        for job, cost in list(zip(self.jobs, costs, strict=True))[since:]:
            trial = self.waiting.pop(job.index, None)
            trial = trial or TrialInfo(self.configs[job.index], seed=0)
            status = StatusType.SUCCESS if job.score is not None else StatusType.CRASHED
            self.facade.tell(trial, TrialValue(cost=float(cost), status=status), save=False)

    def _costs(self) -> FloatArray:
        scores = self.scores
        level = scores[np.isfinite(scores)][0]  # of the first, so that later ones can be compared
        logarithmic = self.problem.study.objective.scale == "log"
        costs: FloatArray = np.exp(level - scores) if logarithmic else level - scores
        costs[np.isnan(costs)] = np.nanmax(costs)
        return costs

    def _config(self, point: FloatArray) -> Any:
        values = {
            d.name: int(value) if d.categories else float(value)
            for d, value in zip(self.grid.dimensions, point, strict=True)
        }
        return Configuration(self.space, values=values)

    def _facade(self) -> Any:
        scenario = Scenario(
            self.space,
            output_directory=self.folder,
            deterministic=True,
            n_trials=1_000_000,
            seed=self.seed,
        )
        facade = HyperparameterOptimizationFacade
        model = facade.get_model(scenario)
        # Of its defaults two cost a second a forest and change nothing here: threads that wait for
        # each other, and trees with room for a million leaves.
        model._rf_opts |= {"n_jobs": 1, "max_leaf_nodes": 1_000}
        return facade(
            scenario,
            _no_target,
            model=model,
            initial_design=facade.get_initial_design(scenario, n_configs=0),
            intensifier=facade.get_intensifier(scenario, max_config_calls=1),
            acquisition_maximizer=_OnGrid(self),
            random_design=facade.get_random_design(scenario, probability=0.0),
            config_selector=ConfigSelector(scenario, retrain_after=1),
            logging_level=False,
            overwrite=True,
        )


class _OnGrid(AbstractAcquisitionMaximizer):  # type: ignore[misc]
    """Everything that exists and is left, best first, with some at random between."""

    def __init__(self, run: _Run) -> None:
        super().__init__(run.space, seed=run.seed)
        self._run = run

    def _maximize(self, previous_configs: Any, n_points: int) -> Any:
        del previous_configs, n_points
        run = self._run
        left = [run.configs[i] for i in run.there if i not in run.waiting]
        found = self._sort_by_acquisition_value(left)
        if self._rng.rand() < AT_RANDOM:
            found.insert(0, found.pop(self._rng.randint(len(found))))
        return found


def _space(run: PeerRun) -> Any:
    space = ConfigurationSpace(seed=run.seed)
    space.add(
        Categorical(d.name, range(len(d.categories))) if d.categories else Float(d.name, (0.0, 1.0))
        for d in run.grid.dimensions
    )
    return space


def _no_target(config: Any, seed: int = 0) -> float:
    """SMAC wants a function to call; jobs are asked for and told instead."""
    raise NotImplementedError
