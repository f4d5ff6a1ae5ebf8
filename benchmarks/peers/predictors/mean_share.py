"""Mean share of the best: a configuration is worth what share of its context's best it reached, on
average over all contexts. What one gets from a leaderboard; it knows of contexts only that each
has a best.

For a configuration that was never run, the most similar ones of every context speak.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.matrix import Jobs, chance_to_run
from benchmarks.peers.predictors.nearest_context import by_context, similar
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["MeanShare"]

FEW = 3
"""Jobs below which a context's best says little."""


class MeanShare:
    name = "mean_share"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        jobs = Jobs.of(study, known, asked)
        configs, configs_asked = jobs.plain("configuration")
        groups = by_context(jobs.known.context_key, np.flatnonzero(jobs.scored))
        groups = [rows for rows in groups if len(rows) >= FEW] or groups
        shares, weights = np.zeros(len(asked)), 1e-9
        for rows in groups:
            scores = jobs.known.score[rows]
            share = np.array([1.0 + study.gain(float(s), float(scores.max())) for s in scores])
            # The more jobs a context has, the better the most similar one fits.
            weight = np.log2(1 + len(rows))
            shares += weight * similar(configs[rows], share, configs_asked, neighbours=1)
            weights += weight
        worth = np.log(np.maximum(shares / weights, 1e-3))  # as scores are, for P(run) to weigh
        return JobForecasts(worth, runs=chance_to_run(jobs, seed), only_ranks=True)
