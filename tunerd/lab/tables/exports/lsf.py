"""Jobs of IBM's LSF as ``bacct -l`` and ``bjobs -l`` print them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
)
from tunerd.lab.tables.exports.command_lines import MAX_LINE, arguments_of, number_or_text

__all__ = ["EXPORTER"]

_JOB = re.compile(r"Job <(\d+(?:\[\d+\])?)>,")
_WRAPPED = " " * 21
"""What lines begin with that go on from the one before, in the middle of a word."""
_FIELDS = {
    "job_name": r"Job Name <([^>]*)>",
    "user": r"User <([^>]*)>",
    "queue": r"Queue <([^>]*)>",
    "project": r"Project <([^>]*)>",
    "state": r"Status <([^>]*)>",
    "command": r"Command <(.*?)>(?:, |$)",
    "slots": r"(\d+) (?:Task\(s\)|Processors? Requested)",
    "resources": r"Requested Resources <(.*?)>(?:[,;]|$)",
    "cpu_time_s": r"The CPU time used is ([\d.]+) seconds",
    "max_memory": r"MAX MEM: ([\d.]+ \w+)",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _FIELDS.items()}
_MOMENT = re.compile(r"\w{3} (\w{3} +\d+ [\d:]{8})(?: \d{4})?: (\w+)")
_USED = re.compile(r"([\d.]+) +(\d+) +(\d+) +(done|exit) +[\d.]+ +(\S+) +(\S+)")
"""CPU_T, WAIT, TURNAROUND, STATUS, HOG_FACTOR, MEM and SWAP."""
_KILLED = {
    "out_of_memory": r"TERM_MEMLIMIT|memory usage limit",
    "timeout": r"TERM_RUNLIMIT|run ?time limit|runlimit",
    "cancelled": r"TERM_OWNER|TERM_ADMIN|killed by owner|killed by (?:the )?administrator",
}


def _is_log(start: str) -> bool:
    return re.search(r"^Job <\d+(?:\[\d+\])?>, ", start, re.MULTILINE) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a job."""
    job: list[str] = []
    for given in lines:
        line = given.rstrip("\r\n")[:MAX_LINE]
        if _JOB.match(line):
            yield from _record(job)
            job = [line]
        elif job and line.startswith(_WRAPPED) and job[-1]:
            job[-1] = (job[-1] + line[len(_WRAPPED) :])[:MAX_LINE]
        elif job:
            job.append(line)
    yield from _record(job)


def _record(job: list[str]) -> Iterator[Mapping[str, Any]]:
    """What the lines of a job say. One that failed has no time: a crash in a second is not fast."""
    match = _JOB.match(job[0]) if job else None
    if match is None:
        return
    record: dict[str, Any] = {"job_id": match[1]}
    moments: dict[str, datetime] = {}
    for line in job:
        for name, pattern in _PATTERNS.items():
            if name not in record and (match := pattern.search(line)):
                record[name] = match[1]
        if moment := _MOMENT.match(line):
            moments[moment[2]] = datetime.strptime(f"2000 {moment[1]}", "%Y %b %d %H:%M:%S")  # noqa: DTZ007
        if used := _USED.match(line.strip()):
            record |= {"cpu_time_s": used[1], "max_memory": used[5], "state": used[4].upper()}
            record |= {"wait_s": used[2], "run_time_s": str(int(used[3]) - int(used[2]))}
    start = moments.get("Dispatched") or moments.get("Started") or moments.get("Starting")
    end = moments.get("Completed") or moments.get("Done")
    if "run_time_s" not in record and start and end and end > start:
        record["run_time_s"] = str(int((end - start).total_seconds()))
    record["status"] = _status(record.pop("state", ""), "\n".join(job))
    if record["status"] != "succeeded":
        record.pop("run_time_s", None)
    options = arguments_of(record.pop("command", ""))
    record |= {f"option.{name}": value for name, value in options.items() if name != "program"}
    text = ("job_id", "job_name", "user", "max_memory")
    yield {n: v if n in text else number_or_text(v) for n, v in record.items()}


def _status(state: str, text: str) -> str:
    if state == "DONE":
        return "succeeded"
    if state != "EXIT":
        return "cancelled"  # has not ended
    killed = (word for word, pattern in _KILLED.items() if re.search(pattern, text, re.IGNORECASE))
    return next(killed, "failed")


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("job_id", "user", "queue", "status") or "run_time_s" not in head.columns:
        return None
    hints = {
        "job_id": ColumnHint("job_id", "names the job"),
        "user": ColumnHint("user", "says whose job it was"),
        "status": ColumnHint("status", "how the job ended"),
        "slots": ColumnHint("parameter", "was asked of LSF", sure=0.7),
        "run_time_s": ColumnHint(
            "objective", "how long a job took", sure=0.6, goal="minimize", goal_why="it is a time"
        ),
    }
    hints |= {name: ColumnHint(INPUT, "was asked of LSF") for name in ("queue", "resources")}
    hints |= {name: ColumnHint("label", "names the job") for name in ("job_name", "project")}
    hints |= {
        name: ColumnHint("metric", "measured by LSF")
        for name in ("cpu_time_s", "wait_s", "max_memory")
    }
    for column in head.starting("option."):
        hints[column] = ColumnHint(INPUT, "an option of the job", column.removeprefix("option."))
    return DetectedExport(
        "lsf",
        "jobs of LSF",
        ("Job <...>", "run_time_s"),
        {name: hint for name, hint in hints.items() if name in head.columns},
        notes=("run_time_s counts for completed jobs alone: others did not do their work",),
    )


EXPORTER = ExportFormat("lsf", _recognise, log=_log, is_log=_is_log)
