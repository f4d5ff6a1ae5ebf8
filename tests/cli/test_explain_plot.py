"""The plot of ``tunerd explain``, on explanations made up for the purpose."""

import re
from html import unescape
from io import BytesIO
from math import expm1

import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tests.cli.explained import of_one, overall
from tunerd.cli.explain_plot import drawn
from tunerd.queries.explanation import StudyExplanation


def test_the_legend_has_the_colours_of_the_bars() -> None:
    groups = ("parameter", "context", "lookup", "derived")
    matters = [(f"its {group}", group, 0.4 - i / 10) for i, group in enumerate(groups)]
    figure = drawn(overall(matters=matters))
    (axes,), (legend,) = figure.axes, figure.legends
    bars = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert tuple(text.get_text() for text in legend.get_texts()) == groups
    assert [to_hex(one.get_facecolor()) for one in legend.legend_handles] == bars  # type: ignore[union-attr]
    assert len(set(bars)) == len(groups)


@pytest.mark.parametrize("name", ["cost_$_per_$token", "$x$", "a\\$b$c", "\\frac{$}$"])
def test_dollars_in_names_are_dollars(name: str) -> None:
    """matplotlib takes what stands between two of them for a formula, and most are none."""
    made = overall(matters=[(name, "parameter", 0.1)], study=name, metric=name)
    texts = written(made)
    assert name in texts
    assert f"{name}: what {name} depends on" in texts
    texts = written(of_one([(name, "a", "b", 0.02)], context_key=f"toy|team={name}"))
    assert f"toy|team={name}" in texts
    assert f"{name}: a → b" in texts


def test_of_a_long_list_the_rest_is_drawn_together() -> None:
    made = overall(matters=[(f"p{i}", "parameter", 0.5 - i / 200) for i in range(53)])
    (axes,) = drawn(made).axes
    assert [text.get_text() for text in axes.get_yticklabels()][-1] == "and 23 more, together"
    assert len(axes.patches) == 31
    rest = sum(0.5 - i / 200 for i in range(30, 53))
    assert lengths(axes)[-1] == pytest.approx(rest)


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_of_many_changes_the_rest_is_drawn_together(goal: str) -> None:
    made = of_one([(f"p{i}", 1, 2, 0.01) for i in range(33)], candidates=8, goal=goal)
    figure = drawn(made)
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert axes.get_yticklabels()[-1].get_text() == "and 3 more, together"
        gain = expm1(0.03) if goal == "maximize" else -expm1(-0.03)
        assert lengths(axes)[-1] == pytest.approx(100 * gain)
    assert "and 2 more candidates: the tables have all" in written(made)


@pytest.mark.slow
def test_where_nothing_is_a_share_bars_are_in_the_unit() -> None:
    changes = [(f"p{i}", 1, 2, 0.5) for i in range(32)]
    made = of_one(changes, shares=False, ratios=False, unit="$/h")
    (axes,) = drawn(made).axes
    assert lengths(axes) == [0.5] * 30 + [1.0]
    assert "adds to the predicted gain, $/h" in written(made)
    assert "1. exploit: +16 $/h predicted, runs with 90%" in written(made)


LONG = "checkpointing_of_the_activations_of_every_transformer_layer_{}_of_them"


@pytest.mark.slow
def test_nothing_is_cut_at_the_edge() -> None:
    study, metric = "all-the-teams-" * 6, "tokens_per_second_and_gpu_" * 5
    names = [LONG.format(i) for i in range(40)]
    matters = [(name, "parameter", 0.4 - i / 100) for i, name in enumerate(names)]
    changes = [(name, ["FULL_SHARD", "NO_SHARD"] * 8, ["A", "B"] * 30, 0.1) for name in names]
    key = "toy|" + "|".join(f"{name}=1" for name in names[:5])
    for made in (
        overall(matters=matters, study=study, metric=metric),
        of_one(changes, candidates=2, against="random", context_key=key),
    ):
        figure = drawn(made)
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert (box.x0 >= 0, box.x1 <= width) == (True, True)
        assert (box.y0 >= 0, box.y1 <= height) == (True, True)
        for axes in figure.axes:
            labels = [text.get_text() for text in axes.get_yticklabels()]
            assert len(set(labels)) == len(labels)
            assert axes.get_window_extent().width > 0.5 * figure.bbox.width


def lengths(axes: Axes) -> list[float]:
    return [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]


def written(made: StudyExplanation) -> list[str]:
    """What is to be read in the plot."""
    file = BytesIO()
    with rc_context({"svg.fonttype": "none"}):
        drawn(made).savefig(file, format="svg")
    return [
        unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", file.getvalue().decode())
    ]
