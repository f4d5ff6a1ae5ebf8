"""What jobs that followed came out with, beside others of their context and time. Pure."""

import math

import numpy as np

from tunerd.report.gains import ENOUGH_MATCHED, Interval, Z
from tunerd.report.jobs import Jobs
from tunerd.report.sample import means

__all__ = ["beside_others"]


def beside_others(jobs: Jobs) -> tuple[int, float, Interval | None]:
    """Compare jobs that followed with those that did not.

    Returns:
        How many followed, how many of them count in the comparison (each as far as there are
        others to compare it with), and the mean difference in relative units; None when too few
        do. The interval is a normal one, from the differences between jobs of one stratum.
    """
    rows = np.flatnonzero(np.isfinite(jobs.score))
    followed = jobs.followed[rows]
    if not followed.any():
        return int(jobs.followed.sum()), 0.0, None
    strata = jobs.strata(rows)
    count, score = int(strata.max()) + 1, jobs.score[rows]
    ours = np.bincount(strata[followed], minlength=count)
    others = np.bincount(strata[~followed], minlength=count)
    weight = ours * others / np.maximum(ours + others, 1)
    compared = float(weight.sum())
    if compared < ENOUGH_MATCHED:
        return int(jobs.followed.sum()), compared, None
    own_mean = means(score[followed], strata[followed], count)
    other_mean = means(score[~followed], strata[~followed], count)
    gap = float(weight @ (own_mean - other_mean)) / compared
    rest = score - np.where(followed, own_mean[strata], other_mean[strata])
    freedom = len(rows) - int((ours > 0).sum() + (others > 0).sum())
    sd = math.sqrt(float(rest @ rest) / max(freedom, 1) / compared)
    half = Z * sd
    return int(jobs.followed.sum()), compared, Interval(gap, gap - half, gap + half)
