"""Pictures of a backtest: what was predicted beside what happened, and how that depends on how
much was known (the paper's Figures 2b, 3 and 4: arXiv 2409.04585).

Every function returns a matplotlib figure and writes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.study import Study
from tunerd.lab.evaluation.backtest import SplitScore
from tunerd.lab.evaluation.forecast_scores import GroundTruth
from tunerd.lab.evaluation.importance import GROUPS, PermutationImportance
from tunerd.lab.evaluation.results import BacktestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MOST_PANELS", "amounts", "importances", "predicted", "reliabilities"]

COLOURS = ("#1565c0", "#ef6c00", "#2e7d32", "#6a1b9a", "#c62828", "#00838f", "#616161", "#9e9d24")
ANY_PREDICTION_IS = 1e-3
"""Share of predictions at either end that the axes may cut off."""
MOST_COLUMNS = 20
MOST_PANELS = 12
PANEL = 4.2
"""Inches."""


def predicted(study: Study, truth: GroundTruth, verdicts: Sequence[SplitScore]) -> "Figure":
    """Predicted against actual, one panel for each verdict: the jobs asked for in one repeat.

    Contexts have colours, so that one sees whether ranks are right within them.
    """
    figure, panels = _panels(len(verdicts))
    for axes, verdict in zip(panels, verdicts, strict=True):
        scored = np.isfinite(truth.score[verdict.where])
        where = verdict.where[scored]
        actual = _metric(study, truth.score[where])
        predicted = _metric(study, verdict.foretold.score[scored])
        of = [truth.keys[i] for i in where.tolist()]
        places = {key: i for i, key in enumerate(dict.fromkeys(of))}
        colours = [COLOURS[places[key] % len(COLOURS)] for key in of]
        axes.scatter(actual, predicted, s=7, c=colours, alpha=0.45, linewidths=0, rasterized=True)
        ends = _ends(np.concatenate([actual, predicted]))
        axes.plot(ends, ends, color="#424242", lw=1)
        axes.set(xlim=ends, ylim=ends)
        if study.objective.scale == "log":
            axes.set(xscale="log", yscale="log")
            if ends[1] < 10 * ends[0]:
                _few_ticks(axes)
        judged = verdict.judged
        axes.set_title(
            f"{verdict.who}, {verdict.split}, {verdict.known} known\n"
            f"τ {_said(judged.overall.kendall_tau)}, "
            f"in contexts {_said(judged.within.kendall_tau)};"
            f" r {_said(judged.overall.pearson)}",
            fontsize=9,
        )
        axes.set_xlabel(f"actual {study.objective.metric} {_unit(study)}")
        axes.set_ylabel("predicted")
    return figure


def _few_ticks(axes: "Axes") -> None:
    """Within a factor of ten matplotlib writes every tick as 2.25 × 10⁴, one over the other."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_locator(NullLocator())


def amounts(split: str, results: Sequence[BacktestResult]) -> "Figure":
    """τ within contexts and regret of the best of five by the number of jobs known, with 95 %
    intervals: a learning curve, or what a few jobs of the target are worth."""
    figure, (tau, regret) = _panels(2)
    known = list(dict.fromkeys(r.known for r in results))
    numbers = [float(np.mean([r.known_rows for r in results if r.known == size])) for size in known]
    spread = split in ("curve", "random")
    for i, who in enumerate(dict.fromkeys(r.predictor for r in results)):
        mine = [r for r in results if r.predictor == who]
        xs = [numbers[known.index(r.known)] if spread else known.index(r.known) for r in mine]
        colour = COLOURS[i % len(COLOURS)]
        _line(tau, xs, mine, "kendall_tau", who, colour)
        _line(regret, xs, mine, "regret_at.5", who, colour, 100.0)
    random = [r.random_regret_at["5"] for r in results if r.predictor == results[0].predictor]
    if all(value is not None for value in random):
        xs = numbers if spread else list(range(len(known)))
        regret.plot(
            xs, [100 * (v or 0) for v in random], color="#9e9e9e", ls="--", label="random order"
        )
    after = [*numbers[1:], np.inf]
    named = [
        # "150" and "80 %" of 187 would stand on one another.
        "" if spread and next_ < 1.2 * number else size
        for size, number, next_ in zip(known, numbers, after, strict=True)
    ]
    for axes in (tau, regret):
        if spread:
            axes.set_xscale("log")
        axes.set_xticks(numbers if spread else range(len(known)), named)
        axes.minorticks_off()
        axes.set_xlabel("jobs known" if spread else f"known ({split})")
    tau.set_ylabel("Kendall τ within contexts")
    regret.set_ylabel("regret of the best of five, %")
    regret.set_ylim(bottom=0)
    for axes in (tau, regret):
        if spread:
            axes.set_xlim(min(numbers) / 1.1, max(numbers) * 1.1)
        if any(np.isfinite(line.get_ydata()).any() for line in axes.lines):
            axes.legend(frameon=False, fontsize=8)
        else:
            axes.set_yticks([])
            says = "too few jobs in each context to tell"
            axes.text(0.5, 0.5, says, transform=axes.transAxes, ha="center", fontsize=9)
    figure.suptitle(split, fontsize=10)
    return figure


