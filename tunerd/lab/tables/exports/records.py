"""Tables with records in their cells: JSON, a Python dictionary, or a list of one value.

NNI, Azure, OpenTuner and Hyperopt write the settings of a trial so.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Reshape,
    TableHead,
    each_row,
)
from tunerd.lab.tables.exports.literals import apart, record_in

__all__ = ["EXPORTER", "records_apart"]


def records_apart(columns: Collection[str], lists: Collection[str] = ()) -> Reshape:
    """The rows with what the records in some columns say in columns of their own, and with the
    value alone in those that have ``lists`` of one."""

    def of_row(row: Mapping[str, Any]) -> dict[str, Any]:
        values = apart(row, columns)
        return values | {name: _alone(values.get(name)) for name in lists}

    return each_row(of_row)


def _alone(value: Any) -> Any:
    if not isinstance(value, list) or len(value) > 1:
        return value
    return value[0] if value else None


def _recognise(head: TableHead) -> DetectedExport | None:
    values = {column: head.values(column) for column in head.columns}
    records = [
        column
        for column, those in values.items()
        if those and all(record_in(value) is not None for value in those)
    ]
    trials = [column for column in head.columns if ".idxs." in column]  # of Hyperopt
    lists = [c for c in head.columns if c.replace(".vals.", ".idxs.") in trials and c not in trials]
    if not records and not lists:
        return None
    reshape = records_apart(records, lists)
    columns = head.reshaped(reshape).columns
    marks = tuple((records or lists)[:3])
    hints = {c: ColumnHint("ignored", "says in which trials it was set") for c in trials}
    return DetectedExport(
        "records",
        "a table with records in its cells",
        marks,
        hints,
        reshape=reshape,
        columns=columns,
    )


EXPORTER = ExportFormat("records", _recognise)
