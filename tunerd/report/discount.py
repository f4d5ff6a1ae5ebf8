"""Which share of the predicted differences came true."""

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.report.sample import Sample, means

__all__ = ["discount"]

LIMITS = (0.0, 1.5)
PRIOR = (0.5, 0.5)
"""Mean and standard deviation of the discount before any job said anything about it."""
DIFFERS = 0.1
"""How much the discount of what is recommended may differ from that of all jobs."""
CLUSTERS = 5
"""Contexts from which on they are what is drawn again; below, it is strata."""


def discount(sample: Sample, rng: np.random.Generator, draws: int) -> tuple[float, FloatArray]:
    """Slope of what came over what was predicted among the better half of each stratum.

    Both are taken relative to what was expected of the target at the same moment, so that a
    cluster that slows down, which predictions follow, does not look like a prediction come true.
    """
    told = np.flatnonzero(np.isfinite(sample.target))
    strata = len(sample.strata_context)
    stratum = sample.stratum[told]
    x = -sample.target[told]
    y = x + sample.error[told]
    x = x - means(x, stratum, strata)[stratum]
    y = y - means(y, stratum, strata)[stratum]
    better = x > 0
    mean, sd = PRIOR
    prior = max(float(np.var(y - x)), 1e-12) / sd**2
    groups, group = len(sample.places), sample.context[told]
    if groups < CLUSTERS:
        groups, group = strata, stratum
    if groups < CLUSTERS:
        groups, group = len(x), np.arange(len(x))
    xx = np.bincount(group[better], weights=x[better] ** 2, minlength=groups)
    xy = np.bincount(group[better], weights=x[better] * y[better], minlength=groups)
    slope = (xy.sum() + prior * mean) / (xx.sum() + prior)
    times = rng.poisson(1.0, size=(draws, groups))
    drawn_mean = mean + sd * rng.standard_normal(draws)
    slopes = (times @ xy + prior * drawn_mean) / (times @ xx + prior)
    slopes += DIFFERS * rng.standard_normal(draws)
    return float(np.clip(slope, *LIMITS)), np.clip(slopes, *LIMITS)
