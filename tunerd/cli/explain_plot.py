"""The plot of ``tunerd explain``: bars, the most important first."""

from collections.abc import Sequence
from math import expm1
from textwrap import wrap
from typing import TYPE_CHECKING

from tunerd.cli.explain_view import AGAINST, change_text, gain_text
from tunerd.events.printable import printable
from tunerd.queries.explanation import (
    CandidateExplanation,
    GlobalExplanation,
    ParameterContribution,
    RecommendationExplanation,
    StudyExplanation,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["drawn"]

COLOURS = {
    "parameter": "#1565c0",
    "context": "#ef6c00",
    "lookup": "#6a1b9a",
    "derived": "#2e7d32",
}
BETTER, WORSE = "#2e7d32", "#c62828"
THE_REST = "#9e9e9e"
MOST_BARS = 30
MOST_PANELS = 6
WIDTH, BAR, LINE, REST = 8.0, 0.28, 0.18, 1.0
"""Inches."""
LABEL, TITLE = 44, 88
"""Characters that have room beside the bars, and in a line above them."""


def drawn(made: StudyExplanation) -> "Figure":
    """A figure; whoever asks for it saves it."""
    if made.overall is not None:
        return _overall(made, made.overall)
    assert made.recommendation is not None
    return _recommendation(made, made.recommendation)


def _overall(made: StudyExplanation, overall: GlobalExplanation) -> "Figure":
    from matplotlib.patches import Patch

    bars, others = overall.matters[:MOST_BARS], overall.matters[MOST_BARS:]
    title = [
        f"{made.study}: what {made.metric} depends on",
        f"{made.model.predictor} after {made.model.jobs:,} jobs, asked over {overall.jobs:,}",
    ]
    figure, (axes,) = _panels(title, [len(bars) + bool(others)])
    labels = [_literal(_cut(bar.name)) for bar in bars]
    values = [bar.importance for bar in bars]
    colours = [COLOURS[bar.group] for bar in bars]
    if others:
        labels.append(f"and {len(others):,} more, together")
        values.append(sum(bar.importance for bar in others))
        colours.append(THE_REST)
    _bars(axes, labels, values, colours)
    what = "rise of the error when shuffled" if overall.method == "permutation" else "mean |SHAP|"
    ratio = "; 0.1 is about 10 %" if made.ratios else ""
    axes.set_xlabel(f"{what}\n(score units{ratio})", fontsize=9)
    groups = dict.fromkeys(bar.group for bar in bars)
    patches = [Patch(color=COLOURS[group], label=group) for group in groups]
    figure.legend(
        handles=patches, frameon=False, fontsize=8, loc="outside lower right", ncols=len(COLOURS)
    )
    return figure


def _recommendation(made: StudyExplanation, told: RecommendationExplanation) -> "Figure":
    shown = told.candidates[:MOST_PANELS]
    title = [
        f"{made.study}: {told.recommendation_id}, against {AGAINST[told.against]}",
        told.context_key,
    ]
    counts = [min(len(candidate.changes), MOST_BARS + 1) for candidate in shown]
    figure, panels = _panels(title, counts or [1])
    for axes, candidate in zip(panels, shown, strict=False):
        _candidate(axes, made, candidate)
    if not shown:
        panels[0].text(0.5, 0.5, "no candidates", ha="center")
    if more := len(told.candidates) - len(shown):
        noun = "candidate" if more == 1 else "candidates"
        figure.supxlabel(f"and {more:,} more {noun}: the tables have all", fontsize=9)
    return figure


def _candidate(axes: "Axes", made: StudyExplanation, one: CandidateExplanation) -> None:
    bars, others = one.changes[:MOST_BARS], one.changes[MOST_BARS:]
    labels = [_literal(_change(change)) for change in bars]
    gains = [_length(change) for change in bars]
    if others:
        labels.append(f"and {len(others):,} more, together")
        gains.append(_together(made, others))
    _bars(axes, labels, gains, [BETTER if x > 0 else WORSE for x in gains])
    axes.axvline(0, color="#424242", lw=0.8)
    unit = "%" if one.gain is not None else _literal(printable(made.unit))
    axes.set_xlabel(f"adds to the predicted gain, {unit}".removesuffix(", "), fontsize=9)
    axes.set_title(
        _literal(
            f"{one.rank}. {one.kind}: {gain_text(made, one)} predicted,"
            f" runs with {one.feasible:.0%}"
        ),
        fontsize=9,
        loc="left",
    )


def _together(made: StudyExplanation, changes: Sequence[ParameterContribution]) -> float:
    """How long the bar of several changes is: what adds up are scores, which may be logarithms."""
    if not made.ratios:
        return sum(map(_length, changes))
    sign = 1 if made.goal == "maximize" else -1
    return 100 * sign * expm1(sign * sum(change.score for change in changes))


def _length(one: ParameterContribution) -> float:
    """How long a change's bar is: in per cent, or else in the objective's unit."""
    return one.score if one.gain is None else 100 * one.gain


def _bars(
    axes: "Axes", labels: Sequence[str], values: Sequence[float], colours: Sequence[str]
) -> None:
    """The first one uppermost. By place, since what is cut may be called the same."""
    places = range(len(labels))
    axes.barh(places, values, height=0.7, color=colours)
    axes.set_yticks(places, labels, fontsize=8)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)


def _panels(title: Sequence[str], bars: Sequence[int]) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure  # without pyplot: nothing global, no window

    lines = [part for line in title for part in wrap(printable(line), TITLE) or [""]]
    heights = [REST + BAR * max(count, 1) for count in bars]
    height = sum(heights) + LINE * len(lines) + 0.3
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(_literal("\n".join(lines)), fontsize=10)
    panels = figure.subplots(len(bars), 1, squeeze=False, height_ratios=heights).flat
    flat = list(panels)
    for axes in flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
    return figure, flat


def _change(one: ParameterContribution) -> str:
    """What is changed, on a second line where the name leaves no room for it."""
    text = printable(change_text(one))
    if len(text) <= LABEL:
        return text
    name = printable(one.parameter)
    return f"{_cut(name)}\n{_cut(text[len(name) :].removeprefix(':').strip())}"


def _cut(text: str) -> str:
    """What has room, from both ends: names often differ at the last letter."""
    text = printable(text)
    if len(text) <= LABEL:
        return text
    return f"{text[: LABEL // 2]}…{text[1 - LABEL // 2 :]}"


def _literal(text: str) -> str:
    """A name as it is: what stands between two dollars matplotlib takes for a formula."""
    return text.replace("$", r"\$")
