"""Contexts as small areas: what matched jobs add to the prediction in each (Fay, Herriot 1979)."""

import math
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.judged import HALF
from tunerd.report.jobs import Jobs
from tunerd.report.sample import FEW, Sample, means

__all__ = ["Areas", "areas_of", "corrections"]


@dataclass(frozen=True)
class Areas:
    """The contexts as small areas, (C,) each."""

    jobs: IntArray
    matched: IntArray
    weight: FloatArray
    predicted: FloatArray
    """Mean predicted difference of the jobs that ran something else."""
    excess: FloatArray
    """By how much matched jobs beat the others beyond what was predicted; 0 without any."""
    excess_variance: FloatArray
    """Of that, from the noise of jobs; infinite without any."""
    doubt: FloatArray
    """Variance of the truth around the prediction, as the predictor states it and it turned out."""
    noise: FloatArray
    """Variance of one job."""


def areas_of(jobs: Jobs, sample: Sample) -> Areas:
    places, strata = len(sample.places), len(sample.strata_context)
    others = np.bincount(sample.stratum[sample.other], minlength=strata)
    matched = np.bincount(sample.stratum[sample.matched], minlength=strata)
    weight = others * matched / np.maximum(others + matched, 1)
    gap = means(sample.error[sample.matched], sample.stratum[sample.matched], strata) - means(
        sample.error[sample.other], sample.stratum[sample.other], strata
    )
    by_context: FloatArray = np.bincount(
        sample.strata_context, weights=weight, minlength=places
    ).astype(np.float64)
    excess: FloatArray = np.bincount(
        sample.strata_context, weights=weight * gap, minlength=places
    ).astype(np.float64)
    excess = excess / np.where(by_context > 0, by_context, 1.0)  # 0 where no job matched
    noise = _noise(sample)
    doubt = _doubt(jobs, sample)
    return Areas(
        jobs=np.bincount(sample.context[sample.other], minlength=places),
        matched=np.bincount(sample.context[sample.matched], minlength=places),
        weight=by_context,
        predicted=means(sample.target[sample.other], sample.context[sample.other], places),
        excess=excess,
        excess_variance=np.where(by_context > 0, noise / np.maximum(by_context, 1e-12), np.inf),
        doubt=doubt,
        noise=noise,
    )


def _noise(sample: Sample) -> FloatArray:
    """(C,) variance of a job's error within its stratum, drawn towards that of all contexts."""
    strata, places = len(sample.strata_context), len(sample.places)
    rest = sample.error - means(sample.error, sample.stratum, strata)[sample.stratum]
    squares = np.bincount(sample.context, weights=rest**2, minlength=places)
    freedom = np.bincount(sample.context, minlength=places) - np.bincount(
        sample.strata_context, minlength=places
    )
    pooled = squares.sum() / max(int(freedom.sum()), 1)
    noise: FloatArray = np.maximum((squares + 4.0 * pooled) / (freedom + 4.0), 1e-12)
    return noise


def _doubt(jobs: Jobs, sample: Sample) -> FloatArray:
    """(C,) variance with which a target's true level lies around its prediction.

    The stated spread is one job's, noise included: widened or narrowed to what held for jobs, less
    the noise that repeats of a configuration show.
    """
    places = len(sample.places)
    rows = sample.rows
    stated = (jobs.high[rows] - jobs.low[rows]) / (2 * HALF)
    sizes = np.abs(jobs.score[rows] - jobs.predicted[rows]) / np.maximum(stated, 1e-12)
    turned_out = float(np.clip(np.quantile(sizes, 0.8) / HALF, 0.25, 4.0))
    spread = means(sample.spread[sample.other], sample.context[sample.other], places)
    spread *= turned_out
    repeat = _repeat_noise(jobs, rows)
    doubt: FloatArray = np.maximum(spread**2 - repeat, (spread / 4) ** 2)
    return np.maximum(doubt, 1e-12)


def _repeat_noise(jobs: Jobs, rows: IntArray) -> float:
    """Variance between jobs of one configuration in one context; 0 with hardly any repeats."""
    pairs = jobs.context[rows] * (int(jobs.config.max(initial=0)) + 1) + jobs.config[rows]
    _, group, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    freedom = int((counts - 1).sum())
    if freedom < FEW:
        return 0.0
    # Around what was predicted, so that a cluster that slowed down is not noise.
    error = jobs.score[rows] - jobs.predicted[rows]
    rest = error - means(error, group, len(counts))[group]
    return float(np.sum(rest**2)) / freedom


def corrections(
    areas: Areas, slope: float, slopes: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """(C,) what is added to the discounted prediction in each context, and (draws, C) draws."""
    trust = 1.0 / (areas.doubt + areas.excess_variance)  # 0 without matched jobs
    common_sd = 0.5 * math.sqrt(float(np.average(areas.doubt, weights=areas.jobs + 1e-9)))
    precision = float(trust.sum()) + 1.0 / common_sd**2
    own = areas.doubt / (areas.doubt + np.minimum(areas.excess_variance, 1e300))
    own = np.where(areas.weight > 0, own, 0.0)

    def corrected(slope_: FloatArray, excess: FloatArray) -> tuple[FloatArray, FloatArray]:
        seen = excess + (1.0 - slope_) * areas.predicted
        common = (trust * seen).sum(axis=-1, keepdims=True) / precision
        return own * seen, common

    matched, common = corrected(np.array([slope]), areas.excess)
    middle = matched + (1.0 - own) * common
    shape = (len(slopes), len(areas.jobs))
    sd = np.sqrt(np.where(areas.weight > 0, areas.excess_variance, 0.0))
    excess = areas.excess + sd * rng.standard_normal(shape)
    matched, common = corrected(slopes[:, None], excess)
    common = common + rng.standard_normal((len(slopes), 1)) / math.sqrt(precision)
    doubt = np.sqrt(areas.doubt) * rng.standard_normal(shape)
    return middle, matched + (1.0 - own) * (common + doubt)
