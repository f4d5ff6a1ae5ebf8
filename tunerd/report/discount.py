"""Which share of the predicted differences came true."""

from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.report.sample import GainSample, means

__all__ = ["GainBin", "came_true", "discount"]

LIMITS = (0.0, 1.5)
PRIOR = (0.5, 0.5)
"""Mean and standard deviation of the discount before any job said anything about it."""
DIFFERS = 0.1
"""How much the discount of what is recommended may differ from that of all jobs."""
CLUSTERS = 5
"""Contexts from which on they are what is drawn again; below, it is strata."""


STEPS = 8
STEP_JOBS = 12
"""Least jobs of a step."""


@dataclass(frozen=True, slots=True)
class GainBin:
    """Jobs whose predictions lay about as far from those of others of their context and time."""

    jobs: int
    predicted: float
    """Mean of that difference, relative units."""
    came: float
    error: float
    """Standard error of ``came``."""


def discount(sample: GainSample, rng: np.random.Generator, draws: int) -> tuple[float, FloatArray]:
    """Slope of what came over what was predicted among the better half of each stratum.

    Both are taken relative to what was expected of the incumbent at the same moment, so that a
    cluster that slows down, which predictions follow, does not look like a prediction come true.
    """
    x, y = _differences(sample)
    better = x > 0
    mean, sd = PRIOR
    prior = max(float(np.var(y - x)), 1e-12) / sd**2
    groups, group = len(sample.places), sample.context
    if groups < CLUSTERS:
        groups, group = int(sample.stratum.max()) + 1, sample.stratum
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


def came_true(sample: GainSample) -> list[GainBin]:
    """What became of predicted differences, from the worst predicted jobs to the best."""
    x, y = _differences(sample)
    count = min(STEPS, len(x) // STEP_JOBS)
    if count < 2:
        return []
    return [
        GainBin(
            jobs=len(part),
            predicted=float(x[part].mean()),
            came=float(y[part].mean()),
            error=float(np.std(y[part] - x[part], ddof=1)) / len(part) ** 0.5,
        )
        for part in np.array_split(np.argsort(x, kind="stable"), count)
    ]


def _differences(sample: GainSample) -> tuple[FloatArray, FloatArray]:
    """(n,) how predictions, and what came, differ from the mean of their stratum."""
    count = int(sample.stratum.max()) + 1
    x = -sample.ahead
    y = x + sample.usual_error
    return (
        x - means(x, sample.stratum, count)[sample.stratum],
        y - means(y, sample.stratum, count)[sample.stratum],
    )
