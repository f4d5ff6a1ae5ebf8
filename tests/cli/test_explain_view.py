"""The tables of ``tunerd explain``, on explanations made up for the purpose."""

from io import StringIO

from rich.console import Console

from tests.cli.explained import of_one, overall
from tunerd.cli.explain_view import show
from tunerd.queries.explanation import PrequentialAccuracy, StudyExplanation


def shown(made: StudyExplanation) -> str:
    """On one line, as a terminal has it."""
    out = StringIO()
    show(made, Console(file=out, width=100, force_terminal=True, color_system=None))
    return " ".join(out.getvalue().split())


def test_of_a_long_list_the_rest_is_said_together() -> None:
    matters = [(f"p{i}", "parameter", 0.1 if i < 40 else 0.01) for i in range(63)]
    text = shown(overall(matters=matters, ratios=False))
    assert "p39 parameter" in text
    assert "p40" not in text
    assert "and 23 more together 0.23 5%" in text
    assert "together" not in shown(overall(matters=matters[:40]))


def test_what_is_known_of_new_jobs_is_said() -> None:
    matters = [("x", "parameter", 0.1)]

    def said(beforehand: PrequentialAccuracy | None) -> str:
        return shown(overall(matters=matters, kendall_tau=0.6, beforehand=beforehand))

    assert "new ones nobody knows yet" in said(None)
    good = said(PrequentialAccuracy(jobs=240, kendall_tau=0.4, imported=False))
    assert "On the latest 240 jobs, predicted before they were learned, τ is 0.400." in good
    noise = said(PrequentialAccuracy(jobs=240, kendall_tau=-0.026, imported=True))
    assert "240 imported jobs" in noise
    assert "τ is −0.026: chance would do as well" in noise


def test_where_nothing_is_a_share_gains_are_in_the_unit() -> None:
    text = shown(of_one([("x", 1, 2, 0.5), ("y", 1, 2, -0.02)], shares=False, ratios=False))
    assert "+0.48 1/s against the incumbent by the model alone" in text
    assert "x: 1 → 2 +0.5 1/s" in text
    assert "y: 1 → 2 −0.02 1/s" in text


def test_names_and_values_are_no_markup() -> None:
    """rich took what stands in brackets for a style, and some of it for a mistake."""
    assert "x[/red] parameter" in shown(overall(matters=[("x[/red]", "parameter", 0.1)]))
    assert "x: [/a] → [bold]" in shown(of_one([("x", "[/a]", "[bold]", 0.02)]))


def test_names_stay_whole_where_it_is_narrow() -> None:
    names = ["gradient_accumulation_steps", "micro_batch"]
    out = StringIO()
    made = overall(matters=[(name, "parameter", 0.1) for name in names])
    show(made, Console(file=out, width=80, force_terminal=True, color_system=None))
    rows = [line for line in out.getvalue().splitlines() if " parameter " in line]
    assert [row.split()[0] for row in rows] == names
    assert all("█" in row for row in rows)
