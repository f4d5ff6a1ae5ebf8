"""Extra trees (scikit-learn) on the score: randomised thresholds, so smooth for a forest.

300 trees, all columns offered at each split and single-row leaves: the library's advice for
regression. Numbers enter as logarithms, because thresholds are drawn evenly between extremes.
"""

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from benchmarks.peers.matrix import Jobs
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["ExtraTrees", "forest_chance"]

TREES = 300


class ExtraTrees:
    name = "extra_trees"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        jobs = Jobs.of(study, known, asked)
        X, X_asked = jobs.plain()
        score = np.zeros(len(asked))
        if jobs.scored.any():
            forest = ExtraTreesRegressor(TREES, random_state=seed, n_jobs=1)
            forest.fit(X[jobs.scored], jobs.known.score[jobs.scored])
            score = np.asarray(forest.predict(X_asked), dtype=np.float64)
        return JobForecasts(score, runs=forest_chance(X, jobs.known.ran, X_asked, seed))


def forest_chance(
    X: FloatArray, ran: FloatArray, X_asked: FloatArray, seed: int, trees: int = TREES
) -> FloatArray:
    """(asked,) probability to run by an extra-trees classifier; the share, counting one more that
    ran, while all or none of the known jobs did."""
    said = np.isfinite(ran)
    if not said.any() or ran[said].min() == ran[said].max():
        share = (ran[said].sum() + 1.0) / (said.sum() + 1.0)
        return np.full(len(X_asked), float(share))
    # Leaves of single rows would say 0 or 1 of everything near the data.
    forest = ExtraTreesClassifier(trees, min_samples_leaf=2, random_state=seed, n_jobs=1)
    forest.fit(X[said], ran[said] > 0)
    return np.asarray(forest.predict_proba(X_asked)[:, 1], dtype=np.float64)
