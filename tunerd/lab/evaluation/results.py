"""What a backtest says, as JSON: one result per split, amount known and predictor.

Means over repeats, with 95 % bootstrap intervals over contexts and repeats: contexts
because the next user has others, repeats because which jobs were known was luck.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from tunerd.core.arrays import FloatArray
from tunerd.lab.evaluation.backtest import SplitScore
from tunerd.lab.evaluation.forecast_scores import ForecastScores
from tunerd.lab.evaluation.importance import PermutationImportance
from tunerd.lab.evaluation.scores import TOP, CalibrationBin

__all__ = ["BacktestReport", "BacktestResult", "Interval", "backtest_schema", "results"]

DRAWS = 2_000
FEWEST = 3
"""Values below which there is no interval."""
TOLD = (
    "kendall_tau",
    "spearman",
    "pearson",
    "mape",
    "coverage",
    "band_width",
    "auc",
    "brier",
    "ece",
    *(f"regret_at.{k}" for k in TOP),
)
"""Figures that come with an interval."""

Interval = tuple[float, float]


class BacktestResult(ForecastScores, frozen=True, kw_only=True):
    """One predictor on one split. Its own figures are those over all jobs together, and so is
    ``overall``: what was left out in turn (fifths, groups) is one prediction."""

    split: Annotated[
        str,
        Meta(
            description="As it was asked for: random, time, group:COLUMN, above:COLUMN=VALUE, "
            "curve."
        ),
    ]
    known: Annotated[str, Meta(description="How much was known, as it was asked for: 80%, 30, 0.")]
    predictor: str
    known_rows: Annotated[float, Meta(description="Jobs known, mean over folds.")]
    repeats: int
    parts: Annotated[int, Meta(description="What was left out in turn: fifths, groups; else 1.")]
    seconds: Annotated[float, Meta(description="Of one fit with its predictions.")]
    overall: ForecastScores
    within_contexts: Annotated[
        ForecastScores,
        Meta(description="Means over contexts: weighted by jobs, regret by contexts."),
    ]
    per_context: Annotated[
        dict[str, ForecastScores], Meta(description="By context key; means over repeats.")
    ]
    intervals: Annotated[
        dict[str, dict[str, Interval]],
        Meta(
            description='95 % intervals of "overall" and "within_contexts", by figure '
            '("regret_at.5").'
        ),
    ]
    calibration: Annotated[
        tuple[CalibrationBin, ...], Meta(description="Of the probability to run.")
    ]


class BacktestReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``tunerd backtest --json`` writes."""

    schema: Literal["tunerd.backtest/1"] = "tunerd.backtest/1"
    tunerd: Annotated[str, Meta(description="Version.")]
    study: str
    study_hash: str
    jobs: Annotated[str, Meta(description="Where the jobs came from.")]
    rows: Annotated[int, Meta(description="Jobs used.")]
    unusable: Annotated[dict[str, int], Meta(description="Rows that could not be used, by reason.")]
    seed: int
    results: tuple[BacktestResult, ...]
    importance: Annotated[
        dict[str, tuple[PermutationImportance, ...]],
        Meta(
            description='By split and predictor ("random boosted_trees"): what the prediction loses'
            " when values are shuffled among the jobs asked for."
        ),
    ]


def backtest_schema() -> dict[str, Any]:
    """JSON Schema of :class:`BacktestReport`. Every field is always there."""
    schema = msgspec.json.schema(BacktestReport)
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
    return schema


def results(verdicts: Iterable[SplitScore], seed: int = 0) -> list[BacktestResult]:
    """Put verdicts together, in the order in which split, amount and predictor first came."""
    cells: dict[tuple[str, str, str], list[SplitScore]] = {}
    for verdict in verdicts:
        name = (verdict.split, verdict.known, verdict.who)
        cells.setdefault(name, []).append(verdict)
    return [_result(cell, seed) for cell in cells.values()]


def _result(cell: Sequence[SplitScore], seed: int) -> BacktestResult:
    repeats = len({v.repeat for v in cell})
    contexts: dict[str, list[_BootstrapUnit]] = {}
    whole = []
    for v in cell:
        whole.append(_BootstrapUnit("", v.repeat, v.judged.overall))
        for key, figures in v.judged.per_context.items():
            contexts.setdefault(key, []).append(_BootstrapUnit(key, v.repeat, figures))
    units = [unit for of_one in contexts.values() for unit in of_one]
    overall, overall_intervals = _told(whole, repeats, seed)
    # Regret is a figure of contexts alone: one mean, however one looks at it.
    within, within_intervals = _told(units, repeats, seed)
    alike = {"contexts": within.contexts, "regret_at": within.regret_at}
    alike |= {"random_regret_at": within.random_regret_at}
    overall = msgspec.structs.replace(overall, **alike)
    regrets = {k: v for k, v in within_intervals.items() if k.startswith("regret_at")}
    return BacktestResult(
        **{name: getattr(overall, name) for name in ForecastScores.__struct_fields__},
        split=cell[0].split,
        known=cell[0].known,
        predictor=cell[0].who,
        known_rows=float(np.mean([v.known_rows for v in cell])),
        repeats=repeats,
        parts=max(v.parts for v in cell),
        seconds=float(np.mean([v.seconds for v in cell])),
        overall=overall,
        within_contexts=within,
        per_context={k: _told(of_one, repeats, None)[0] for k, of_one in contexts.items()},
        intervals={"overall": overall_intervals | regrets, "within_contexts": within_intervals},
        calibration=_calibration([v.judged.calibration for v in cell], repeats),
    )


