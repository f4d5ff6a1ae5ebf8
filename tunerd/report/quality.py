"""How well jobs were predicted before they were learned. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.scores import kendall_large, mape, relative_errors, spearman, within_contexts
from tunerd.core.study import Study
from tunerd.report.gains import ConfidenceInterval, Z
from tunerd.report.jobs import JobArrays

__all__ = [
    "PredictionQuality",
    "QualityPeriod",
    "ReliabilityDiagram",
    "ReliabilityDiagramBin",
    "judge_quality",
    "reliability",
    "share",
]

FEW = 8
"""Jobs with a prediction and an objective below which nothing is said."""
LATEST = 5_000
"""Jobs that rank correlations look at, the latest ones."""
PARTS = 10
"""Parts of the jobs, each left out once to see how sure a figure is (jackknife)."""
PERIODS = 12
PERIOD_JOBS = 15
"""Least jobs of a period."""
POINTS = 400
"""Jobs in the plot of predicted against actual."""
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
"""Of the bins of the probability to run: finer where decisions are made."""


@dataclass(frozen=True, slots=True)
class QualityPeriod:
    """Consecutive jobs, in the order in which they were learned."""

    since: float
    until: float
    """Seconds since 1970."""
    jobs: int
    error: float
    """Median absolute error, relative to the metric."""
    kendall: float
    coverage: float


@dataclass(frozen=True, slots=True)
class PredictionQuality:
    """NaN where there is too little to say."""

    jobs: int
    kendall: ConfidenceInterval
    """τ-b within contexts."""
    spearman: ConfidenceInterval
    mape: float
    median_error: float
    coverage: ConfidenceInterval
    half_width: float
    """Median half width of the bands, in relative units."""
    periods: tuple[QualityPeriod, ...]
    points: IntArray
    """Places of some jobs for a plot, over all of the time."""


@dataclass(frozen=True, slots=True)
class ReliabilityDiagramBin:
    """Jobs that were given about the same probability to run."""

    low: float
    high: float
    jobs: int
    predicted: float
    """Their mean probability."""
    observed: ConfidenceInterval
    """Share of them that ran."""


@dataclass(frozen=True, slots=True)
class ReliabilityDiagram:
    """How the probability to run turned out."""

    jobs: int
    """That say something about it."""
    ran: int
    brier: float
    """Mean squared error; 0 is perfect."""
    plain: float
    """Of always saying the share that ran, known only afterwards."""
    bins: tuple[ReliabilityDiagramBin, ...]


def judge_quality(
    study: Study, jobs: JobArrays, where: IntArray | None = None
) -> PredictionQuality | None:
    """Judge the predictions of these jobs, of all by default; None below :data:`FEW`."""
    rows = np.flatnonzero(jobs.judged)
    if where is not None:
        rows = np.intersect1d(rows, where)
    if len(rows) < FEW:
        return None
    errors = _relative_errors(study, jobs, rows)
    held = (jobs.low[rows] <= jobs.score[rows]) & (jobs.score[rows] <= jobs.high[rows])
    latest = rows[-LATEST:]
    width = (jobs.high[rows] - jobs.low[rows]) / 2
    return PredictionQuality(
        jobs=len(rows),
        kendall=_surely(lambda part: _within(kendall_large, jobs, part), latest),
        spearman=_surely(lambda part: _within(spearman, jobs, part), latest),
        mape=mape(_raw(study, jobs.predicted, jobs, rows), _raw(study, jobs.score, jobs, rows)),
        median_error=float(np.median(errors)) if len(errors) else math.nan,
        coverage=share(int(held.sum()), len(held)),
        half_width=float(np.median(width)),
        periods=tuple(_periods(study, jobs, rows)),
        points=rows[np.unique(np.linspace(0, len(rows) - 1, POINTS).astype(np.int64))],
    )


def reliability(jobs: JobArrays) -> ReliabilityDiagram | None:
    """Judge the probability to run; None when no job with one says anything about it."""
    rows = np.flatnonzero(np.isfinite(jobs.feasible) & np.isfinite(jobs.ran))
    if not len(rows):
        return None
    probability, ran = jobs.feasible[rows], jobs.ran[rows]
    place = np.clip(np.searchsorted(EDGES, probability, side="right") - 1, 0, len(EDGES) - 2)
    bins = []
    for number in np.unique(place).tolist():
        inside = place == number
        bins.append(
            ReliabilityDiagramBin(
                EDGES[number],
                EDGES[number + 1],
                int(inside.sum()),
                float(probability[inside].mean()),
                share(int(ran[inside].sum()), int(inside.sum())),
            )
        )
    return ReliabilityDiagram(
        jobs=len(rows),
        ran=int(ran.sum()),
        brier=float(np.mean((probability - ran) ** 2)),
        plain=float(np.mean((ran.mean() - ran) ** 2)),
        bins=tuple(bins),
    )


def share(count: int, total: int) -> ConfidenceInterval:
    """A share with Wilson's interval."""
    p, z2 = count / total, Z**2
    middle = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = Z * math.sqrt(p * (1 - p) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return ConfidenceInterval(p, max(middle - half, 0.0), min(middle + half, 1.0))


def _surely(figure: Callable[[IntArray], float], rows: IntArray) -> ConfidenceInterval:
    """A figure with an interval from leaving out each :data:`PARTS`-th of the jobs in turn.

    The parts are consecutive jobs: errors of neighbours are alike.
    """
    whole = figure(rows)
    if len(rows) < 2 * PARTS:
        return ConfidenceInterval(whole, math.nan, math.nan)
    parts = np.array_split(np.arange(len(rows)), PARTS)
    left_out = np.array([figure(np.delete(rows, part)) for part in parts])
    sd = math.sqrt((PARTS - 1) / PARTS * float(np.sum((left_out - left_out.mean()) ** 2)))
    return ConfidenceInterval(whole, max(whole - Z * sd, -1.0), min(whole + Z * sd, 1.0))


def _within(
    score: Callable[[FloatArray, FloatArray], float], jobs: JobArrays, rows: IntArray
) -> float:
    keys = [str(number) for number in jobs.context[rows].tolist()]
    return within_contexts(score, jobs.predicted[rows], jobs.score[rows], keys)


def _periods(study: Study, jobs: JobArrays, rows: IntArray) -> Sequence[QualityPeriod]:
    count = min(len(rows) // PERIOD_JOBS, PERIODS)
    if count < 2:
        return []
    periods = []
    for part in np.array_split(rows, count):
        errors = _relative_errors(study, jobs, part)
        held = (jobs.low[part] <= jobs.score[part]) & (jobs.score[part] <= jobs.high[part])
        periods.append(
            QualityPeriod(
                since=float(jobs.at[part].min()),
                until=float(jobs.at[part].max()),
                jobs=len(part),
                error=float(np.median(errors)) if len(errors) else math.nan,
                kendall=_within(kendall_large, jobs, part),
                coverage=float(held.mean()),
            )
        )
    return periods


def _relative_errors(study: Study, jobs: JobArrays, rows: IntArray) -> FloatArray:
    actual = _raw(study, jobs.score, jobs, rows)
    predicted = _raw(study, jobs.predicted, jobs, rows)
    return relative_errors(predicted, actual)


def _raw(study: Study, values: FloatArray, jobs: JobArrays, rows: IntArray) -> FloatArray:
    scores = (values[rows] * jobs.unit[rows]).tolist()
    return np.array([study.metric_value(score) for score in scores], dtype=np.float64)
