"""95 % intervals, and what they allow to say.

Over seeds: Student's. Over jobs of a table: a bootstrap that draws the jobs asked about, and the
draws of known jobs, again; the same ones for everybody, so that differences are paired. Another
table would scatter more than that: an interval speaks of its own table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tunerd.core import scores
from tunerd.core.arrays import FloatArray

__all__ = ["CORRELATIONS", "Answers", "Interval", "compared", "correlations", "interval", "verdict"]

CORRELATIONS = ("tau", "r", "rho", "r_log")
"""Kendall's τ, Pearson's r of the metric as it is measured, Spearman's ρ, and r of its score, a
logarithm where the study compares by ratios."""
MOST_ROWS = 1_500
"""Jobs of one fold that are looked at: pairs grow with their square."""

Interval = tuple[float, float, float]
"""Mean, low end, high end."""


def interval(values: Sequence[float]) -> Interval:
    """Student's 95 % interval of a mean; open for a single value."""
    there = [value for value in values if math.isfinite(value)]
    mean = float(np.mean(there)) if there else math.nan
    if len(there) < 2:
        return mean, -math.inf, math.inf
    reach = stats.t.ppf(0.975, len(there) - 1) * np.std(there, ddof=1) / math.sqrt(len(there))
    return mean, mean - float(reach), mean + float(reach)


def correlations(
    told: FloatArray, actual: FloatArray, metric: Callable[[FloatArray], FloatArray]
) -> dict[str, float]:
    """All of :data:`CORRELATIONS` of (n,) scores; 0 for a prediction that says the same of all."""
    found = {
        "tau": scores.kendall(told, actual),
        "r": scores.pearson(metric(told), metric(actual)),
        "rho": scores.spearman(told, actual),
        "r_log": scores.pearson(told, actual),
    }
    return {name: float(np.nan_to_num(value)) for name, value in found.items()}


def verdict(low: float, high: float) -> str:
    """What the interval of a lead allows to say."""
    return "ahead" if low > 0 else "behind" if high < 0 else "level"


@dataclass(frozen=True)
class Answers:
    """One fold: what came, and what each predictor had said."""

    actual: FloatArray
    """(n,) scores."""
    told: Mapping[str, FloatArray]
    metric: Callable[[FloatArray], FloatArray]
    """Scores to the metric as it is measured."""


def compared(folds: Sequence[Answers], ours: Sequence[str], draws: int) -> dict[str, object]:
    """Correlations of each predictor, and the lead of ours over every other one.

    Returns ``{"figures": {who: {figure: interval}}, "leads": {ours: {theirs: {figure: [mean, low,
    high, p that it is not behind]}}}}``; means over folds.
    """
    rng = np.random.default_rng(0)
    names = list(folds[0].told)
    prepared = [_Fold(fold, names, rng) for fold in folds]
    mean = np.mean([one.scores(np.ones((1, one.rows)))[0] for one in prepared], axis=0)
    drawn = np.array([one.scores(one.counts(draws, rng)) for one in prepared])
    weights = rng.multinomial(len(folds), np.full(len(folds), 1 / len(folds)), size=draws)
    # (draws, predictors, figures): folds drawn again as well
    spread = np.einsum("fdpc,df->dpc", drawn, weights / len(folds))
    figures = {
        who: {
            figure: [float(mean[i, k]), *np.quantile(spread[:, i, k], [0.025, 0.975]).tolist()]
            for k, figure in enumerate(CORRELATIONS)
        }
        for i, who in enumerate(names)
    }
    leads: dict[str, dict[str, dict[str, list[float]]]] = {}
    for mine in ours:
        i = names.index(mine)
        for j, other in enumerate(names):
            if other != mine:
                leads.setdefault(mine, {})[other] = {
                    figure: _lead(mean[i, k] - mean[j, k], spread[:, i, k] - spread[:, j, k])
                    for k, figure in enumerate(CORRELATIONS)
                }
    return {"figures": figures, "leads": leads, "folds": len(folds)}


def _lead(mean: float, spread: FloatArray) -> list[float]:
    low, high = np.quantile(spread, [0.025, 0.975]).tolist()
    sd = float(spread.std())
    behind = float(stats.norm.cdf(mean / sd)) if sd > 0 else float(mean >= 0)
    return [float(mean), low, high, behind]


class _Fold:
    """One fold, laid out so that jobs can be drawn again cheaply."""

    def __init__(self, fold: Answers, names: Sequence[str], rng: np.random.Generator) -> None:
        some = np.sort(rng.permutation(len(fold.actual))[:MOST_ROWS])
        actual = fold.actual[some]
        told = [np.asarray(fold.told[name], np.float64)[some] for name in names]
        self.rows = len(some)
        self._values = [(fold.metric(x), fold.metric(actual)) for x in told]
        self._scores = [(x, actual) for x in told]
        self._ranks = [(scores.ranks(x), scores.ranks(actual)) for x in told]
        order = _signs(actual)
        self._pairs = [(_signs(x) * order, np.abs(_signs(x)), np.abs(order)) for x in told]

    def counts(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """(draws, rows) how often each job was drawn."""
        drawn = rng.multinomial(self.rows, np.full(self.rows, 1 / self.rows), size=draws)
        return drawn.astype(np.float64)

    def scores(self, weights: FloatArray) -> FloatArray:
        """(draws, predictors, 4): correlations of weighted jobs."""
        found = np.empty((len(weights), len(self._values), len(CORRELATIONS)))
        for i in range(len(self._values)):
            same, differ, truly = (_quadratic(weights, one) for one in self._pairs[i])
            size = np.sqrt(differ * truly)
            found[:, i, 0] = np.divide(same, size, out=np.zeros_like(size), where=size > 0)
            found[:, i, 1] = _pearson(weights, *self._values[i])
            found[:, i, 2] = _pearson(weights, *self._ranks[i])
            found[:, i, 3] = _pearson(weights, *self._scores[i])
        return found


def _signs(values: FloatArray) -> FloatArray:
    signs: FloatArray = np.sign(values[:, None] - values[None, :]).astype(np.float32)
    return signs


def _quadratic(weights: FloatArray, pairs: FloatArray) -> FloatArray:
    w = weights.astype(np.float32)
    total: FloatArray = np.einsum("dn,dn->d", w @ pairs, w).astype(np.float64)
    return total


def _pearson(weights: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    w = weights / weights.sum(axis=1, keepdims=True)
    a = x[None, :] - (w @ x)[:, None]
    b = y[None, :] - (w @ y)[:, None]
    size = np.sqrt((w * a * a).sum(axis=1) * (w * b * b).sum(axis=1))
    found: FloatArray = np.divide(
        (w * a * b).sum(axis=1), size, out=np.zeros(len(w)), where=size > 0
    )
    return found
