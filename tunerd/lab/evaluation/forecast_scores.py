"""One prediction of many jobs beside what happened to them: overall and within each context.

Within a context is what matters to a search: nobody chooses the context, and over all jobs
together the differences between contexts drown those between configurations.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from tunerd.core import scores as core
from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.observation import FeasibilityLabel, Observation
from tunerd.core.scores import kendall_large
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts
from tunerd.lab.evaluation.scores import (
    TOP,
    CalibrationBin,
    auc,
    brier,
    calibration_error,
    regret,
    regret_of_random,
    regret_of_top,
    reliability,
)

__all__ = ["ForecastEvaluation", "ForecastScores", "GroundTruth", "judge", "weighed"]

_RAN = {
    FeasibilityLabel.YES: 1.0,
    FeasibilityLabel.NO: 0.0,
    FeasibilityLabel.WEAK_NO: 0.0,
    FeasibilityLabel.UNKNOWN: math.nan,
}

Number = float | None
"""None where nothing can be said: "n/a"."""


class ForecastScores(msgspec.Struct, frozen=True):
    """How well one predictor did. None is "n/a": too few jobs, or it does not say.

    Predictions are compared with the jobs that have an objective, regret and the probability to
    run with all jobs that say something.
    """

    rows: Annotated[
        float,
        Meta(description="Jobs asked about that have an objective; a mean where repeats differ."),
    ]
    contexts: Annotated[float, Meta(description="… and the contexts that they are in.")]
    kendall_tau: Annotated[Number, Meta(description="τ-b. Within a context from eight jobs on.")]
    spearman: Number
    pearson: Annotated[
        Number, Meta(description="Of scores: of logarithms where the study compares by ratios.")
    ]
    mape: Annotated[
        Number, Meta(description="Mean absolute error relative to the metric: 0.05 is 5 %.")
    ]
    coverage: Annotated[Number, Meta(description="Share of jobs inside the predicted band.")]
    band: Annotated[Number, Meta(description="What the band promises.")]
    band_width: Annotated[
        Number,
        Meta(
            description="Mean of high − low in score units: 0.1 is about 10 % where the study "
            "compares by ratios."
        ),
    ]
    regret_at: Annotated[
        dict[str, Number],
        Meta(
            description='Of the best of the first "1", "3", "5", "10" configurations of a context '
            "by prediction: how far it is from the best measured there, 0.05 for 5 %, "
            "at most 1. Failures come last by the probability to run as in the "
            "service. Mean over contexts where at least four times as many were "
            "measured."
        ),
    ]
    random_regret_at: Annotated[
        dict[str, Number], Meta(description="The same for a random order, exactly.")
    ]
    auc: Annotated[Number, Meta(description="Of the probability to run.")]
    brier: Number
    ece: Annotated[Number, Meta(description="Expected calibration error over ten bins.")]
    ran: Annotated[
        Number, Meta(description="Share of jobs that ran, of those that say anything about it.")
    ]


@dataclass(frozen=True)
class GroundTruth:
    """What happened to n jobs."""

    study: Study
    score: FloatArray
    """(n,) NaN without an objective."""
    ran: FloatArray
    """(n,) 1, 0, NaN for jobs that say nothing."""
    keys: tuple[str, ...]
    """n context keys."""
    configs: IntArray
    """(n,) the same number for the same configuration in the same context."""

    @classmethod
    def of(cls, study: Study, observations: Sequence[Observation]) -> "GroundTruth":
        """What the observations say."""
        scores = [study.score(o.metrics) for o in observations]
        keys = tuple(study.context_key(o.context) for o in observations)
        numbers: dict[tuple[str, Hashable], int] = {}
        configs = [
            numbers.setdefault((key, _config(study, o)), len(numbers))
            for key, o in zip(keys, observations, strict=True)
        ]
        return cls(
            study,
            np.array([math.nan if s is None else s for s in scores], dtype=np.float64),
            np.array([_RAN[study.ran(o)] for o in observations], dtype=np.float64),
            keys,
            np.array(configs, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, where: IntArray) -> "GroundTruth":
        """The jobs at these places."""
        return GroundTruth(
            self.study,
            self.score[where],
            self.ran[where],
            tuple(self.keys[i] for i in where.tolist()),
            self.configs[where],
        )

    def contexts(self) -> dict[str, IntArray]:
        """Places of each context's jobs."""
        places: dict[str, list[int]] = {}
        for i, key in enumerate(self.keys):
            places.setdefault(key, []).append(i)
        return {key: np.array(where) for key, where in places.items()}


