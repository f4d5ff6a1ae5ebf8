"""The nearest context's best configurations, in their order: what an operator copies.

Where the context at hand has not measured the very same one, the most similar it has.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.grid import PeerRun, as_jobs
from benchmarks.peers.predictors.nearest_context import NearestContext
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["NearestContextsBest"]


class NearestContextsBest:
    name = "nearest_context"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Run(problem, seed)


class _Run(PeerRun):
    def __init__(self, problem: BenchmarkProblem, seed: int) -> None:
        super().__init__(problem, seed)
        told = NearestContext().foretell(problem.study, problem.history, as_jobs(problem), seed)
        assert told.runs is not None
        self._worth = told.score + np.log(np.maximum(told.runs, 1e-3))

    def choose(self, n: int) -> Sequence[int]:
        there = self.there
        order = np.lexsort((self.rng.random(len(there)), -self._worth[there]))
        best: list[int] = there[order[:n]].tolist()
        return best
