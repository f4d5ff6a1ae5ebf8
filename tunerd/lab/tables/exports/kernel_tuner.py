"""Kernel Tuner: its cache file, which has no end while it runs, and its results in T4."""

from collections.abc import Iterable, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Statuses,
    TableHead,
    names,
)

__all__ = ["EXPORTER"]

_PARAMS = "tune_params."
_ERRORS = ("compilationfailedconfig", "runtimefailedconfig", "invalidconfig", "errorconfig")
_FAILED = 1e20
"""What older versions write as the time of what failed."""
_STATUSES: Statuses = {
    **dict.fromkeys(_ERRORS, "failed"),
    **dict.fromkeys(("compile", "compilation", "runtime", "constraints", "correctness"), "failed"),
    "timeout": "timeout",
    "correct": "succeeded",
}
_OVERHEADS = names("""
    compile_time verification_time benchmark_time strategy_time framework_time
    compilation_time search_algorithm framework verification
""")
_CONTEXT = ("device_name", "kernel_name", "problem_size")


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    if not isinstance(document, dict):
        return None
    cache, results = document.get("cache"), document.get("results")
    if isinstance(cache, dict) and ("tune_params" in document or "tune_params_keys" in document):
        keys = document.get("tune_params_keys") or list(document.get("tune_params") or ())
        about = {name: _plain(document.get(name)) for name in _CONTEXT if document.get(name)}
        goal = str(document.get("objective") or "time")
        return [
            _of_cache(about, keys, goal, entry)
            for entry in cache.values()
            if isinstance(entry, dict)
        ]
    if isinstance(results, list) and all(
        isinstance(r, dict) and "configuration" in r for r in results
    ):
        about = {name: _plain(document.get(name)) for name in _CONTEXT if document.get(name)}
        return [_of_t4(about, result) for result in results]
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return "x".join(str(part) for part in value)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _of_cache(
    about: Mapping[str, Any], keys: Iterable[str], goal: str, entry: Mapping[str, Any]
) -> dict[str, Any]:
    params = {key: entry[key] for key in keys if key in entry}
    measured = {
        name: value
        for name, value in entry.items()
        if name not in params and isinstance(value, int | float | str) and name != "__error__"
    }
    status = "correct"
    value = entry.get("__error__") or entry.get(goal)
    if isinstance(value, str):
        status = value.rpartition(".")[2].strip("<>'\" ")
    elif value is None or value == _FAILED:
        status = "RuntimeFailedConfig"
    if status != "correct":
        measured = {
            name: value for name, value in measured.items() if name != goal and value != _FAILED
        }
    objective = {goal: measured.pop(goal, None)}
    return {**about, "tune_params": params, "objective": objective, **measured, "status": status}


def _of_t4(about: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    measured = {
        str(measurement.get("name")): measurement.get("value")
        for measurement in result.get("measurements") or ()
        if isinstance(measurement, dict)
    }
    goals = [str(goal) for goal in result.get("objectives") or ()] or ["time"]
    status = str(result.get("invalidity") or "correct")
    goal = goals[0] if goals[0] in measured else next(iter(measured), "time")
    value = measured.pop(goal, None)
    times = {
        name: value
        for name, value in (result.get("times") or {}).items()
        if not isinstance(value, list)
    }
    return {
        **about,
        "tune_params": dict(result["configuration"]),
        "objective": {goal: value if status == "correct" else None},
        **{name: value for name, value in measured.items() if isinstance(value, int | float)},
        **times,
        "timestamp": result.get("timestamp"),
        "status": status,
    }


_MORE = ("gflop", "gb/s", "gbs", "throughput", "bandwidth", "per_watt", "/w", "flops")


def _recognise(head: TableHead) -> DetectedExport | None:
    params, goals = head.starting(_PARAMS), head.starting("objective.")
    if not params or not goals or "status" not in head.columns:
        return None
    hints = {
        column: ColumnHint("parameter", "stands in tune_params", column[len(_PARAMS) :])
        for column in params
    }
    for column in head.columns:
        if column not in hints and column not in goals:
            hints[column] = ColumnHint("metric", "measured by Kernel Tuner")
    hints |= {name: ColumnHint("context", "what was tuned for") for name in head.among(_CONTEXT)}
    hints |= {
        name: ColumnHint("ignored", "is the tuner's own time") for name in head.among(_OVERHEADS)
    }
    hints |= {
        name: ColumnHint("finished_at", "when it was measured")
        for name in head.among(("timestamp",))
    }
    hints["status"] = ColumnHint("status", "why a configuration is invalid")
    goal = goals[0][len("objective.") :]
    more = any(mark in goal.lower() for mark in _MORE)
    hints[goals[0]] = ColumnHint("objective", "Kernel Tuner's objective", goal, 0.9,
                           "maximize" if more else "minimize")  # fmt: skip
    return DetectedExport(
        "kernel_tuner",
        "configurations that Kernel Tuner measured",
        ("tune_params", *head.among(_CONTEXT)[:2]),
        hints,
        _STATUSES,
    )


EXPORTER = ExportFormat("kernel_tuner", _recognise, _records)
