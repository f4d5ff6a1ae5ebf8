"""Results of airspeed velocity (asv): a document for each commit and environment."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    argument_hint,
)
from tunerd.lab.tables.exports.command_lines import number_or_text

__all__ = ["EXPORTER"]

_KINDS = {"time": "time_s", "timeraw": "time_s", "peakmem": "memory_bytes", "mem": "memory_bytes"}
"""What the function of a benchmark is called by what it measures."""


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    if not isinstance(document, dict) or not {"commit_hash", "results"} <= document.keys():
        return None
    results, names = document["results"], document.get("result_columns")
    if not isinstance(results, dict) or not isinstance(names, list):
        return None
    shared = {"commit": document["commit_hash"], "environment": document.get("env_name")}
    rows: list[Mapping[str, Any]] = []
    for benchmark, values in results.items():
        if isinstance(values, list):
            columns = dict(zip(map(str, names), values, strict=False))
            rows += [shared | run for run in _runs(benchmark, columns)]
    return rows


def _runs(benchmark: str, columns: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """A run for each combination of a benchmark's arguments; one that failed has no result."""
    kind = benchmark.rpartition(".")[2].partition("_")[0]
    column = _KINDS.get(kind, kind)
    measured, arguments = columns.get("result"), columns.get("params") or []
    if not isinstance(measured, list) or not all(isinstance(v, list) for v in arguments):
        return
    for combination, value in zip(itertools.product(*arguments), measured, strict=False):
        given = {f"arg{k}": number_or_text(str(v).strip("'")) for k, v in enumerate(combination, 1)}
        ended = "failed" if value is None else "succeeded"
        yield {"benchmark": benchmark, **given, column: value, "status": ended}


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("commit", "environment", "benchmark", "status"):
        return None
    hints = {
        "commit": ColumnHint("label", "which code was measured"),
        "environment": ColumnHint("context", "where it was measured"),
        "benchmark": ColumnHint("context", "what was measured"),
        "status": ColumnHint("status", "whether there is a result"),
        "time_s": ColumnHint("objective", "a time", None, 0.7, "minimize", "it is a time"),
        "memory_bytes": ColumnHint("metric", "measured by asv"),
    }
    hints |= {name: argument_hint(name) for name in head.starting("arg")}
    title = "results of airspeed velocity"
    return DetectedExport("asv", title, ("commit_hash", "result_columns"), hints)


EXPORTER = ExportFormat("asv", _recognise, records=_records)
