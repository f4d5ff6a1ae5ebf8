"""What a backtest found, as tables in the terminal: figures down, predictors across."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tunerd.core.study import Study
from tunerd.lab.evaluation.importance import PermutationImportance
from tunerd.lab.evaluation.results import BacktestResult
from tunerd.lab.evaluation.scores import TOP

__all__ = ["show"]

LABEL, CELL = 24, 22
"""Characters of the first column and of a result's: as many results stand side by side as fit."""
MOST_COLUMNS = 10

_FIGURES = (
    ("Kendall τ in contexts", "within_contexts", "kendall_tau"),
    ("Spearman in contexts", "within_contexts", "spearman"),
    ("Kendall τ over all", "overall", "kendall_tau"),
    ("Spearman over all", "overall", "spearman"),
    ("Pearson over all", "overall", "pearson"),
    ("mean error (MAPE)", "overall", "mape"),
)
_RUNS = (
    ("chance to run: AUC", "overall", "auc"),
    ("… Brier score", "overall", "brier"),
    ("… calibration error", "overall", "ece"),
)


def show(
    study: Study,
    found: Sequence[BacktestResult],
    important: Mapping[str, Sequence[PermutationImportance]],
) -> None:
    """Print everything."""
    console = Console(highlight=False)
    across = max((console.width - LABEL) // CELL, 1)
    for split in dict.fromkeys(result.split for result in found):
        mine = [result for result in found if result.split == split]
        for start in range(0, len(mine), across):
            console.print(_table(study, split, mine[start : start + across]))
    for title, listed in important.items():
        if listed:
            console.print(_importance(title, listed))
    console.print(
        "In brackets 95 % intervals over contexts and repeats. Regret: how far the best of the"
        " first k by prediction is from the best measured in its context.",
        style="dim",
    )


def _table(study: Study, split: str, results: Sequence[BacktestResult]) -> Table:
    table = Table(title=f"{study.name}: {split}", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(f"{result.predictor}\n{result.known} known", justify="right")
    table.add_row("jobs known", *(f"{r.known_rows:,.0f}" for r in results))
    table.add_row("jobs asked about", *(f"{r.rows:,.0f}" for r in results))
    table.add_row("in contexts", *(f"{r.contexts:,.0f}" for r in results))
    for name, part, figure in _FIGURES:
        table.add_row(name, *(_cell(r, part, figure) for r in results))
    for k in TOP:
        cells = [_cell(r, "within_contexts", f"regret_at.{k}") for r in results]
        table.add_row(f"regret, best of {k}", *cells)
    for k in TOP:
        random = [_percent(r.random_regret_at[str(k)]) for r in results]
        table.add_row(f"… at random, of {k}", *random, style="dim")
    bands = {f"{r.band:.0%} " for r in results if r.band is not None}
    band = f"{bands.pop() if len(bands) == 1 else ''}band"
    table.add_row(f"inside the {band}", *(_cell(r, "overall", "coverage") for r in results))
    table.add_row("… its width", *(_cell(r, "overall", "band_width") for r in results))
    if any(r.auc is not None for r in results):
        table.add_row("ran", *(_percent(r.ran) for r in results))
        for name, part, figure in _RUNS:
            table.add_row(name, *(_cell(r, part, figure) for r in results))
    table.add_row("one fit", *(f"{r.seconds:.2f} s" for r in results))
    return table


def _cell(result: BacktestResult, part: str, figure: str) -> str:
    field, _, k = figure.partition(".")
    value = getattr(getattr(result, part), field)
    value = value[k] if k else value
    if value is None:
        return "n/a"
    percent = field in ("mape", "regret_at", "coverage")
    show = _as_percent if percent else _as_number
    interval = result.intervals[part].get(figure)
    ends = f" ({show(interval[0])}…{show(interval[1])})" if interval else ""
    return f"{show(value)}{' %' if percent else ''}{ends}"


def _as_number(value: float) -> str:
    return f"{value:.3f}"


def _as_percent(value: float) -> str:
    return f"{100 * value:.1f}" if abs(value) < 10 else f"{100 * value:.0f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # no -0.000


def _importance(title: str, listed: Sequence[PermutationImportance]) -> Table:
    """Groups, then the columns that matter most."""
    table = Table(
        title=f"What predictions lose when values are shuffled: {title}",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("")
    for name in ("mean error", "τ over all", "τ in contexts"):
        table.add_column(name, justify="right")
    groups = [importance for importance in listed if importance.column is None]
    columns = sorted(
        (importance for importance in listed if importance.column is not None),
        key=lambda i: -i.error,
    )
    for importance in [*groups, *columns[:MOST_COLUMNS]]:
        within = importance.kendall_tau_within
        table.add_row(
            importance.name if importance.column is None else f"  {importance.name}",
            _signed(importance.error),
            _signed(-importance.kendall_tau),
            "n/a" if within is None else _signed(-within),
        )
    if len(columns) > MOST_COLUMNS:
        table.caption = f"… and {len(columns) - MOST_COLUMNS} more columns"
    return table
