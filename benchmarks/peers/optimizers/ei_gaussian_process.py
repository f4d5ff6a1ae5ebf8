"""Expected improvement with scikit-learn's Gaussian process: what one builds from parts.

Matérn-5/2 with a length scale per column and noise, fitted by maximum likelihood with two
restarts; the kernel is fitted once per batch (with old jobs once per run: what a few of one's own
add to hundreds is in the data). At most 250 old jobs, of the nearest contexts.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel

from benchmarks.peers.optimizers.surrogate import SurrogateRun
from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["EIGP"]

OLD_ROWS = 250
RESTARTS = 2


class EIGP:
    name = "ei_gaussian_process"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Run(problem, seed, OLD_ROWS)


class _Run(SurrogateRun):
    kernel: Kernel | None = None

    def model(
        self, X: FloatArray, score: FloatArray, asked: FloatArray, *, again: bool
    ) -> tuple[FloatArray, FloatArray]:
        keep = self.kernel is not None and (again or len(self.old) > 0)
        matern = Matern(np.ones(X.shape[1]), (0.05, 50.0), nu=2.5)
        blank = ConstantKernel(1.0, (0.01, 100.0)) * matern + WhiteKernel(1e-2, (1e-6, 1.0))
        process = GaussianProcessRegressor(
            self.kernel if keep else blank,
            optimizer=None if keep else "fmin_l_bfgs_b",
            n_restarts_optimizer=0 if len(self.old) else RESTARTS,
            normalize_y=True,
            random_state=self.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(X, score)
        self.kernel = process.kernel_
        mean, sd = process.predict(asked, return_std=True)
        return np.asarray(mean, dtype=np.float64), np.asarray(sd, dtype=np.float64)
