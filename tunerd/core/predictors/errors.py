"""How far off a predictor is: what the implementations of a predictor share about their errors."""

import math

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray, jobs_of

__all__ = [
    "FEW_ROWS",
    "folds_of",
    "follow_errors",
    "mean_of",
    "noise_of",
    "quantile",
    "typical_size",
    "widening",
]

FEW_ROWS = 5
"""Rows below which there is a mean and nothing more."""
HELD = 0.8
"""Share of jobs that the noise is read off …"""
Z_HELD = 1.2816
"""… and how many standard deviations their errors stay below."""
ENOUGH = 20.0
"""Jobs of today that errors are read off alone."""
FOLLOWED = 0.02
"""A job beyond that moves the noise by 80 % of this share, one within by 20 % the other way."""
FARTHEST = 25.0
"""Largest factor by which distance from the data widens the variance of a prediction."""


def widening(leverage: FloatArray, jobs: FloatArray) -> FloatArray:
    """Variance of a prediction in multiples of the noise: far from the data, where a context's
    level is hardly known."""
    return 1.0 + np.minimum(leverage, FARTHEST) + 1.0 / jobs


def folds_of(n: int, members: int, seed: int) -> IntArray:
    """Which member does not see each of n rows; all 0 when there are too few rows to share."""
    if n < FEW_ROWS:
        return np.zeros(n, dtype=np.int64)
    return np.random.default_rng(seed).permutation(n) % members


def mean_of(values: FloatArray, counts: FloatArray) -> float:
    """Mean of (n,), of which each counts so much (n,)."""
    return float(np.mean(counts * values) / np.mean(counts))


def quantile(values: FloatArray, level: float, counts: FloatArray) -> float:
    """What so large a share of values (n,) stays below, of which each counts so much (n,).

    Where they count as fewer than :data:`ENOUGH`, what has faded fills up: a handful of jobs of
    today do not say how far off others will be, and those of yesterday say how far things move.
    """
    if (counts == counts[0]).all():
        return float(np.quantile(values, level))
    filled = counts + max(ENOUGH - jobs_of(counts), 0.0) / len(counts)
    return float(np.quantile(values, level, method="inverted_cdf", weights=filled))


def typical_size(errors: FloatArray, counts: FloatArray) -> float:
    """Standard deviation of errors (n,), from what 80 % of them stay below, by what each counts
    (n,): for that is the band that is published, and some tables have a few very wild rows."""
    return quantile(np.abs(errors), HELD, counts) / Z_HELD


def noise_of(
    left_out: FloatArray, score: FloatArray, unit: float, counts: FloatArray | None = None
) -> float:
    """Variance of errors on rows that a member had not seen, by what each counts (n,), alike
    without.

    Before there are a few rows: as if the score might be anything up to its own size, or a
    relative difference of 1, which is ``unit`` in scores.
    """
    if len(left_out) < FEW_ROWS:
        guess = float(np.ptp(score)) if len(score) else 0.0
        return max(guess, float(np.abs(score).max(initial=unit))) ** 2
    counts = np.ones(len(left_out)) if counts is None else counts
    return max(typical_size(left_out, counts), 1e-3 * float(np.std(score)), 1e-9) ** 2


def follow_errors(noise: float, errors: FloatArray, counts: FloatArray | None = None) -> float:
    """Let the noise follow the error that 80 % of live jobs stay below; errors are in spreads, and
    ``counts`` (n,) is what is left of each job, 1 without.

    Slowly, whatever size an error has: sudden changes are the business of bands
    (:mod:`tunerd.core.conformal`), which work in units of this, and what grew by the square of
    errors went on growing when they had followed long since. The spreads are of before the batch:
    as the noise grows, the same error is less of one.
    """
    before = noise
    counts = np.ones(len(errors)) if counts is None else counts
    for error, count in zip(errors.tolist(), counts.tolist(), strict=True):
        outside = abs(error) > Z_HELD * math.sqrt(noise / before)
        noise *= 1.0 + count * FOLLOWED * (HELD if outside else HELD - 1.0)
    return noise
