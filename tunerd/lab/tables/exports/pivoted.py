"""Tables in which one setting runs along the columns: ``1 threads``, ``8 threads``, ``64 threads``;
and those with one setting down and one across, whose corner is empty or names both.

Each cell is a run. Percentiles, epochs and repeats stand along columns too; these set nothing.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median

from tunerd.core.observation import Scalar
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
from tunerd.lab.tables.vocabulary import SUMMARIES

__all__ = ["EXPORTER", "is_matrix"]

FEWEST = 3
"""Columns from which on they are of one setting."""
_NUMBERED = re.compile(r"(\D*?)[ _=-]?(\d+)[ _-]?(\D*)")
_RESULT, _SETTING, _DOWN = "value", "across", "down"


def _recognise(head: TableHead) -> DetectedExport | None:
    """A table with numbers in the names of its last columns, and measurements below them.

    Numbers that count on are indices, few values were chosen, and what is left over must be
    settings: else a parameter for each layer would be taken for a result.
    """
    if (crossed := _crossed(head)) is not None:
        return crossed
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
    counts = setting == _SETTING and _are_counts([_numbers(head, column) for column in cells])
    if counts or 2 * len(set(values)) <= len(values):
        return None
    return _detected(shared, dict(zip(cells, places, strict=True)), setting)


def _detected(
    shared: Sequence[str],
    cells: Mapping[str, Scalar],
    setting: str,
    down: str = "",
) -> DetectedExport:
    """The table with a row for each cell; ``down`` is what the first column is called then."""
    hints = {
        setting: ColumnHint(INPUT, "runs along the columns"),
        _RESULT: ColumnHint(
            "objective", "what the cells have", None, 0.6, "maximize", "nothing says which way", 0.2
        ),
    }
    if down:
        hints[shared[0]] = ColumnHint(INPUT, "runs down the first column", down)
    across = tuple(cells)
    return DetectedExport(
        "pivoted",
        "a table with one setting along its columns",
        (across[0], across[-1]),
        hints,
        reshape=_unpivoted(shared, cells, setting),
        columns=(*shared, setting, _RESULT),
    )


_CORNER = re.compile(r"\s*([^\\/|↓→,]+?)\s*[\\/|↓→,]+\s*([^\\/|↓→,]+?)\s*[↓→]?\s*")
MOST_APART = 100.0
"""How many times the median of one column may be that of another, where all hold the same."""


def _crossed(head: TableHead) -> DetectedExport | None:
    """A table with one setting down and one across. Where the corner names none of both, columns
    that are called like anything known are columns of their own, and rows that count up have an
    index there."""
    corner, *across = head.columns or ("",)
    numbers = [_numbers(head, column) for column in across]
    if len(across) < 2 or len(head.rows) < 2 or not all(numbers):
        return None
    firsts = [str(value) for value in head.values(corner)]
    named = _CORNER.fullmatch(corner)
    if len(set(firsts)) != len(head.rows) or (named is None and corner != _UNNAMED):
        return None
    counts = named is None and _are_counts(numbers)
    if counts or _sums_up(firsts, across, named=named is not None):
        return None
    cells = {column: _value(column) for column in across}
    values = list(cells.values())
    of_numbers = not any(isinstance(value, str) for value in values)
    rising = of_numbers and all(a < b for a, b in pairwise(values))  # type: ignore[operator]
    words = not of_numbers and not any(map(_is_known, across))
    if not (rising or words):
        return None
    if named is not None:
        known = [read_name(name).weights for name in named.groups()]
        if not all(max(weights.values(), default=0.0) >= 2 for weights in known):
            return None
        return _detected((corner,), cells, named[2], named[1])
    medians = [abs(median(column)) for column in numbers]
    alike = max(medians) <= MOST_APART * min(medians)
    counted = [_value(first) for first in firsts] in [
        list(range(k, k + len(firsts))) for k in (0, 1)
    ]
    indices = counted and values == list(range(len(values)))  # an array has no names
    if not alike or (counted and not rising) or indices:
        return None
    return _detected((corner,), cells, _SETTING, _DOWN)


def _sums_up(firsts: Sequence[str], across: Sequence[str], *, named: bool) -> bool:
    """Whether a table is a matrix, or has statistics across."""
    statistics = SUMMARIES.intersection(name.lower() for name in across)
    matrix = is_matrix(firsts, across) and not (named and is_numeric(across))
    return len(statistics) > 2 or matrix


def is_matrix(down: Collection[str], across: Collection[str]) -> bool:
    """Whether the same things stand down and across. Numbers are things where they count up: two
    settings may both have 1, 2, 4 and 8."""
    if is_numeric(across):
        numbers = sorted(map(float, across))
        if numbers not in [list(range(k, k + len(numbers))) for k in (0, 1)]:
            return False
    return _without_start(down) == _without_start(across)


def _are_counts(columns: Sequence[Sequence[float]]) -> bool:
    """Whether cells count something: all are whole, and nothing has a speed or a time of 0."""
    cells = [cell for column in columns for cell in column]
    return 0 in cells and all(cell >= 0 and cell.is_integer() for cell in cells)


def _without_start(names: Collection[str]) -> set[str]:
    """Names without what all of them begin with: ``cat`` of ``pred_cat`` beside ``pred_dog``."""
    first, last = min(names, default=""), max(names, default="")
    start = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return {name[start:] for name in names}


_UNNAMED = "column_1"


def _is_known(name: str) -> bool:
    """Whether a word is called like a setting or a measurement, and is none of its values."""
    read = read_name(name)
    return (
        max(read.weight("parameter") - 1, read.weight("context") - 1, read.weight("measured")) >= 2
    )


def _numbers(head: TableHead, column: str) -> list[float]:
    """What stands in a column, where that is nothing but numbers."""
    values = head.values(column)
    return [float(value) for value in values] if is_numeric(values) else []


def _value(text: str) -> Scalar:
    """The number in a text, else the text."""
    if not is_numeric([text]):
        return text
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


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


def _unpivoted(shared: Sequence[str], cells: Mapping[str, Scalar], setting: str) -> Reshape:
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
