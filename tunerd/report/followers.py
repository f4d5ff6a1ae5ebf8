"""What jobs that asked came out with, beside others of their context and time. Pure.

Two figures that need no model: what followers gained over those who did not follow, and what became
of the candidates that were tried. The second says how far a search overrates what it picks; from
jobs alone that did not try its candidates nobody can know.
"""

import math
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.report.gains import ENOUGH_MATCHED, ConfidenceInterval, Z
from tunerd.report.jobs import JobArrays, strata
from tunerd.report.sample import means

__all__ = [
    "CandidateComparison",
    "FollowerComparison",
    "beside_others",
    "candidates_tried",
    "first_candidates",
]


@dataclass(frozen=True, slots=True)
class FollowerComparison:
    """Some jobs beside others. Differences are in relative units."""

    jobs: int
    compared: float
    """Of them, each as far as there are others to compare it with."""
    gap: ConfidenceInterval | None
    """None when too few can be compared."""


@dataclass(frozen=True, slots=True)
class CandidateComparison:
    """Candidates against the incumbent of their moment. Differences are in relative units."""

    jobs: int
    ran: int | None
    """Of those that say anything about it; None before any was run."""
    said: int
    feasible: float
    """Mean probability to run that they were given."""
    predicted: float
    """Mean predicted difference to the incumbent."""
    came: ConfidenceInterval | None
    """What came of it; None when too few can be compared."""


def beside_others(jobs: JobArrays, *, trying: bool) -> FollowerComparison:
    """Jobs that followed beside those that did not: of followers those that were told to try a
    candidate, or those that kept to the best known."""
    chosen = jobs.followed & (jobs.candidate == trying)
    return _beside(jobs, chosen, ~jobs.followed, jobs.score)


def candidates_tried(jobs: JobArrays) -> CandidateComparison | None:
    """What became of candidates that were thought better than the incumbent, and that a job ran
    because it was told to; None without any.

    Chance does not count: what people run by themselves lies where they have always been.
    """
    stay = jobs.targets["incumbent"].predicted
    tried = jobs.candidate & (jobs.predicted > stay)
    if not tried.any():
        return None
    comparable = tried & np.isfinite(jobs.ran)
    beside = _beside(jobs, tried, ~tried, jobs.score - jobs.predicted)
    judged = tried & jobs.judged & jobs.sound
    ahead = float(np.mean((jobs.predicted - stay)[judged])) if judged.any() else math.nan
    gap = beside.gap
    return CandidateComparison(
        jobs=int(tried.sum()),
        ran=int(jobs.ran[comparable].sum()),
        said=int(comparable.sum()),
        feasible=float(np.mean(jobs.feasible[tried])),
        predicted=ahead,
        came=None
        if gap is None
        else ConfidenceInterval(ahead + gap.middle, ahead + gap.low, ahead + gap.high),
    )


def first_candidates(jobs: JobArrays) -> CandidateComparison | None:
    """What was predicted of first candidates, over the jobs that ran something else while one was
    thought better than the incumbent; None without any."""
    first, stay = jobs.targets["first"], jobs.targets["incumbent"]
    comparable = jobs.first_better & np.isfinite(first.predicted) & np.isfinite(stay.predicted)
    comparable &= ~first.same & ~jobs.followed
    if not comparable.any():
        return None
    return CandidateComparison(
        jobs=int(comparable.sum()),
        ran=None,
        said=0,
        feasible=float(np.mean(first.feasible[comparable])),
        predicted=float(np.mean((first.predicted - stay.predicted)[comparable])),
        came=None,
    )


def _beside(
    jobs: JobArrays, chosen: BoolArray, against: BoolArray, values: FloatArray
) -> FollowerComparison:
    """Mean difference of ``values`` within strata; the interval is a normal one, from the
    differences between jobs of one stratum."""
    rows = np.flatnonzero(jobs.sound & np.isfinite(values) & (chosen | against))
    ours = chosen[rows]
    total = int(chosen.sum())
    if not ours.any():
        return FollowerComparison(total, 0.0, None)
    group, own = strata(jobs.context[rows]), values[rows]
    count = int(group.max()) + 1
    mine = np.bincount(group[ours], minlength=count)
    others = np.bincount(group[~ours], minlength=count)
    weight = mine * others / np.maximum(mine + others, 1)
    compared = float(weight.sum())
    if compared < ENOUGH_MATCHED:
        return FollowerComparison(total, compared, None)
    our_mean = means(own[ours], group[ours], count)
    other_mean = means(own[~ours], group[~ours], count)
    gap = float(weight @ (our_mean - other_mean)) / compared
    rest = own - np.where(ours, our_mean[group], other_mean[group])
    freedom = len(rows) - int((mine > 0).sum() + (others > 0).sum())
    half = Z * math.sqrt(float(rest @ rest) / max(freedom, 1) / compared)
    return FollowerComparison(total, compared, ConfidenceInterval(gap, gap - half, gap + half))
