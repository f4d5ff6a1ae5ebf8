"""What a run of the yardsticks came out with, small enough to be kept: a line per figure told."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.peers import OPTIMIZERS, PREDICTORS
from benchmarks.yardsticks.bars import (
    FIGURES,
    REGRETS,
    against,
    area_values,
    loop_values,
    predict_values,
    worse_beyond_luck,
)
from benchmarks.yardsticks.comparison import Difference, Values
from benchmarks.yardsticks.plan import CHECKS
from tunerd.core.predictors import PREDICTORS as OWN

__all__ = ["summary"]

Lines = Mapping[str, Mapping[str, Any]]
Said = dict[str, Any]

DIGITS = 4
NEAR = 0.05


def summary(lines: Lines) -> list[Said]:
    """Lines of results by cell → lines to keep, each with ``what`` it is.

    The machine's own seconds stay out but for what a suggestion took.
    """
    told = [
        *_run(lines),
        *_predictions(lines),
        *_leads(lines),
        *_loops(lines),
        *_loop_leads(lines),
        *_worse(lines),
    ]
    return [_rounded(one) for one in told]


def _run(lines: Lines) -> Iterator[Said]:
    versions: dict[str, str] = {}
    for line in lines.values():
        versions |= line["versions"]
    yield {
        "what": "run",
        "cells": len(lines),
        "failed": sorted(name for name, line in lines.items() if "error" in line),
        "quick": any(line["rows"] or line["contexts"] for line in lines.values()),
        "seeds": len({line["seed"] for line in lines.values()}),
        "versions": dict(sorted(versions.items())),
    }


def _predictions(lines: Lines) -> Iterator[Said]:
    for line in lines.values():
        if line["kind"] == "predict" and "within" in line:
            within, overall = line["within"], line["overall"]
            yield {
                "what": "check" if line["who"] in CHECKS else "prediction",
                "table": line["table"],
                "question": line["question"],
                "known": line["amount"],
                "known_rows": round(line["known_rows"]),
                "rows": round(within["rows"]),
                "who": line["who"],
                "tau": within["kendall_tau"],
                "tau_low_high": line["intervals"]["within_contexts"].get("kendall_tau"),
                "tau_overall": overall["kendall_tau"],
                "regret_at": within["regret_at"],
                "random_regret_at": within["random_regret_at"],
                "auc": overall["auc"],
                "coverage": overall["coverage"],
            }


def _leads(lines: Lines) -> Iterator[Said]:
    for figure, larger in FIGURES.items():
        cells = predict_values(lines, figure)
        for ours in OWN:
            for theirs in PREDICTORS:
                found = against(cells, ours, theirs, larger_is_better=larger)
                if found is not None:
                    yield {"what": "lead", "figure": figure} | _lead(ours, theirs, *found)


def _loops(lines: Lines) -> Iterator[Said]:
    for mode in REGRETS:
        areas = area_values(lines, mode)
        for table, who in areas.items():
            for name, area in who.items():
                mine = [
                    line
                    for line in lines.values()
                    if line["kind"] == "loop"
                    and (line["question"], line["table"], line["who"]) == (mode, table, name)
                    and "curves" in line
                ]
                yield {
                    "what": "loop",
                    "table": table,
                    "mode": mode,
                    "who": name,
                    "runs": len(area),
                    "contexts": len({context for context, _ in area}),
                    "area": float(np.mean(list(area.values()))),
                } | _curves(mine)


def _curves(lines: Sequence[Mapping[str, Any]]) -> Said:
    curves = np.array([curve for line in lines for curve in line["curves"].values()])
    near = curves <= NEAR
    first = np.where(near.any(axis=1), near.argmax(axis=1) + 1.0, np.inf)
    median = float(np.median(first))
    shown = [n for n in (1, 3, 5, 10, 15, 20, 25, 30, 40, 60) if n <= curves.shape[1]]
    seconds = [line["seconds_per_suggestion"] for line in lines]
    usable = [one for one in seconds if one is not None]
    return {
        "regret": {str(n): float(curves[:, n - 1].mean()) for n in shown},
        "jobs_to_5_percent": median if np.isfinite(median) else None,
        "share_reached": float(np.isfinite(first).mean()),
        "seconds_per_suggestion": float(np.mean(usable)) if usable else None,
    }


def _loop_leads(lines: Lines) -> Iterator[Said]:
    for mode, jobs in REGRETS.items():
        wanted: dict[str, Mapping[str, Mapping[str, Values]]] = {"area": area_values(lines, mode)}
        wanted |= {f"regret after {n}": loop_values(lines, mode, n) for n in jobs}
        for figure, cells in wanted.items():
            for theirs in OPTIMIZERS:
                found = against(cells, "tunerd", theirs, larger_is_better=False)
                if found is not None:
                    told = _lead("tunerd", theirs, *found)
                    yield {"what": "loop lead", "mode": mode, "figure": figure} | told


def _worse(lines: Lines) -> Iterator[Said]:
    for ours in ("committee", "tunerd"):
        behind, count = worse_beyond_luck(lines, ours)
        if count:
            yield {"what": "worse", "ours": ours, "comparisons": count, "behind": behind}


def _lead(ours: str, theirs: str, mean: Difference, single: Mapping[Any, Difference]) -> Said:
    return {
        "ours": ours,
        "theirs": theirs,
        "mean": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "cells": len(single),
        "ahead": sum(one.better for one in single.values()),
        "behind": [_named(cell) for cell, one in single.items() if one.worse],
    }


def _named(cell: Any) -> str:
    return cell if isinstance(cell, str) else " ".join(cell)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS) if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value
