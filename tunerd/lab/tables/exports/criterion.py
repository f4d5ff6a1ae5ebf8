"""Criterion.rs: its ``raw.csv``, a row for each sample of several iterations of a benchmark."""

from collections.abc import Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    each_row,
    is_numeric,
    names,
)
from tunerd.lab.tables.exports.units import SECONDS

__all__ = ["EXPORTER"]

_COLUMNS = names("group function value sample_measured_value unit iteration_count")
_MEASURED, _COUNT = "sample_measured_value", "iteration_count"
_PER_ITERATION = "time_per_iteration_s"


def _of_one(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the time of one iteration: of a sample without any there is none."""
    took, count = values.get(_MEASURED), values.get(_COUNT)
    seconds = SECONDS.get(str(values.get("unit")))
    known = seconds is not None and is_numeric([took, count]) and float(str(count)) > 0
    time = float(str(took)) / float(str(count)) * (seconds or 0.0) if known else None
    return {**values, _PER_ITERATION: time}


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has(*_COLUMNS):
        return None
    own = [column for column in head.columns if column not in _COLUMNS]
    hints = {
        name: ColumnHint("ignored", "says how it was measured, or follows from the work")
        for name in head.among((_MEASURED, "unit", _COUNT, "throughput_num", "throughput_type"))
    }
    hints |= {name: ColumnHint("context", "what was measured") for name in ("group", "function")}
    hints["value"] = ColumnHint(
        "context", "what a benchmark was called with is most often the size of its work", None, 0.4
    )
    hints |= {
        name: ColumnHint(INPUT, "stands beside the benchmark") for name in own if name not in hints
    }
    hints[_PER_ITERATION] = ColumnHint(
        "objective", "what a benchmark measures", None, 0.7, "minimize", "it is a time"
    )
    return DetectedExport(
        "criterion",
        "samples of Criterion.rs",
        (_MEASURED, _COUNT),
        hints,
        reshape=each_row(_of_one),
        units={_PER_ITERATION: "s"},
        columns=(*head.columns, _PER_ITERATION),
        notes=(f"a sample is a job: {_PER_ITERATION} is {_MEASURED} by {_COUNT}",),
    )


EXPORTER = ExportFormat("criterion", _recognise)
