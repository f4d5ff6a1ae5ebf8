"""sysbench 0.5 and 1.0: what it prints at the end of each run, in one log or many."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)
from tunerd.lab.tables.exports.command_lines import ended, is_trouble, number_or_text, options_of

__all__ = ["EXPORTER"]

_LINES = (
    (r"Number of threads: (\d+)", "sysbench.threads"),
    (r"transactions:\s+\d+\s+\(([\d.]+) per sec", "transactions_per_s"),
    (r"queries:\s+\d+\s+\(([\d.]+) per sec", "queries_per_s"),
    (r"read/write requests:\s+\d+\s+\(([\d.]+) per sec", "queries_per_s"),
    (r"(?:ignored errors|errors|deadlocks):\s+(\d+)", "errors"),
    (r"reconnects:\s+(\d+)", "reconnects"),
    (r"events per second:\s+([\d.]+)", "events_per_s"),
    (r"total time:\s+([\d.]+)s", "total_time_s"),
    (r"total number of events:\s+(\d+)", "events"),
    (r"min:\s+([\d.]+)(?:ms)?$", "latency_min_ms"),
    (r"avg:\s+([\d.]+)(?:ms)?$", "latency_mean_ms"),
    (r"max:\s+([\d.]+)(?:ms)?$", "latency_max_ms"),
    (r"(?:approx\.\s+)?(\d+)(?:th)? percentile:\s+([\d.]+)(?:ms)?$", "latency_p{}_ms"),
    (r"reads/s:\s+([\d.]+)", "reads_per_s"),
    (r"writes/s:\s+([\d.]+)", "writes_per_s"),
    (r"fsyncs/s:\s+([\d.]+)", "fsyncs_per_s"),
    (r"read, MiB/s:\s+([\d.]+)", "read_mib_per_s"),
    (r"written, MiB/s:\s+([\d.]+)", "written_mib_per_s"),
    (r"[\d.]+ MiB transferred \(([\d.]+) MiB/sec\)", "transferred_mib_per_s"),
    (r"Total operations: \d+ \(\s*([\d.]+) per second\)", "operations_per_s"),
)
_PATTERNS = tuple((re.compile(pattern), name) for pattern, name in _LINES)
_RATES = ("transactions_per_s", "events_per_s", "operations_per_s", "transferred_mib_per_s",
          "reads_per_s", "read_mib_per_s", "written_mib_per_s", "writes_per_s",
          "queries_per_s")  # fmt: skip
_START = re.compile(r"sysbench \d+\.\d+|Running the test with following options")


def _is_log(start: str) -> bool:
    return _START.search(start) is not None and (
        "Number of threads:" in start or "Latency" in start or "total time:" in start
    )


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a run, with the options of its command where the log has it."""
    record: dict[str, Any] = {}
    begun = trouble = False
    for line in lines:
        text = line.strip()
        options = options_of(text, "sysbench", {})
        version = re.match(r"sysbench \d+\.\d+", text) is not None
        threads = text.startswith("Number of threads:")
        again = threads and "sysbench.threads" in record
        if begun and (again or options is not None or (version and "sysbench.threads" in record)):
            yield ended(record, (*_RATES, "latency_mean_ms"), trouble)
            record, begun, trouble = {}, False, False
        if options is not None:
            record |= {f"option.{name}": number_or_text(value) for name, value in options.items()}
        begun |= options is not None or threads
        trouble |= text.startswith("FATAL") or (is_trouble(text) and "errors" not in text)
        for pattern, name in _PATTERNS:
            if match := pattern.match(text):
                *rest, value = match.groups()
                record[name.format(*rest)] = number_or_text(value)
                break
    if begun:
        yield ended(record, (*_RATES, "latency_mean_ms"), trouble)


_CONTEXT = names("""
    test tables table_size oltp_table_size oltp_tables_count db_driver file_total_size file_num
    file_test_mode cpu_max_prime rand_type memory_total_size memory_oper oltp_test_mode
""")
_NOTHING = names("""
    time max_time events max_requests report_interval percentile threads num_threads mysql_host
    mysql_user mysql_password mysql_port mysql_db mysql_socket pgsql_host pgsql_user
    pgsql_password pgsql_port pgsql_db histogram warmup_time verbosity debug db_debug validate
    rand_seed
""")


def _recognise(head: TableHead) -> DetectedExport | None:
    rates = head.among(_RATES)
    if "sysbench.threads" not in head.columns or not (rates or "latency_mean_ms" in head.columns):
        return None
    hints = {}
    for column in head.columns:
        section, _, name = column.partition(".")
        if section == "sysbench":
            hints[column] = ColumnHint("parameter", "how sysbench was started", name)
        elif section == "option" and name in _NOTHING:
            hints[column] = ColumnHint(
                "ignored", "says nothing about how the run was configured", name
            )
        elif section == "option":
            role = "context" if name in _CONTEXT else "parameter"
            hints[column] = ColumnHint(role, "an option of the run", name)
        else:
            hints[column] = ColumnHint("metric", "measured by sysbench")
    hints["status"] = ColumnHint("status", "whether the run ended with a result")
    objective = rates[0] if rates else "latency_mean_ms"
    hints[objective] = ColumnHint("objective", "measured by sysbench", None, 0.8,
                            "maximize" if rates else "minimize")  # fmt: skip
    return DetectedExport("sysbench", "a log of sysbench", ("sysbench", "Number of threads"), hints)


EXPORTER = ExportFormat("sysbench", _recognise, log=_log, is_log=_is_log)