def reliabilities(results: Sequence[BacktestResult]) -> "Figure":
    """Share that ran by the probability to run that was said."""
    figure, (axes,) = _panels(1)
    axes.plot([0, 1], [0, 1], color="#424242", lw=1)
    for i, result in enumerate(results):
        bins = result.calibration
        label = f"{result.predictor}, {result.known} known (AUC {_said(result.auc)})"
        colour = COLOURS[i % len(COLOURS)]
        axes.plot([b.said for b in bins], [b.ran for b in bins], color=colour, lw=1, label=label)
        sizes = [10 + 60 * b.rows / max(x.rows for x in bins) for b in bins]
        axes.scatter([b.said for b in bins], [b.ran for b in bins], s=sizes, color=colour)
    axes.set(xlabel="probability to run, as said", ylabel="share that ran")
    axes.legend(frameon=False, fontsize=8)
    return figure


def importances(found: Mapping[str, Sequence[PermutationImportance]]) -> "Figure":
    """What predictions lose by shuffled values: groups dark, their columns light below them."""
    figure, panels = _panels(len(found))
    for axes, (title, listed) in zip(panels, found.items(), strict=True):
        groups = sorted((i for i in listed if i.column is None), key=lambda i: -i.error)
        columns = sorted((i for i in listed if i.column is not None), key=lambda i: -i.error)
        bars = [*groups, *columns[:MOST_COLUMNS]]
        colours = [_shade(bar) for bar in bars]
        names = [bar.name for bar in bars]
        axes.barh(range(len(bars)), [bar.error for bar in bars], color=colours)
        axes.set_yticks(range(len(bars)), names, fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel("rise of the mean error when shuffled (score units)")
        axes.set_title(title, fontsize=9)
    return figure


def _shade(one: PermutationImportance) -> tuple[float, float, float, float]:
    from matplotlib.colors import to_rgba

    r, g, b, _ = to_rgba(COLOURS[list(GROUPS).index(one.group)])
    return (r, g, b, 1.0 if one.column is None else 0.45)


def _line(
    axes: "Axes",
    xs: Sequence[float],
    mine: Sequence[BacktestResult],
    name: str,
    label: str,
    colour: str,
    factor: float = 1.0,
) -> None:
    values, lows, highs = [], [], []
    for result in mine:
        field, _, k = name.partition(".")
        value = getattr(result.within_contexts, field)
        value = value[k] if k else value
        number = float("nan") if value is None else value
        low, high = result.intervals["within_contexts"].get(name, (number, number))
        values.append(factor * number)
        lows.append(factor * low)
        highs.append(factor * high)
    axes.plot(xs, values, color=colour, marker="o", ms=4, lw=1.5, label=label)
    axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, lw=0)


def _panels(count: int) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure  # without pyplot: nothing global, no window

    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(PANEL * columns + 0.6, PANEL * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.remove()
    for axes in panels[:count]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, panels[:count]


def _metric(study: Study, scores: FloatArray) -> FloatArray:
    return np.array([study.metric_value(float(score)) for score in scores])


def _ends(values: FloatArray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [ANY_PREDICTION_IS, 1 - ANY_PREDICTION_IS]).tolist()
    return (low, high) if high > low else (low - 1.0, low + 1.0)


def _said(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _unit(study: Study) -> str:
    return f"({study.objective.unit})" if study.objective.unit else ""
