"""The plot of ``tunerd explain``, on explanations made up for the purpose."""

import re
from html import unescape
from io import BytesIO

import pytest
from matplotlib import rc_context
from matplotlib.colors import to_hex

from tests.cli.explained import of_one, overall
from tunerd.cli.explain_plot import drawn
from tunerd.cli.explanation import Explanation


def test_the_legend_has_the_colours_of_the_bars() -> None:
    groups = ("parameter", "context", "lookup", "derived")
    matters = [(f"its {group}", group, 0.4 - i / 10) for i, group in enumerate(groups)]
    (axes,) = drawn(overall(matters=matters)).axes
    bars = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    legend = axes.get_legend()
    assert legend is not None
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
    assert any(name in text for text in texts if "team" not in text)


def written(made: Explanation) -> list[str]:
    """What is to be read in the plot."""
    file = BytesIO()
    with rc_context({"svg.fonttype": "none"}):
        drawn(made).savefig(file, format="svg")
    return [
        unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", file.getvalue().decode())
    ]
