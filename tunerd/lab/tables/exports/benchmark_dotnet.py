"""BenchmarkDotNet: its CSV and Markdown, with columns of the job, of parameters, and what was
measured, ``36.5 us``, in a unit of the file's own."""

import re
from collections.abc import Mapping
from dataclasses import replace

from tunerd.core.observation import Value
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    argument_hint,
    each_row,
    names,
)

__all__ = ["EXPORTER"]

_MARKS = names("Error StdDev StdErr Median Gen0 Allocated Job AnalyzeLaunchVariance LaunchCount")
_TIMES = names("Mean Median Error StdErr StdDev Min Q1 Q3 Max P0 P25 P50 P67 P80 P85 P90 P95 P100")
_SIZES = ("Allocated", "Allocated native memory", "Native memory leak")
_KEPT = {"Median": "median_ns", "Allocated": "allocated_bytes", "Op/s": "ops_per_s"}
_OF_OTHERS = names("Ratio RatioSD Rank Baseline LogicalGroup MValue Skewness Kurtosis Iterations")
_HOW = names("""
    AnalyzeLaunchVariance EvaluateOverhead MaxAbsoluteError MaxRelativeError MinInvokeCount
    MinIterationTime OutlierMode BuildConfiguration Clock EngineFactory NuGetReferences IsMutator
    InvocationCount IterationCount IterationTime LaunchCount MaxIterationCount
    MaxWarmupIterationCount MinIterationCount MinWarmupIterationCount RunStrategy UnrollFactor
    WarmupCount Categories Namespace
""")
_JOB = names("""
    Affinity EnvironmentVariables Jit LargeAddressAware Platform PowerPlanMode Runtime
    AllowVeryLargeObjects Concurrent CpuGroups Force HeapAffinitizeMask HeapCount NoAffinitize
    RetainVm Server Arguments Toolchain MemoryRandomization
""")
_NANOSECONDS = {"ns": 1, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_UNITS = _NANOSECONDS | _BYTES
_HEADER = re.compile(r"(.{1,60}?) \[(\w{1,2})\]")
_NUMBER = re.compile(r"([-+]?\d[\d.,'\u00a0\u202f ]*?)(?: ?([A-Za-zμµ]{1,2}))?")


def _plain(values: Mapping[str, Value]) -> dict[str, Value]:
    """A row with times in nanoseconds, sizes in bytes, and a status."""
    row: dict[str, Value] = {}
    for column, value in values.items():
        match = _HEADER.fullmatch(column)
        name, unit = (match[1], match[2]) if match else (column, "")
        if name in (*_TIMES, *_SIZES):
            row[name] = _number(value, unit)
        else:
            row[column] = value
    return row | {"status": "failed" if row.get("Mean") is None else "succeeded"}


def _number(value: Value, unit: str) -> float | None:
    """A number in nanoseconds or bytes; ``None`` for what was not measured, NA."""
    match = _NUMBER.fullmatch(str(value).strip())
    factor = _UNITS.get((match[2] or unit) if match else "")
    if match is None or factor is None:
        return None
    text = re.sub(r"['\u00a0\u202f ]", "", match[1])
    if text.rfind(",") > text.rfind(".") and not re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(".", "").replace(",", ".")
    try:
        return float(text.replace(",", "")) * factor
    except ValueError:
        return None


def _recognise(head: TableHead) -> DetectedExport | None:
    plain = {match[1] if (match := _HEADER.fullmatch(c)) else c for c in head.columns}
    if not {"Method", "Mean"} <= plain or len(plain.intersection(_MARKS)) < 2:
        return None
    made = head.reshaped(each_row(_plain))
    if not any(made.values("Mean")):
        return None
    marks = ("Method", "Mean", *head.among(("Error", "StdDev"))[:1])
    title = "a summary of BenchmarkDotNet"
    hints = _hints(made)
    detected = DetectedExport("benchmark_dotnet", title, marks, hints, reshape=each_row(_plain))
    return replace(detected, columns=made.columns, units={"Mean": "ns"})


def _hints(head: TableHead) -> dict[str, ColumnHint]:
    after = head.columns.index("Mean") + 1
    hints = {name: argument_hint(name) for name in head.columns[:after]}
    for name in head.columns[after:]:
        hints[name] = ColumnHint("metric", "measured too", _KEPT.get(name))
    hints |= {name: ColumnHint("ignored", "how it was measured") for name in head.among(_HOW)}
    of_others = head.among((*_TIMES, *_OF_OTHERS, "Alloc Ratio"))
    hints |= {
        name: ColumnHint("ignored", "made of others") for name in of_others if name not in _KEPT
    }
    hints |= {name: ColumnHint(INPUT, "how it was run") for name in head.among((*_JOB, "Method"))}
    hints |= {name: ColumnHint("context", "what was measured") for name in head.among(("Type",))}
    hints |= {name: ColumnHint("label", "names the job") for name in head.among(("Job",))}
    hints["status"] = ColumnHint("status", "whether there is a mean")
    hints["Mean"] = ColumnHint(
        "objective", "what a benchmark measures", "mean_ns", 0.7, "minimize", "it is a time"
    )
    return hints


EXPORTER = ExportFormat("benchmark_dotnet", _recognise)
