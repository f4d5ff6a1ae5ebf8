"""The mean of LightGBM and a small ensemble of networks: the paper's two predictors as one would
put them together from libraries (CubicML, arXiv 2409.04585, A.1).

Both on the score. LightGBM as in ``lightgbm_log``; three networks of two layers of 64, trained by
Adam on standardised columns for about the same number of steps whatever the rows. Their mean, in
the score's own unit: both are fitted to it, so neither drowns the other.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from benchmarks.peers.matrix import Jobs, chance_to_run
from benchmarks.peers.predictors.lightgbm import boosted
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["LightGBMWithMLP"]

MEMBERS = 3
STEPS = 1_500
BATCH = 64


class LightGBMWithMLP:
    name = "lightgbm_mlp"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        jobs = Jobs.of(study, known, asked)
        trees = boosted(jobs, jobs.known.score, seed, careful=True)
        score = trees
        if jobs.scored.sum() >= 3:
            X, X_asked = jobs.plain()
            networks = _networks(X[jobs.scored], jobs.known.score[jobs.scored], X_asked, seed)
            score = (trees + networks) / 2
        return JobForecasts(score, runs=chance_to_run(jobs, seed))


def _networks(X: FloatArray, score: FloatArray, X_asked: FloatArray, seed: int) -> FloatArray:
    mean, scale = float(score.mean()), float(score.std()) or 1.0
    epochs = max(10, round(STEPS * BATCH / max(len(X), BATCH)))
    told = []
    for member in range(MEMBERS):
        network = MLPRegressor(
            hidden_layer_sizes=(64, 64),
            learning_rate_init=3e-3,
            alpha=1e-3,
            batch_size=min(BATCH, len(X)),
            max_iter=epochs,
            n_iter_no_change=epochs,
            random_state=seed * MEMBERS + member,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is the end
            network.fit(X, (score - mean) / scale)
        told.append(network.predict(X_asked))
    return np.asarray(np.mean(told, axis=0) * scale + mean, dtype=np.float64)
