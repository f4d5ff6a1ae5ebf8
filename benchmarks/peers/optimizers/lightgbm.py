"""The lowest-predicted configurations of LightGBM: no uncertainty, no exploring.

*Greedy* trains again on old jobs and its own before every batch, *once* on the old jobs alone and
works down its list. On the score, which with the probability to run says what to take. With the
few jobs of one context LightGBM's defaults do not split at all, so that leaves may be small until
there are hundreds.
"""

from collections.abc import Sequence

import lightgbm
import numpy as np

from benchmarks.peers.grid import PeerRun, as_jobs
from benchmarks.peers.matrix import Jobs, chance_to_run
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["GreedyLightGBM", "OnceLightGBM"]

MANY = 400
"""Jobs from which on its defaults are better than small leaves."""
SMALL = {"min_data_in_leaf": 3, "num_leaves": 7, "min_data_per_group": 5, "cat_smooth": 1.0}


class GreedyLightGBM:
    name = "lightgbm_greedy"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Greedy(problem, seed)


class OnceLightGBM:
    name = "lightgbm_once"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Once(problem, seed)


class _Greedy(PeerRun):
    def choose(self, n: int) -> Sequence[int]:
        own = [job.job for job in self.jobs]
        return self._best(_worth(self.problem, [*self.problem.history, *own], self.seed), n)

    def _best(self, worth: FloatArray, n: int) -> list[int]:
        there = self.there
        # Trees say the same of many: any of them, not the first of the list.
        order = np.lexsort((self.rng.random(len(there)), -worth[there]))
        best: list[int] = there[order[:n]].tolist()
        return best


class _Once(_Greedy):
    def __init__(self, problem: BenchmarkProblem, seed: int) -> None:
        super().__init__(problem, seed)
        self._worth = _worth(problem, problem.history, seed)

    def choose(self, n: int) -> Sequence[int]:
        return self._best(self._worth, n)


def _worth(problem: BenchmarkProblem, known: Sequence[Observation], seed: int) -> FloatArray:
    """(configurations,) predicted score, less what not to run costs."""
    jobs = Jobs.of(problem.study, known, as_jobs(problem))
    chance = np.log(np.maximum(chance_to_run(jobs, seed), 1e-3))
    usable = jobs.scored
    if usable.sum() < 3:
        return chance
    few = SMALL if usable.sum() < MANY else {}
    data = lightgbm.Dataset(
        jobs.known.X[usable], jobs.known.score[usable], categorical_feature=jobs.categorical
    )
    parameters = {"verbosity": -1, "num_threads": 1, "deterministic": True, "seed": seed, **few}
    booster = lightgbm.train(parameters, data)
    told = np.asarray(booster.predict(jobs.asked.X, num_threads=1), dtype=np.float64)
    return told + chance
