"""The jobs that take part in an estimate of gains.

Jobs are compared within *strata*, a context's jobs of about one time, and gains are estimated in
*cells*, the jobs of one context that came while one configuration was recommended there.
"""

from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.evidence.prequential import HALF
from tunerd.report.jobs import JobArrays, medians, strata

__all__ = ["FEW", "GainSample", "means", "near", "sample_of"]

FEW = 10
"""Jobs that ran something else below which nothing is said."""
NEAR = 0.75
"""Of the predicted gain over the rest, from which on a job counts as near."""
WILD = 5.0
"""Standard deviations at which a job's error is cut: one straggler must not decide."""


@dataclass(frozen=True)
class GainSample:
    """The n jobs that came while an incumbent was known, and were predicted."""

    rows: IntArray
    """(n,) their places among all jobs."""
    places: IntArray
    """(C,) the contexts that take part."""
    context: IntArray
    """(n,) number within them."""
    stratum: IntArray
    """(n,) a context's consecutive jobs."""
    cell: IntArray
    """(n,) number of context and incumbent."""
    cell_stratum: IntArray
    """(n,) a cell's consecutive jobs."""
    predicted: FloatArray
    error: FloatArray
    """(n,) what came minus what was predicted; cut where it is wild even for a job that the
    predictor knew little of, as a configuration that nobody had run."""
    usual_error: FloatArray
    """(n,) the same, cut where it is wild among all jobs."""
    ahead: FloatArray
    """(n,) what was expected of the incumbent minus what was predicted."""
    spread: FloatArray
    """(n,) of what was expected of the incumbent."""
    matched: BoolArray
    """(n,) ran the incumbent."""
    other: BoolArray
    """(n,) ran something else, and did not follow."""


def sample_of(jobs: JobArrays) -> GainSample | None:
    """Choose them; None when fewer than :data:`FEW` ran something else."""
    stay = jobs.targets["incumbent"]
    rows = np.flatnonzero(jobs.judged & jobs.sound & np.isfinite(stay.predicted))
    same = stay.same[rows]
    other = ~same & ~jobs.followed[rows]
    if int(other.sum()) < FEW:
        return None
    places, context = np.unique(jobs.context[rows], return_inverse=True)
    pairs = np.stack([jobs.context[rows], stay.config[rows]])
    cell = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    stratum = strata(context)
    error = jobs.score[rows] - jobs.predicted[rows]
    stated = (jobs.high[rows] - jobs.low[rows]) / (2 * HALF)
    return GainSample(
        rows=rows,
        places=places,
        context=context.astype(np.int64),
        stratum=stratum,
        cell=cell.astype(np.int64),
        cell_stratum=strata(cell),
        predicted=jobs.predicted[rows],
        error=_tamed(error, stratum, stated),
        usual_error=_tamed(error, stratum, 0.0),
        ahead=stay.predicted[rows] - jobs.predicted[rows],
        spread=stay.spread[rows],
        matched=same,
        other=other,
    )


def means(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Mean by group; 0 where a group is empty."""
    size = np.bincount(group, minlength=count)
    total = np.bincount(group, weights=values, minlength=count)
    means: FloatArray = total / np.maximum(size, 1)
    return means


def near(sample: GainSample) -> int:
    """Jobs that were predicted nearly as much better than the rest as the incumbent."""
    count = int(sample.stratum.max()) + 1
    stratum, other = sample.stratum, sample.other
    rest = means(sample.predicted[other], stratum[other], count)[stratum]
    aim = means((sample.predicted + sample.ahead)[other], stratum[other], count)[stratum]
    there = (np.bincount(stratum[other], minlength=count) > 0)[stratum]
    return int((there & (aim > rest) & (sample.predicted - rest >= NEAR * (aim - rest))).sum())


def _tamed(error: FloatArray, stratum: IntArray, stated: FloatArray | float) -> FloatArray:
    """Errors, cut at :data:`WILD` standard deviations around their stratum's median: those of all
    jobs, robustly, or as stated, whichever is larger."""
    middle = medians(error, stratum, int(stratum.max()) + 1)[stratum]
    rest = error - middle
    usual = 1.4826 * float(np.median(np.abs(rest)))
    bound = WILD * np.maximum(np.maximum(stated, usual), 1e-9)
    tamed: FloatArray = middle + np.clip(rest, -bound, bound)
    return tamed
