"""Expected improvement with extra trees: a forest's mean, and how far its trees disagree.

One hundred trees on all jobs, with old jobs at most 2,000 of the nearest contexts. Each tree sees
a bootstrap sample, as a random forest's does: without, the trees agree wherever there is data, and
regret was half as large again. Growing the forest anew after each believed choice of a batch was
no better.
"""

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks.peers.optimizers.surrogate import TREES, SurrogateRun
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["EIExtraTrees"]

OLD_ROWS = 2_000


class EIExtraTrees:
    name = "ei_extra_trees"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Run(problem, seed, OLD_ROWS)


class _Run(SurrogateRun):
    def model(
        self, X: FloatArray, score: FloatArray, asked: FloatArray, *, again: bool
    ) -> tuple[FloatArray, FloatArray]:
        if not again:
            self._forest = ExtraTreesRegressor(
                TREES, bootstrap=True, random_state=self.seed, n_jobs=1
            )
            self._forest.fit(X, score)
        each = np.array([tree.predict(asked.astype(np.float32)) for tree in self._forest])
        return each.mean(axis=0), each.std(axis=0)
