"""Tables of a spreadsheet with a column for each run, and the names of what was set and measured
in the first column."""

from itertools import islice

from tunerd.lab.tables.column_names import read_name, without_number
from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Rows,
    TableHead,
)
from tunerd.lab.tables.rows import SkippedRows, TableRow
from tunerd.lab.tables.vocabulary import SUMMARIES

__all__ = ["EXPORTER"]

FEWEST_RUNS, MOST_NAMES = 3, 150
"""Columns of runs, and names in the first column: of longer tables the rows are runs."""


def _recognise(head: TableHead) -> DetectedExport | None:
    first, *runs = head.columns or ("",)
    names = [str(name) for name in head.values(first)]
    if len(runs) < FEWEST_RUNS or len(set(names)) != len(head.rows) or len(names) > MOST_NAMES:
        return None
    if first in names:
        return None
    read = [read_name(name) for name in names]
    set_ = sum(name.weight("parameter") >= 3 > name.weight("measured") for name in read)
    measured = sum(name.weight("measured") >= 3 > name.weight("parameter") for name in read)
    known = sum(max(read_name(name).weights.values(), default=0.0) >= 3 for name in runs)
    if not set_ or not measured or 2 * (set_ + measured) <= len(names) or 2 * known >= len(runs):
        return None
    if not SUMMARIES.isdisjoint(name.lower() for name in runs):
        return None
    hints = {} if _is_set(first) else {first: ColumnHint("label", "names the run")}
    return DetectedExport(
        "transposed",
        "a table with a column for each run",
        (names[0], runs[0]),
        hints,
        reshape=_reshape,
        columns=(first, *names),
    )


def _reshape(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
    held = [row for row in islice(rows, MOST_NAMES) if isinstance(row, TableRow)]
    first, *runs = held[0].values if held else ("",)
    for number, run in enumerate(runs, 1):
        values = {str(row.values.get(first)): row.values.get(run) for row in held}
        yield TableRow(number, {first: without_number(run) if _is_set(first) else run, **values})


def _is_set(first: str) -> bool:
    """Whether the first line has what was set, like those below it, and no names of runs."""
    name = read_name(first)
    return name.weight("parameter") >= 3 > name.weight("measured")


EXPORTER = ExportFormat("transposed", _recognise)