@dataclass(frozen=True, slots=True)
class _BootstrapUnit:
    """Figures of one context, or of all jobs, in one repeat."""

    of: str
    repeat: int
    figures: ForecastScores


_NUMBERS = (*TOLD[:6], "band", "auc", "brier", "ece", "ran")
_BY_TOP = ("regret_at", "random_regret_at")


def _told(
    units: Sequence[_BootstrapUnit], repeats: int, seed: int | None
) -> tuple[ForecastScores, dict[str, Interval]]:
    """Means over units, and intervals of those in :data:`TOLD` unless ``seed`` is None.

    Weighted by jobs; regrets all alike.
    """
    places = {name: i for i, name in enumerate(dict.fromkeys(u.of for u in units))}
    turns = {repeat: i for i, repeat in enumerate(sorted({u.repeat for u in units}))}
    draws = None if seed is None else _draws(len(places), len(turns), seed)
    intervals: dict[str, Interval] = {}

    def mean(name: str, values: Sequence[float | None], *, alike: bool) -> float | None:
        total = np.zeros((len(places), len(turns)))
        weight = np.zeros_like(total)
        for unit, value in zip(units, values, strict=True):
            if value is not None:
                share = 1.0 if alike else unit.figures.rows
                total[places[unit.of], turns[unit.repeat]] += share * value
                weight[places[unit.of], turns[unit.repeat]] += share
        if not weight.sum():
            return None
        if draws is not None and name in TOLD:
            interval = _interval(total, weight, *draws)
            if interval is not None:
                intervals[name] = interval
        return float(total.sum() / weight.sum())

    numbers = {
        name: mean(name, [getattr(u.figures, name) for u in units], alike=False)
        for name in _NUMBERS
    }
    tops = {
        name: {
            str(k): mean(
                f"{name}.{k}", [getattr(u.figures, name).get(str(k)) for u in units], alike=True
            )
            for k in TOP
        }
        for name in _BY_TOP
    }
    rows = sum(u.figures.rows for u in units) / repeats
    contexts = float(len({u.of for u in units if u.figures.rows}))
    figures = {"rows": rows, "contexts": contexts} | numbers | tops
    return msgspec.convert(figures, ForecastScores), intervals


def _draws(n: int, repeats: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """How often each of n contexts, and each repeat, is drawn: (draws, n) and (draws, repeats)."""
    rng = np.random.default_rng(seed)
    contexts = rng.multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    turns = rng.multinomial(repeats, np.full(repeats, 1 / repeats), size=DRAWS)
    return contexts, turns.astype(np.float64)


def _interval(
    total: FloatArray, weight: FloatArray, contexts: FloatArray, turns: FloatArray
) -> Interval | None:
    """95 % bootstrap interval of a weighted mean; contexts and repeats are drawn independently.
    None for one or two values.

    Percentiles of a bootstrap over few are too narrow ("95 %" holds in 84 % for five). They are
    taken further out for it, which leaves them where they are for many (Hesterberg 2015).
    """
    if np.count_nonzero(weight) < FEWEST:
        return None
    from scipy.stats import norm, t  # a second to import

    n = max(np.count_nonzero(weight.any(axis=1)), np.count_nonzero(weight.any(axis=0)))
    end = float(norm.cdf(-np.sqrt(n / (n - 1)) * t.ppf(0.975, n - 1)))
    totals = np.einsum("dc,cr,dr->d", contexts, total, turns, optimize=True)
    weights = np.einsum("dc,cr,dr->d", contexts, weight, turns, optimize=True)
    drawn = totals[weights > 0] / weights[weights > 0]
    low, high = np.quantile(drawn, [end, 1 - end]).tolist()
    return low, high


def _calibration(
    all_bins: Sequence[Sequence[CalibrationBin]], repeats: int
) -> tuple[CalibrationBin, ...]:
    together: dict[float, list[CalibrationBin]] = {}
    for bins in all_bins:
        for bin_ in bins:
            together.setdefault(bin_.low, []).append(bin_)
    return tuple(
        CalibrationBin(
            low,
            bins[0].high,
            sum(b.rows for b in bins) / repeats,
            sum(b.rows * b.said for b in bins) / sum(b.rows for b in bins),
            sum(b.rows * b.ran for b in bins) / sum(b.rows for b in bins),
        )
        for low, bins in sorted(together.items())
    )