def _config(study: Study, observation: Observation) -> Hashable:
    values = [p.clean(p.of(observation.config)) for p in study.parameters]
    return tuple(tuple(v) if isinstance(v, list) else v for v in values)


@dataclass(frozen=True)
class ForecastEvaluation:
    """One prediction, judged."""

    overall: ForecastScores
    """Over all jobs together; regret as a mean over contexts."""
    within: ForecastScores
    """Means over contexts: weighted by jobs, regret by contexts."""
    per_context: Mapping[str, ForecastScores]
    calibration: tuple[CalibrationBin, ...]


def judge(
    truth: GroundTruth, foretold: JobForecasts, rng: np.random.Generator
) -> ForecastEvaluation:
    """Judge what was foretold of the jobs in ``truth``. ``rng`` breaks ties of a ranking."""
    places = truth.contexts()
    per_context = {
        key: _figures(truth.take(where), _taken(foretold, where), rng)
        for key, where in places.items()
    }
    within = _mean(list(per_context.values()))
    overall = msgspec.structs.replace(
        _figures(truth, foretold, None),
        contexts=within.contexts,
        regret_at=within.regret_at,
        random_regret_at=within.random_regret_at,
    )
    return ForecastEvaluation(overall, within, per_context, _calibration(truth, foretold))


def _taken(foretold: JobForecasts, where: IntArray) -> JobForecasts:
    return JobForecasts(
        foretold.score[where],
        None if foretold.low is None else foretold.low[where],
        None if foretold.high is None else foretold.high[where],
        foretold.band,
        None if foretold.runs is None else foretold.runs[where],
        foretold.only_ranks,
    )


def _figures(
    truth: GroundTruth, foretold: JobForecasts, rng: np.random.Generator | None
) -> ForecastScores:
    """All figures over these jobs; regret only with ``rng``, for jobs of one context."""
    scored = np.flatnonzero(np.isfinite(truth.score))
    predicted, actual = _taken(foretold, scored), truth.score[scored]
    enough = len(scored) >= core.MIN_ROWS and np.ptp(actual) > 0
    in_units = not foretold.only_ranks
    has_ran = np.isfinite(truth.ran)
    ran = truth.ran[has_ran] > 0.5
    runs = None if foretold.runs is None or not len(ran) else foretold.runs[has_ran]
    regrets, random = _regrets(truth, foretold, rng) if rng is not None else ({}, {})
    inside = None
    if predicted.low is not None and predicted.high is not None and len(scored):
        inside = (predicted.low <= actual) & (actual <= predicted.high)
    return ForecastScores(
        rows=len(scored),
        contexts=1 if len(scored) else 0,
        kendall_tau=_correlation(kendall_large, predicted.score, actual) if enough else None,
        spearman=_correlation(core.spearman, predicted.score, actual) if enough else None,
        pearson=_correlation(core.pearson, predicted.score, actual)
        if enough and in_units
        else None,
        mape=_mape(truth.study, predicted.score, actual) if in_units else None,
        coverage=None if inside is None else float(inside.mean()),
        band=None if inside is None else foretold.band,
        band_width=None if inside is None else _finite(_width(predicted)),
        regret_at=regrets,
        random_regret_at=random,
        auc=None if runs is None else _finite(auc(runs, ran)),
        brier=None if runs is None else _finite(brier(runs, ran)),
        ece=None if runs is None else _finite(calibration_error(reliability(runs, ran))),
        ran=float(ran.mean()) if len(ran) else None,
    )


def _correlation(
    of: Callable[[FloatArray, FloatArray], float], predicted: FloatArray, actual: FloatArray
) -> float:
    """0 for a predictor that says the same of jobs that differ."""
    value = of(predicted, actual)
    return 0.0 if math.isnan(value) else value


def _finite(value: float) -> Number:
    return value if math.isfinite(value) else None


def _width(told: JobForecasts) -> float:
    assert told.low is not None
    assert told.high is not None
    return float(np.mean(told.high - told.low))


def _mape(study: Study, predicted: FloatArray, actual: FloatArray) -> Number:
    raw = [
        np.array([study.metric_value(float(v)) for v in values]) for values in (predicted, actual)
    ]
    return _finite(core.mape(*raw))


