"""Results of micro-benchmarks: hyperfine and Google Benchmark as JSON and as CSV, and
pytest-benchmark as JSON."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Rows,
    TableHead,
    argument_hint,
    is_numeric,
    names,
)
from tunerd.lab.tables.exports.commands import options_in, with_options
from tunerd.lab.tables.exports.units import SECONDS
from tunerd.lab.tables.rows import SkippedRows, TableRow

__all__ = ["GOOGLE", "HYPERFINE", "PYTEST"]

_TIMES = names("mean median min max")
_SPREADS = names("stddev iqr q1 q3 ld15iqr hd15iqr iqr_outliers stddev_outliers outliers total")
_HOST = names("host_name executable num_cpus mhz_per_cpu library_build_type")
_GOOGLE = names("real_time cpu_time")
_ITS_OWN = names("""
    family_index per_family_instance_index run_type repetitions repetition_index iterations
    time_unit aggregate_name aggregate_unit run_name name
""")
_BUILT_IN = re.compile(
    r"repeats|iterations|min_time|min_warmup_time|repetitions|real_time|process_time|manual_time"
)
_SAID_BY_OTHERS = (*_GOOGLE, "name", "threads", "error_occurred")
_AGGREGATES = ("_mean", "_median", "_stddev", "_cv", "_BigO", "_RMS")
"""How names of rows end that Google Benchmark computes from others."""


def _measured(head: TableHead, times: Iterable[str]) -> dict[str, ColumnHint]:
    """Hints of times and their spreads, and the median, else the mean, as the objective."""
    hints = {
        name: ColumnHint("metric", "measured, in seconds", f"{name}_s")
        for name in head.among(times)
    }
    goal = next((name for name in ("median", "mean") if name in hints), None)
    if goal is not None:
        hints[goal] = ColumnHint(
            "objective",
            "a time that outliers move little",
            f"{goal}_s",
            0.7,
            "minimize",
            "it is a time",
        )
    return hints | {
        name: ColumnHint("ignored", "the spread of a time") for name in head.among(_SPREADS)
    }


# -- hyperfine -------------------------------------------------------------------------------------


def _of_hyperfine(document: Any) -> Iterable[Mapping[str, Any]] | None:
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list) or not all(
        isinstance(result, dict) and {"command", "mean", "min"} <= result.keys()
        for result in results
    ):
        return None
    return [_run(result) for result in results]


def _run(result: Mapping[str, Any]) -> dict[str, Any]:
    given = {f"parameter_{name}": value for name, value in (result.get("parameters") or {}).items()}
    codes = result.get("exit_codes") or [0]
    failed = any(code != 0 for code in codes)
    kept = {name: value for name, value in result.items() if not isinstance(value, list | dict)}
    return {**given, **kept, "status": "failed" if failed else "succeeded"}


def _hyperfine(head: TableHead) -> DetectedExport | None:
    if not head.has("command", "mean", "stddev", "median", "user", "system", "min", "max"):
        return None
    hints = _measured(head, (*_TIMES, "user", "system"))
    hints["command"] = ColumnHint("label", "holds its parameters as text")
    for column in head.starting("parameter_"):
        name = column[len("parameter_") :]
        hints[column] = ColumnHint("parameter", "hyperfine varied it", name)
    hints |= {
        name: ColumnHint("ignored", "measured too") for name in head.among(("times", "exit_codes"))
    }
    hints |= {name: ColumnHint("metric", "measured") for name in head.starting("memory_usage")}
    marks = ("command", "user", "system")
    detected = DetectedExport("hyperfine", "results of hyperfine", marks, hints)
    options = {} if head.starting("parameter_") else options_in(head, "command")
    if not options:
        return detected
    return replace(
        detected,
        hints={**hints, **options},
        reshape=with_options("command", list(options), head),
        columns=(*(c for c in head.columns if c != "command"), *options),
    )


# -- Google Benchmark ------------------------------------------------------------------------------


def _of_google(document: Any) -> Iterable[Mapping[str, Any]] | None:
    runs = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(runs, list) or not all(
        isinstance(run, dict) and "name" in run and {"real_time", "error_occurred"} & run.keys()
        for run in runs
    ):
        return None
    about = document.get("context") or {}
    host = {name: about[name] for name in ("date", *_HOST) if name in about}
    return [_repetition(host, run) for run in runs if run.get("run_type") != "aggregate"]


def _repetition(host: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """A run with the arguments in its name, ``BM_Copy/64/threads:2``, and times in seconds."""
    function, *parts = str(run.get("run_name") or run["name"]).split("/")
    arguments: dict[str, Any] = {}
    for place, part in enumerate(parts, 1):
        name, colon, value = part.rpartition(":")
        if not _BUILT_IN.fullmatch(name if colon else part):
            arguments[f"arg.{name if colon else f'arg{place}'}"] = value if colon else part
    kept = {name: value for name, value in run.items() if name not in _SAID_BY_OTHERS}
    unit = SECONDS.get(str(run.get("time_unit")), 1e-9)
    failed = bool(run.get("error_occurred"))
    times = {f"{name}_s": run[name] * unit for name in _GOOGLE if name in run and not failed}
    status = "failed" if failed else "succeeded"
    return {**host, "function": function, **arguments, **times, **kept, "status": status}


def _google(head: TableHead) -> DetectedExport | None:
    if head.has("name", "iterations", *_GOOGLE, "time_unit"):
        return _google_csv(head)
    if not head.has("function", "real_time_s", "run_name", "iterations"):
        return None
    hints = {column: argument_hint(column[len("arg.") :]) for column in head.starting("arg.")}
    for column in head.columns:
        if column not in hints and is_numeric(head.values(column)):
            hints[column] = ColumnHint("metric", "measured")
    hints |= {name: ColumnHint("ignored", "the benchmark's own") for name in head.among(_ITS_OWN)}
    hints |= {name: ColumnHint("label", "where it ran") for name in head.among(_HOST)}
    hints["function"] = ColumnHint("context", "what was measured")
    hints["real_time_s"] = ColumnHint(
        "objective", "what a benchmark measures", None, 0.7, "minimize", "it is a time"
    )
    hints |= {name: ColumnHint("finished_at", "when it ran") for name in head.among(("date",))}
    marks = ("benchmarks", "run_name", "real_time")
    return DetectedExport("google_benchmark", "results of Google Benchmark", marks, hints)


def _google_csv(head: TableHead) -> DetectedExport | None:
    made = head.reshaped(_runs)
    detected = _google(made)
    if detected is None:
        return None
    marks = ("iterations", "real_time", "time_unit")
    return replace(detected, marks=marks, reshape=_runs, columns=made.columns)


def _runs(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
    """The rows of a CSV as those of the JSON: with the arguments that are in their names."""
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        run: dict[str, Any] = dict(row.values)
        name = run["run_name"] = str(run.get("name") or "")
        if name.endswith(_AGGREGATES):
            not_jobs.add("a mean or a spread of others")
            continue
        for time in _GOOGLE:
            if not is_numeric([run.get(time)]):
                run.pop(time, None)
            else:
                run[time] = float(run[time])
        run["error_occurred"] = str(run.get("error_occurred")).lower() == "true"
        yield TableRow(row.number, _repetition({}, run))


# -- pytest-benchmark ------------------------------------------------------------------------------


def _of_pytest(document: Any) -> Iterable[Mapping[str, Any]] | None:
    runs = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(runs, list) or not all(
        isinstance(run, dict) and isinstance(run.get("stats"), dict) for run in runs
    ):
        return None
    machine = document.get("machine_info") or {}
    about = {"node": machine.get("node"), "datetime": document.get("datetime")}
    return [_test(about, run) for run in runs]


def _test(about: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    stats = {name: value for name, value in run["stats"].items() if not isinstance(value, list)}
    test = str(run.get("fullname") or run.get("name")).partition("[")[0]
    return {**about, "test": test, "params": run.get("params") or {}, **stats}


def _pytest(head: TableHead) -> DetectedExport | None:
    if not head.has("test", "mean", "ops", "rounds"):
        return None
    hints = _measured(head, _TIMES)
    hints |= {name: ColumnHint("metric", "measured") for name in head.among(("ops",))}
    hints |= {
        column: argument_hint(column[len("params.") :]) for column in head.starting("params.")
    }
    hints["test"] = ColumnHint("context", "what was measured")
    own = names("rounds iterations params")
    hints |= {name: ColumnHint("ignored", "the benchmark's own") for name in head.among(own)}
    hints |= {name: ColumnHint("label", "where it ran") for name in head.among(("node",))}
    hints |= {name: ColumnHint("finished_at", "when it ran") for name in head.among(("datetime",))}
    marks = ("benchmarks", "stats", "rounds")
    return DetectedExport("pytest_benchmark", "results of pytest-benchmark", marks, hints)


HYPERFINE = ExportFormat("hyperfine", _hyperfine, _of_hyperfine)
GOOGLE = ExportFormat("google_benchmark", _google, _of_google)
PYTEST = ExportFormat("pytest_benchmark", _pytest, _of_pytest)
