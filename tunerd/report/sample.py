"""The jobs that take part in an estimate of gains, in strata of one context and about one time."""

from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.report.jobs import Jobs, Named, medians

__all__ = ["FEW", "Sample", "means", "near", "sample_of"]

FEW = 10
"""Jobs that ran something else below which nothing is said."""
NEAR = 0.75
"""Of the predicted gain over the rest, from which on a job counts as near."""
WILD = 5.0
"""Robust standard deviations at which a job's error is cut: one straggler must not decide."""


@dataclass(frozen=True)
class Sample:
    """The rows that take part, in strata."""

    rows: IntArray
    stratum: IntArray
    strata_context: IntArray
    """(H,) context of each stratum, numbered within those that take part."""
    places: IntArray
    """(C,) the contexts that take part."""
    context: IntArray
    """(n,) number within them."""
    predicted: FloatArray
    error: FloatArray
    """(n,) what came minus what was predicted, wild ones cut."""
    target: FloatArray
    """(n,) predicted difference of the target, NaN where there was none."""
    spread: FloatArray
    other: BoolArray
    matched: BoolArray


def sample_of(jobs: Jobs, target: Named) -> Sample | None:
    aim = jobs.targets[target]
    told = np.isfinite(aim.predicted)
    if target == "first":
        told &= jobs.first_better
    rows = np.flatnonzero(jobs.judged)
    other = told & ~aim.same & ~jobs.followed
    if int(other[rows].sum()) < FEW:
        return None
    matched = told & aim.same
    if target == "first":
        # Any candidate that was thought better says how such thoughts turn out, but only from
        # jobs that asked: what people run by chance lies where they have always been, and says
        # little about where a search goes.
        stay = jobs.targets["incumbent"].predicted
        matched = jobs.candidate & (jobs.predicted > stay) & jobs.followed
    stratum = jobs.strata(rows)
    places, context = np.unique(jobs.context[rows], return_inverse=True)
    strata_context = np.zeros(int(stratum.max()) + 1, dtype=np.int64)
    strata_context[stratum] = context
    error = jobs.score[rows] - jobs.predicted[rows]
    return Sample(
        rows=rows,
        stratum=stratum,
        strata_context=strata_context,
        places=places,
        context=context.astype(np.int64),
        predicted=jobs.predicted[rows],
        error=_tamed(error, stratum),
        target=np.where(told, aim.predicted - jobs.predicted, np.nan)[rows],
        spread=aim.spread[rows],
        other=other[rows],
        matched=matched[rows],
    )


def _tamed(error: FloatArray, stratum: IntArray) -> FloatArray:
    """Errors, cut at :data:`WILD` robust standard deviations around their stratum's median."""
    middle = medians(error, stratum, int(stratum.max()) + 1)
    rest = error - middle[stratum]
    size = 1.4826 * float(np.median(np.abs(rest)))
    bound = max(WILD * size, 1e-9)
    tamed: FloatArray = middle[stratum] + np.clip(rest, -bound, bound)
    return tamed


def means(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Mean by group; 0 where a group is empty."""
    size = np.bincount(group, minlength=count)
    total = np.bincount(group, weights=values, minlength=count)
    means: FloatArray = total / np.maximum(size, 1)
    return means


def near(sample: Sample) -> int:
    """Jobs that were predicted nearly as much better than the rest as what was recommended."""
    strata = len(sample.strata_context)
    rest = means(sample.predicted[sample.other], sample.stratum[sample.other], strata)
    there = np.bincount(sample.stratum[sample.other], minlength=strata) > 0
    aim = means(
        (sample.predicted + sample.target)[sample.other], sample.stratum[sample.other], strata
    )
    ahead = (aim - rest)[sample.stratum]
    own = sample.predicted - rest[sample.stratum]
    near = there[sample.stratum] & (ahead > 0) & (own >= NEAR * ahead)
    return int(near.sum())
