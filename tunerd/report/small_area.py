"""What matched jobs add to the prediction, in small areas (Fay and Herriot 1979).

An area is a cell: the jobs of a context while one configuration was its incumbent. Cells and not
contexts, because an incumbent that was only lucky is soon replaced: few jobs run it, many were told
of it, and in one heap with its lasting successor its bad matches would hardly count.
"""

import math
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.evidence.prequential import HALF
from tunerd.report.jobs import JobArrays
from tunerd.report.sample import FEW, GainSample, means

__all__ = ["AreaEstimates", "areas_of", "corrections"]

FLOOR = 0.5
"""Least doubt about an incumbent, in spreads of one job: it was chosen as the best of several by a
few noisy runs, and has two at least."""
COMMON_SD = 0.5
"""Standard deviation of what all predictions of incumbents have in common, in doubts of one."""


@dataclass(frozen=True)
class AreaEstimates:
    """(A,) of each cell."""

    context: IntArray
    """Number of its context."""
    jobs: IntArray
    """That ran something else."""
    matched: IntArray
    weight: FloatArray
    """Matched jobs, as far as there are others to compare them with."""
    ahead: FloatArray
    """Mean predicted difference of the jobs that ran something else."""
    excess: FloatArray
    """By how much matched jobs beat the others beyond what was predicted; 0 without any."""
    excess_variance: FloatArray
    """Of that, from the noise of jobs; infinite without any."""
    doubt: FloatArray
    """Variance of the truth around the prediction, as the predictor states it and it turned out."""


def areas_of(jobs: JobArrays, sample: GainSample) -> AreaEstimates:
    """Look at each cell."""
    cells, count = int(sample.cell.max()) + 1, int(sample.cell_stratum.max()) + 1
    place, other, matched = sample.cell_stratum, sample.other, sample.matched
    others = np.bincount(place[other], minlength=count)
    ran_it = np.bincount(place[matched], minlength=count)
    weight = others * ran_it / np.maximum(others + ran_it, 1)
    gap = means(sample.error[matched], place[matched], count) - means(
        sample.error[other], place[other], count
    )
    cell_of = np.zeros(count, dtype=np.int64)
    cell_of[place] = sample.cell
    context_of = np.zeros(cells, dtype=np.int64)
    context_of[sample.cell] = sample.context
    total = _sums(weight, cell_of, cells)
    known = np.where(total > 0, total, 1.0)
    return AreaEstimates(
        context=context_of,
        jobs=np.bincount(sample.cell[other], minlength=cells),
        matched=np.bincount(sample.cell[matched], minlength=cells),
        weight=total,
        ahead=means(sample.ahead[other], sample.cell[other], cells),
        excess=_sums(weight * gap, cell_of, cells) / known,
        excess_variance=np.where(total > 0, _noise(sample)[context_of] / known, np.inf),
        doubt=_doubt(jobs, sample, cells),
    )


def corrections(
    areas: AreaEstimates, slope: float, slopes: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """(A,) what is added to the discounted prediction in each cell, and (draws, A) draws.

    A cell's own matched jobs count by their precision against the doubt about its prediction;
    the rest is what cells have in common, estimated over those that have matched jobs.
    """
    trust = 1.0 / (areas.doubt + areas.excess_variance)  # 0 without matched jobs
    doubt = float(np.average(areas.doubt, weights=areas.jobs + 1e-9))
    precision = float(trust.sum()) + 1.0 / (COMMON_SD**2 * doubt)
    own = areas.doubt * trust

    def corrected(slope_: FloatArray, excess: FloatArray) -> tuple[FloatArray, FloatArray]:
        corrected_excess = excess + (1.0 - slope_) * areas.ahead
        return own * corrected_excess, (trust * corrected_excess).sum(
            axis=-1, keepdims=True
        ) / precision

    matched, common = corrected(np.array([slope]), areas.excess)
    middle = matched + (1.0 - own) * common
    shape = (len(slopes), len(areas.jobs))
    sd = np.sqrt(np.where(areas.weight > 0, areas.excess_variance, 0.0))
    excess = areas.excess + sd * rng.standard_normal(shape)
    matched, common = corrected(slopes[:, None], excess)
    common = common + rng.standard_normal((len(slopes), 1)) / math.sqrt(precision)
    rest = np.sqrt(areas.doubt) * rng.standard_normal(shape)
    return middle, matched + (1.0 - own) * (common + rest)


def _sums(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    sums: FloatArray = np.bincount(group, weights=values, minlength=count).astype(np.float64)
    return sums


def _noise(sample: GainSample) -> FloatArray:
    """(C,) variance of a job's error within its stratum, drawn towards that of all contexts."""
    count, places = int(sample.stratum.max()) + 1, len(sample.places)
    rest = sample.error - means(sample.error, sample.stratum, count)[sample.stratum]
    squares = _sums(rest**2, sample.context, places)
    context_of = np.zeros(count, dtype=np.int64)
    context_of[sample.stratum] = sample.context
    jobs = np.bincount(sample.context, minlength=places)
    freedom = jobs - np.bincount(context_of, minlength=places)
    pooled = squares.sum() / max(int(freedom.sum()), 1)
    noise: FloatArray = np.maximum((squares + 4.0 * pooled) / (freedom + 4.0), 1e-12)
    return noise


def _doubt(jobs: JobArrays, sample: GainSample, cells: int) -> FloatArray:
    """(A,) variance with which an incumbent's true level lies around its prediction.

    The stated spread is one job's, noise included: widened or narrowed to what held for jobs, less
    the noise that repeats of a configuration show.
    """
    rows = sample.rows
    stated = (jobs.high[rows] - jobs.low[rows]) / (2 * HALF)
    sizes = np.abs(jobs.score[rows] - jobs.predicted[rows]) / np.maximum(stated, 1e-12)
    turned_out = float(np.clip(np.quantile(sizes, 0.8) / HALF, 0.25, 4.0))
    spread = turned_out * means(sample.spread, sample.cell, cells)
    repeat = _repeat_noise(jobs, rows)
    doubt: FloatArray = np.maximum(spread**2 - repeat, (FLOOR * spread) ** 2)
    return np.maximum(doubt, 1e-12)


def _repeat_noise(jobs: JobArrays, rows: IntArray) -> float:
    """Variance between jobs of one configuration in one context; 0 with hardly any repeats."""
    pairs = np.stack([jobs.context[rows], jobs.config[rows]])
    _, group, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    freedom = int((counts - 1).sum())
    if freedom < FEW:
        return 0.0
    # Around what was predicted, so that a cluster that slowed down is not noise.
    error = jobs.score[rows] - jobs.predicted[rows]
    rest = error - means(error, group, len(counts))[group]
    return float(np.sum(rest**2)) / freedom
