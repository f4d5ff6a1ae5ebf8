"""Figures of one comparison: predictions beside what then happened, as arrays of n jobs.

The correlations of :mod:`tunerd.core.scores` are the service's own; here is what only a backtest
needs. Every function gives NaN where nothing can be said.
"""

from collections.abc import Sequence
from math import comb
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from tunerd.core import scores as core
from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.study import Study

__all__ = [
    "BINS",
    "TOP",
    "CalibrationBin",
    "auc",
    "brier",
    "calibration_error",
    "regret",
    "regret_of_random",
    "regret_of_top",
    "reliability",
]

TOP = (1, 3, 5, 10)
"""Numbers of first configurations whose best counts as what a person would have found."""
MEASURED_PER_PICK = 4
"""The best of k is told where at least this many times k were measured: where there are hardly
more, any order finds the best."""
BINS = 10


# ── regret ───────────────────────────────────────────────────────────────────────────────────


def regret(study: Study, score: float | None, best: float) -> float:
    """How far a score is from the best there is, in the raw metric: 0.05 is 5 % worse.

    1 is the most: no speed at all, twice the time or more, or what did not run (``score`` None).
    """
    if score is None:
        return 1.0
    if score < best and study.metric_value(best) == 0:
        return 1.0  # nothing can be said in per cent of 0
    return min(max(-study.gain(score, best), 0.0), 1.0)


def regret_of_top(
    regrets: FloatArray, ranking: FloatArray, k: int, rng: np.random.Generator
) -> float:
    """Regret of the best of the first k by ``ranking``, largest first; ties in random order.

    ``regrets`` (n,) are those of all configurations measured in one context. NaN where they are
    fewer than :data:`MEASURED_PER_PICK` · k.
    """
    if len(regrets) < MEASURED_PER_PICK * k:
        return float("nan")
    first = np.lexsort((rng.random(len(ranking)), -ranking))[:k]
    return float(regrets[first].min())


def regret_of_random(regrets: FloatArray, k: int) -> float:
    """Mean regret of the best of k configurations drawn at random without replacement, exactly.

    The i-th smallest of n regrets is the smallest of those drawn in C(n − i, k − 1) of C(n, k)
    draws. NaN as for :func:`regret_of_top`.
    """
    n = len(regrets)
    if n < MEASURED_PER_PICK * k:
        return float("nan")
    all_draws = comb(n, k)
    shares = [comb(n - i, k - 1) / all_draws for i in range(1, n - k + 2)]
    return float(np.sort(regrets)[: len(shares)] @ np.array(shares))


# ── probability to run ───────────────────────────────────────────────────────────────────────


def auc(probability: FloatArray, ran: BoolArray) -> float:
    """Chance that one that ran was given more than one that did not, ties half; NaN when all
    rows are of one kind."""
    good = int(ran.sum())
    bad = len(ran) - good
    if not good or not bad:
        return float("nan")
    above = core.ranks(probability)[ran].sum() - good * (good + 1) / 2
    return float(above / (good * bad))


def brier(probability: FloatArray, ran: BoolArray) -> float:
    """Mean squared distance of the probability from 1 for what ran and 0 for what did not."""
    return float(np.mean((probability - ran) ** 2)) if len(ran) else float("nan")


class CalibrationBin(msgspec.Struct, frozen=True):
    """Jobs whose probability to run was said to be about the same."""

    low: float
    high: float
    rows: float
    said: Annotated[float, Meta(description="Mean probability.")]
    ran: float
    """Share that ran."""


def reliability(probability: FloatArray, ran: BoolArray) -> Sequence[CalibrationBin]:
    """Ten bins of equal width over 0..1; empty ones are left out."""
    where = np.minimum((probability * BINS).astype(int), BINS - 1)
    return [
        CalibrationBin(
            b / BINS,
            (b + 1) / BINS,
            int(inside.sum()),
            float(probability[inside].mean()),
            float(ran[inside].mean()),
        )
        for b in range(BINS)
        if (inside := where == b).any()
    ]


def calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Expected calibration error: mean distance between what was said and what ran, over the
    jobs of all bins."""
    rows = sum(bin_.rows for bin_ in bins)
    return (
        sum(bin_.rows * abs(bin_.said - bin_.ran) for bin_ in bins) / rows if rows else float("nan")
    )
