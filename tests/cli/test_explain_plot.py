"""The plot of ``tunerd explain``, on explanations made up for the purpose."""

from matplotlib.colors import to_hex

from tests.cli.explained import overall
from tunerd.cli.explain_plot import drawn


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
