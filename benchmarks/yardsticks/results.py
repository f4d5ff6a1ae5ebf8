"""Lines of ``results.jsonl``, read again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.yardsticks.plan import Cell

__all__ = ["is_answered", "read_results"]


def read_results(file: Path) -> dict[str, dict[str, Any]]:
    """Lines by the name of their cell; of several the last. A line cut short by a kill is none."""
    found: dict[str, dict[str, Any]] = {}
    if file.exists():
        for text in file.read_text().splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            found[line["cell"]] = line
    return found


def is_answered(line: Mapping[str, Any] | None, cell: Cell) -> bool:
    """Whether a line answers this very cell, or with more draws: the first of them are the same.
    What went wrong is tried again."""
    if line is None or "error" in line:
        return False
    told = cell.told()
    repeats = told.pop("repeats")
    same = all(line.get(key) == value for key, value in told.items())
    return same and line.get("repeats", 0) >= repeats
