"""The plot of ``tunerd explain``: bars, the most important first."""

from typing import TYPE_CHECKING

from tunerd.cli.explain_view import AGAINST, plain
from tunerd.cli.explanation import Explained, Explanation, Overall

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
MOST_BARS = 30
MOST_PANELS = 6
WIDTH, BAR, REST = 8.0, 0.28, 1.3
"""Inches."""


def drawn(made: Explanation) -> "Figure":
    """A figure; whoever asks for it saves it."""
    if made.overall is not None:
        figure, (axes,) = _panels([len(made.overall.matters[:MOST_BARS])])
        _overall(axes, made, made.overall)
        return figure
    told = made.recommendation
    assert told is not None
    shown = told.candidates[:MOST_PANELS]
    figure, panels = _panels([len(one.changes[:MOST_BARS]) for one in shown] or [1])
    for axes, one in zip(panels, shown, strict=False):
        _candidate(axes, one, AGAINST[told.against])
    if not shown:
        panels[0].text(0.5, 0.5, "no candidates", ha="center")
    title = f"{_literal(made.study)}: {told.recommendation_id}\n{_literal(told.context_key)}"
    figure.suptitle(title, fontsize=10)
    return figure


def _overall(axes: "Axes", made: Explanation, overall: Overall) -> None:
    from matplotlib.patches import Patch

    bars = overall.matters[:MOST_BARS]
    axes.barh(
        [_literal(one.name) for one in bars],
        [one.importance for one in bars],
        height=0.7,
        color=[COLOURS[one.group] for one in bars],
    )
    axes.invert_yaxis()
    what = "rise of the error when shuffled" if overall.method == "permutation" else "mean |SHAP|"
    axes.set_xlabel(f"{what}, score units" + (" (0.1 is about 10 %)" if made.ratios else ""))
    axes.set_title(
        f"{_literal(made.study)}: what {_literal(made.metric)} depends on\n"
        f"{made.model.predictor} after {made.model.jobs:,} jobs, asked over {overall.jobs:,}",
        fontsize=10,
    )
    groups = dict.fromkeys(one.group for one in bars)
    patches = [Patch(color=COLOURS[group], label=group) for group in groups]
    axes.legend(handles=patches, frameon=False, fontsize=8, loc="lower right")


def _candidate(axes: "Axes", one: Explained, against: str) -> None:
    bars = one.changes[:MOST_BARS]
    axes.barh(
        [_literal(change.parameter) for change in bars],
        [100 * change.gain for change in bars],
        height=0.7,
        color=[BETTER if change.gain > 0 else WORSE for change in bars],
    )
    axes.invert_yaxis()
    axes.axvline(0, color="#424242", lw=0.8)
    axes.set_xlabel(f"what it adds to the predicted gain over {against}, %")
    axes.set_title(
        f"{one.rank}. {one.kind}: {one.gain:+.1%} predicted, runs with {one.feasible:.0%}",
        fontsize=9,
        loc="left",
    )


def _panels(bars: list[int]) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure  # without pyplot: nothing global, no window

    heights = [REST + BAR * max(count, 1) for count in bars]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(bars), 1, squeeze=False, height_ratios=heights).flat
    found = list(panels)
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
    return figure, found


def _literal(text: str) -> str:
    """A name as it is: what stands between two dollars matplotlib takes for a formula."""
    return plain(text).replace("$", r"\$")
