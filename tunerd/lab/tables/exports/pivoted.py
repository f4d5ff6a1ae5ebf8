"""Tables in which one setting runs along the columns: ``1 threads``, ``8 threads``, ``64 threads``.

Each cell is a run. Percentiles, epochs and repeats stand along columns too; these set nothing.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Reshape,
    Rows,
    TableHead,
    is_numeric,
)
from tunerd.lab.tables.rows import SkippedRows, TableRow

__all__ = ["EXPORTER"]

FEWEST = 3
"""Columns from which on they are of one setting."""
_NUMBERED = re.compile(r"(\D*?)[ _=-]?(\d+)[ _-]?(\D*)")
_RESULT, _SETTING = "value", "columns"


def _recognise(head: TableHead) -> DetectedExport | None:
    """A table with numbers in the names of its last columns, and measurements below them.

    Numbers that count on are indices, few values were chosen, and what is left over must be
    settings: else a parameter for each layer would be taken for a result.
    """
    read = {column: _NUMBERED.fullmatch(column.strip()) for column in head.columns}
    cells = [column for column, match in read.items() if match is not None]
    around = {(m[1].strip().lower(), m[3].strip().lower()) for m in read.values() if m is not None}
    places = [int(match[2]) for match in read.values() if match is not None]
    shared = [column for column, match in read.items() if match is None]
    if len(cells) < FEWEST or len(around) != 1 or places != sorted(set(places)) or not shared:
        return None
    if {b - a for a, b in pairwise(places)} == {1}:
        return None
    setting = _setting(*around.pop(), places)
    measured = all(is_numeric(head.values(column)) for column in cells)
    values = [str(value) for column in cells for value in head.values(column)]
    chosen = all(_is_chosen(column, head) for column in shared)
    if not (setting and measured and chosen) or _RESULT in shared:
        return None
    if 2 * len(set(values)) <= len(values):
        return None
    hints = {
        setting: ColumnHint(INPUT, "runs along the columns"),
        _RESULT: ColumnHint(
            "objective", "what the cells have", None, 0.6, "maximize", "nothing says which way", 0.2
        ),
    }
    return DetectedExport(
        "pivoted",
        "a table with one setting along its columns",
        (cells[0], cells[-1]),
        hints,
        reshape=_unpivoted(shared, dict(zip(cells, places, strict=True)), setting),
        columns=(*shared, setting, _RESULT),
    )


def _is_chosen(column: str, head: TableHead) -> bool:
    """Whether a column beside the cells is no measurement."""
    name = read_name(column)
    chosen = max(name.weight("parameter"), name.weight("context")) > 0
    return name.weight("measured") < 2 and (chosen or not is_numeric(head.values(column)))


def _setting(before: str, behind: str, places: Sequence[int]) -> str:
    """What runs along the columns, by the words around the numbers; "" where that is no setting.

    Numbers alone are one where each is as many times the one before.
    """
    words = f"{before} {behind}".strip()
    if not words:
        steps = {b / a for a, b in pairwise(places) if a}
        return _SETTING if len(steps) == 1 and steps != {1.0} else ""
    name = read_name(words)
    chosen = max(name.weight("parameter"), name.weight("context"))
    return (
        words if chosen >= 2.5 and not name.weight("measured") and not name.weight("label") else ""
    )


def _unpivoted(shared: Sequence[str], cells: dict[str, int], setting: str) -> Reshape:
    def reshape(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
        for row in rows:
            if not isinstance(row, TableRow):
                yield row
                continue
            known = {column: row.values.get(column) for column in shared}
            for column, place in cells.items():
                if (value := row.values.get(column)) is not None:
                    yield TableRow(row.number, {**known, setting: place, _RESULT: value})

    return reshape


EXPORTER = ExportFormat("pivoted", _recognise)
