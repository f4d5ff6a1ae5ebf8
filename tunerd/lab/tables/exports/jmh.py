"""JMH, the harness for benchmarks on the JVM: its results as CSV (``-rf csv``) and JSON.

A score is a rate (``thrpt``: ops/ms) or a time (``avgt``, ``sample``, ``ss``: ms/op). Files differ
in units, and one may hold several: so each row has the rate in operations per second and the time
of one in seconds.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tunerd.core.observation import Value
from tunerd.events.foreign import mapping
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Rows,
    TableHead,
    argument_hint,
    names,
)
from tunerd.lab.tables.exports.units import SECONDS
from tunerd.lab.tables.rows import SkippedRows, TableRow

__all__ = ["EXPORTER"]

_CSV = names("Benchmark Mode Threads Samples Score Unit")
_PARAM = "Param: "
_PARAMS, _SECONDARY = "params.", "secondary."
_RUN_WITH = ("threads", "jvm_arguments")
_RATE, _TIME = "ops_per_s", "s_per_op"
_UNIT = re.compile(r"ops/(\w+)|(\w+)/op")
MOST_SECONDARY = 50
"""Measurements of profilers that are kept of a result."""


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    if not isinstance(document, list) or not document or not all(map(_is_result, document)):
        return None
    return [_of_result(result) for result in document]


def _is_result(result: Any) -> bool:
    marks = {"benchmark", "mode", "primaryMetric"}
    return isinstance(result, dict) and marks <= result.keys()


def _of_result(result: Mapping[str, Any]) -> dict[str, Any]:
    primary = mapping(result["primaryMetric"])
    row = {
        "benchmark": result["benchmark"],
        "mode": result["mode"],
        "threads": result.get("threads"),
        **{f"{_PARAMS}{name}": value for name, value in mapping(result.get("params")).items()},
        **_score(primary.get("score"), primary.get("scoreUnit")),
    }
    arguments = result.get("jvmArgs")
    if arguments and isinstance(arguments, list):
        row["jvm_arguments"] = " ".join(map(str, arguments))
    for name, measured in list(mapping(result.get("secondaryMetrics")).items())[:MOST_SECONDARY]:
        row[f"{_SECONDARY}{name}"] = _number(mapping(measured).get("score"))
    return row


def _score(score: Any, unit: Any) -> dict[str, float | None]:
    """A score as a rate and as a time; neither where its unit is of something else."""
    value, match = _number(score), _UNIT.fullmatch(str(unit))
    seconds = SECONDS.get((match[1] or match[2]) if match else "")
    if match is None or seconds is None or value is None or not value > 0:
        return {_RATE: None, _TIME: None}
    rate, time = value / seconds, value * seconds
    if match[1]:
        return {_RATE: rate, _TIME: 1 / rate if rate else None}
    return {_RATE: 1 / time if time else None, _TIME: time}


def _number(value: Any) -> float | None:
    """A number, also with the decimal comma of a JVM that speaks German."""
    try:
        return float(value.replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None


def _of_csv(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
    """The rows of a CSV as those of the JSON."""
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
        elif ":" in str(row.values.get("Benchmark")):
            not_jobs.add("what a profiler measured, a percentile or a part of a group")
        else:
            yield TableRow(row.number, _of_row(row.values))


def _of_row(values: Mapping[str, Value]) -> dict[str, Value]:
    params = {name: value for name, value in values.items() if name.startswith(_PARAM)}
    return {
        **{name.lower(): values.get(name) for name in ("Benchmark", "Mode", "Threads")},
        **{f"{_PARAMS}{name[len(_PARAM) :]}": value for name, value in params.items()},
        **_score(values.get("Score"), values.get("Unit")),
    }


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has(*_CSV):
        return _of_rows(head)
    made = head.reshaped(_of_csv)
    detected = _of_rows(made)
    return None if detected is None else replace(detected, reshape=_of_csv, columns=made.columns)


def _of_rows(head: TableHead) -> DetectedExport | None:
    if not head.has("benchmark", "mode", _RATE, _TIME):
        return None
    hints = {column: argument_hint(column[len(_PARAMS) :]) for column in head.starting(_PARAMS)}
    for column in head.starting(_SECONDARY):
        hints[column] = ColumnHint("metric", "what a profiler measured", column[len(_SECONDARY) :])
    hints |= {name: ColumnHint(INPUT, "how JMH ran it") for name in head.among(_RUN_WITH)}
    hints |= {name: ColumnHint("context", "what was measured") for name in ("benchmark", "mode")}
    rates = {str(mode) for mode in head.values("mode")} <= {"thrpt", "Throughput"}
    goal, other = (_RATE, _TIME) if rates else (_TIME, _RATE)
    hints[goal] = ColumnHint(
        "objective",
        "all scores are rates" if rates else "scores are times",
        goal=("maximize" if rates else "minimize"),
        goal_why="it is a rate" if rates else "it is a time",
    )
    hints[other] = ColumnHint("ignored", f"says the same as {goal}")
    marks = ("benchmark", "mode", "score", "unit")
    return DetectedExport(
        "jmh", "results of JMH", marks, hints, units={_RATE: "ops/s", _TIME: "s/op"}
    )


EXPORTER = ExportFormat("jmh", _recognise, _records)
