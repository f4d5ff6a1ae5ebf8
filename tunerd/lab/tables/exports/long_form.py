"""Tables with a row for each measurement of a run: Nsight Compute's, and melted ones of anybody.

A run is all rows that are alike but for the name, the unit and the value of what was measured, and
for what follows from that name, such as the section of a report.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tunerd.core.observation import Value
from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Reshape,
    Rows,
    TableHead,
    names,
)
from tunerd.lab.tables.exports.units import base_of
from tunerd.lab.tables.rows import SkippedRows, TableRow

__all__ = ["EXPORTER"]

MOST_METRICS = 200
MOST_OPEN = 20_000
"""Runs whose rows may come mixed. Of more, the one that began first counts as ended."""
_NAMES = names("metric_name metric measurement measure counter counter_name event_name quantity")
_OF_ANYTHING = names("name key variable param parameter field attribute setting")
"""What such a column is called where settings stand among what was measured."""
_VALUES = names("metric_value value result measurement_value reading counter_value event_value")
_UNITS = names("metric_unit unit units measurement_unit counter_unit")


def _recognise(head: TableHead) -> DetectedExport | None:
    lower = {column.strip().lower().replace(" ", "_"): column for column in reversed(head.columns)}
    name, value, unit = (
        next((lower[key] for key in keys if key in lower), None)
        for keys in (_NAMES, _VALUES, _UNITS)
    )
    mixed = name is None
    name = name or next((lower[key] for key in _OF_ANYTHING if key in lower), None)
    if name is None or value is None or not head.rows:
        return None
    measured = list(dict.fromkeys(map(str, head.values(name))))
    if mixed and not _are_both(measured):
        return None
    if not 2 <= len(measured) <= MOST_METRICS or _are_numbers(measured):
        return None
    own = [column for column in (name, value, unit) if column is not None]
    shared = [c for c in head.columns if c not in own and not _follows(head, c, name)]
    runs: dict[tuple[str, ...], int] = {}
    for row in head.rows:
        key = tuple(str(row.values.get(column)) for column in shared)
        runs[key] = runs.get(key, 0) + 1
    if len(runs) < 2 or 2 * len(runs) > len(head.rows):
        return None
    units = _units(head, name, unit) if unit is not None else {}
    reshape = _wide(shared, name, value, unit, units)
    columns = tuple(dict.fromkeys([*shared, *(m for m in measured if m not in shared)]))
    hints = {
        m: ColumnHint("metric", f"measured: a {name} of the table") for m in measured if not mixed
    }
    return DetectedExport(
        "long",
        "a table with a row for each measurement of a run",
        (name, value),
        {m: hint for m, hint in hints.items() if m not in shared},
        reshape=reshape,
        units={m: shown for m, shown in units.items() if shown},
        columns=columns,
    )


def _are_both(texts: Sequence[str]) -> bool:
    """Whether these are names of settings and of measurements."""
    read = [read_name(text) for text in texts]
    set_ = any(name.weight("parameter") >= 2.5 > name.weight("measured") for name in read)
    return set_ and any(name.weight("measured") >= 2.5 > name.weight("parameter") for name in read)


def _are_numbers(texts: Sequence[str]) -> bool:
    return all(text.replace(".", "", 1).isdigit() for text in texts)


def _follows(head: TableHead, column: str, name: str) -> bool:
    """Whether a column says the same wherever the same was measured, and not of all."""
    pairs = {(str(row.values.get(name)), str(row.values.get(column))) for row in head.rows}
    return head.varies(column) and len(pairs) == len({metric for metric, _ in pairs})


def _units(head: TableHead, name: str, unit: str) -> dict[str, str]:
    """The unit of each measurement: of several, the first."""
    units: dict[str, str] = {}
    for row in head.rows:
        units.setdefault(str(row.values.get(name)), str(row.values.get(unit) or ""))
    return units


def _wide(
    shared: Sequence[str], name: str, value: str, unit: str | None, units: Mapping[str, str]
) -> Reshape:
    def reshape(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
        open_: dict[tuple[Any, ...], TableRow] = {}
        for row in rows:
            if not isinstance(row, TableRow):
                yield row
                continue
            key = tuple(str(row.values.get(column)) for column in shared)
            metric = str(row.values.get(name))
            if metric in getattr(open_.get(key), "values", ()) and metric not in shared:
                yield open_.pop(key)  # the same once more: another run
            if key not in open_:
                open_[key] = TableRow(row.number, {c: row.values.get(c) for c in shared})
            if len(open_) > MOST_OPEN:
                yield open_.pop(next(iter(open_)))
            given = row.values.get(unit) if unit is not None else None
            measured = _scaled(row.values.get(value), str(given or ""), units.get(metric))
            job = open_[key]
            if metric not in shared:
                open_[key] = TableRow(job.number, {**job.values, metric: measured})
        yield from open_.values()

    return reshape


def _scaled(value: Value, given: str, wanted: str | None) -> Value:
    """A value in the unit that the first one of its measurement had; none where nobody can."""
    if wanted is None or given == wanted or value is None:
        return value
    of, to = base_of(given), base_of(wanted)
    if of is None or to is None or of[0] != to[0]:
        return None
    try:
        return float(str(value).replace(",", "")) * of[1] / to[1]
    except ValueError:
        return None


EXPORTER = ExportFormat("long", _recognise)
