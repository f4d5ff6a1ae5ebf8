"""LightGBM: what most people would try first, twice.

``lightgbm`` is the library as it comes, on the objective as it is measured, categories declared.
With few rows its defaults hardly split (``min_data_in_leaf`` is 20): that is what they do.
``lightgbm_log`` is what a careful person makes of it: on the logarithm, which is better wherever
the objective spans factors (τ .91 instead of .75 on a random split of ``trimtuner_ps``), and with
smaller leaves while there are few rows.
"""

from collections.abc import Sequence

import lightgbm
import numpy as np

from benchmarks.peers.matrix import Jobs, chance_to_run, for_few
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["DefaultLightGBM", "LogLightGBM", "boosted"]


class LogLightGBM:
    """On the score, a logarithm where the study says so."""

    name = "lightgbm_log"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        jobs = Jobs.of(study, known, asked)
        score = boosted(jobs, jobs.known.score, seed, careful=True)
        return JobForecasts(score, runs=chance_to_run(jobs, seed))


class DefaultLightGBM:
    """On the objective as it is measured."""

    name = "lightgbm"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        jobs = Jobs.of(study, known, asked)
        metric = study.objective.metric
        raw = np.array([o.metrics.get(metric, np.nan) for o in known], dtype=np.float64)
        label = np.where(jobs.scored, raw, np.nan)
        told = boosted(jobs, label, seed)
        if study.objective.scale == "log":
            # What it says below everything that was seen has no logarithm: take it for half.
            least = float(np.nanmin(label)) / 2 if jobs.scored.any() else 1.0
            told = np.maximum(told, least)
        score = np.array([study.score({metric: float(value)}) for value in told])
        return JobForecasts(score.astype(np.float64), runs=chance_to_run(jobs, seed))


def boosted(jobs: Jobs, label: FloatArray, seed: int, *, careful: bool = False) -> FloatArray:
    """(asked,) prediction of the label by LightGBM; its mean where two rows or fewer carry one.

    One thread changes no tree; it keeps a busy machine from stalling.
    """
    usable = np.isfinite(label)
    rows = int(usable.sum())
    if rows < 3:
        return np.full(len(jobs.asked), float(label[usable].mean()) if rows else 1.0)
    parameters = {"verbosity": -1, "num_threads": 1, "deterministic": True, "seed": seed}
    categories = jobs.categorical
    if careful and (few := for_few(rows)):
        parameters |= few
        categories = []
    data = lightgbm.Dataset(jobs.known.X[usable], label[usable], categorical_feature=categories)
    booster = lightgbm.train(parameters, data)
    return np.asarray(booster.predict(jobs.asked.X, num_threads=1), dtype=np.float64)
