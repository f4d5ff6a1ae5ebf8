"""Regret curves with bands, as pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunerd.lab.evaluation.loop_results import OptimizerResult

__all__ = ["plot_contexts", "plot_means"]

COLOURS = ("#0b6e99", "#8a8a8a", "#c4572b", "#4b8b3b", "#7b4fa3", "#b8860b")
LOWEST = 1e-4
"""Regret that is drawn as the smallest: a logarithm has no 0."""


def plot_means(all_loops: Sequence[OptimizerResult], title: str, start: int, file: Path) -> None:
    """Mean regret by number of jobs with its 95 % interval, one line for each optimizer."""
    figure, axes = _canvas((7.0, 4.5))
    for loops, colour in _coloured(all_loops):
        numbers = np.array([int(n) for n in loops.mean_regret])
        mean = np.array(list(loops.mean_regret.values()))
        low, high = np.array(list(loops.regret_band.values())).T
        axes.fill_between(
            numbers, _shown(low), _shown(high), step="post", color=colour, alpha=0.18, lw=0
        )
        axes.step(numbers, _shown(mean), where="post", color=colour, lw=2, label=loops.optimizer)
    _finish(axes, title, start)
    axes.legend(frameon=False)
    _save(figure, file)


def plot_contexts(all_loops: Sequence[OptimizerResult], title: str, start: int, file: Path) -> None:
    """A small picture for each context (the first 48), with a line for each seed."""
    keys = list(dict.fromkeys(curve.context_key for curve in all_loops[0].curves))[:48]
    columns = min(len(keys), 4)
    rows = -(-len(keys) // columns)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * columns, 2.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(grid.ravel()):
        if place >= len(keys):
            axes.set_visible(False)
            continue
        for loops, colour in _coloured(all_loops):
            for curve in loops.curves:
                if curve.context_key == keys[place]:
                    numbers = np.arange(1, len(curve.regret) + 1)
                    axes.step(numbers, _shown(np.array(curve.regret)), where="post", color=colour)
        _finish(axes, _wrapped(keys[place]), start, small=True)
    figure.suptitle(title)
    _save(figure, file)


def _coloured(all_loops: Sequence[OptimizerResult]) -> list[tuple[OptimizerResult, str]]:
    """The first in front of the others."""
    return list(zip(all_loops, COLOURS * len(all_loops), strict=False))[::-1]


def _canvas(size: tuple[float, float]) -> tuple[Any, Any]:
    # Figure without pyplot: no display, no state that stays behind.
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def _shown(regret: Any) -> Any:
    return np.maximum(100 * regret, 100 * LOWEST)


def _finish(axes: Any, title: str, start: int, *, small: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_yscale("log")
    axes.set_ylim(100 * LOWEST, 110)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axhline(5, color="#bbbbbb", lw=0.8, ls=":")
    if start:
        axes.axvline(start, color="#bbbbbb", lw=0.8)
    axes.set_title(title, fontsize=6 if small else 11)
    if not small:
        axes.set_xlabel("jobs")
        axes.set_ylabel("regret, % of the best")
    axes.spines[["top", "right"]].set_visible(False)


def _wrapped(key: str) -> str:
    parts = key.split("|")[1:]
    return "\n".join("  ".join(parts[i : i + 3]) for i in range(0, len(parts), 3))


def _save(figure: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