def _regrets(
    truth: GroundTruth, foretold: JobForecasts, rng: np.random.Generator
) -> tuple[dict[str, Number], dict[str, Number]]:
    """Of one context, its repeats pooled; all None where nothing ran."""
    regrets, ranking = _configurations(truth, foretold)
    nothing_ran = not len(regrets) or regrets.min() > 0
    if nothing_ran:
        nothing: dict[str, Number] = {str(k): None for k in TOP}
        return nothing, nothing
    return (
        {str(k): _finite(regret_of_top(regrets, ranking, k, rng)) for k in TOP},
        {str(k): _finite(regret_of_random(regrets, k)) for k in TOP},
    )


def _configurations(truth: GroundTruth, foretold: JobForecasts) -> tuple[FloatArray, FloatArray]:
    """(m,) regret of each configuration that was measured here, and (m,) what it was predicted to
    be worth.

    A configuration's repeats are one: its score is the mean of those that ran, and it did not run
    when most repeats did not. Jobs that say nothing are no measurement.
    """
    worth = foretold.score
    if foretold.runs is not None:
        worth = weighed(foretold.score, foretold.runs, truth.study.min_feasible)
    ran = (truth.ran > 0.5) & np.isfinite(truth.score)
    measured = ran | (truth.ran < 0.5)
    names, of = np.unique(truth.configs[measured], return_inverse=True)
    ranking = _means(worth[measured], of, len(names), np.ones(len(of), dtype=np.bool_))
    scores = _means(truth.score[measured], of, len(names), ran[measured])
    share = _means(ran[measured].astype(np.float64), of, len(names), np.ones(len(of), np.bool_))
    runs = share >= 0.5
    if not runs.any():
        return np.ones(len(names)), ranking
    best = float(scores[runs].max())
    values = [
        regret(truth.study, float(score) if good else None, best)
        for score, good in zip(scores, runs, strict=True)
    ]
    return np.array(values), ranking


def weighed(value: FloatArray, feasible: FloatArray, min_feasible: float) -> FloatArray:
    """Values (n,) in score units times the probability to run: on a log scale a product is a sum.

    What most likely does not run sinks below everything else, but keeps its order, so that a
    policy still feels the slope towards what runs.
    """
    worth = value + np.log(np.clip(feasible, 1e-3, 1.0))
    sunk: FloatArray = worth - 10.0 * (1.0 - feasible)
    return np.where(feasible < min_feasible, sunk, worth)


def _means(values: FloatArray, of: IntArray, n: int, which: BoolArray) -> FloatArray:
    """Mean of the values of each of n groups over ``which``; NaN for empty ones."""
    total = np.bincount(of[which], values[which], minlength=n)
    count = np.bincount(of[which], minlength=n)
    means: FloatArray = np.divide(total, count, out=np.full(n, math.nan), where=count > 0)
    return means


def _mean(figures: Sequence[ForecastScores]) -> ForecastScores:
    """Figures of contexts as one: weighted by jobs, regret by contexts."""

    def mean(name: str) -> Number:
        pairs = [(getattr(f, name), f.rows) for f in figures]
        pairs = [(value, rows) for value, rows in pairs if value is not None and rows]
        total = sum(rows for _, rows in pairs)
        return sum(value * rows for value, rows in pairs) / total if total else None

    def regrets(name: str) -> dict[str, Number]:
        regret_of = {}
        for k in map(str, TOP):
            values = [getattr(f, name).get(k) for f in figures]
            values = [value for value in values if value is not None]
            regret_of[k] = sum(values) / len(values) if values else None
        return regret_of

    return ForecastScores(
        rows=sum(f.rows for f in figures),
        contexts=sum(f.contexts for f in figures),
        kendall_tau=mean("kendall_tau"),
        spearman=mean("spearman"),
        pearson=mean("pearson"),
        mape=mean("mape"),
        coverage=mean("coverage"),
        band=mean("band"),
        band_width=mean("band_width"),
        regret_at=regrets("regret_at"),
        random_regret_at=regrets("random_regret_at"),
        auc=mean("auc"),
        brier=mean("brier"),
        ece=mean("ece"),
        ran=mean("ran"),
    )


def _calibration(truth: GroundTruth, foretold: JobForecasts) -> tuple[CalibrationBin, ...]:
    has_ran = np.isfinite(truth.ran)
    if foretold.runs is None or not has_ran.any():
        return ()
    return tuple(reliability(foretold.runs[has_ran], truth.ran[has_ran] > 0.5))
