"""GNU parallel: what ``--joblog`` writes, a line for each job with its command."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.core.study.mapping import JobStatus
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Reshape,
    TableHead,
    each_row,
    is_numeric,
    names,
)
from tunerd.lab.tables.exports.command_lines import arguments_of

__all__ = ["EXPORTER"]

_HEADER = names("Seq Host Starttime JobRuntime Send Receive Exitval Signal Command")
_OPTION = "option."


def _is_log(start: str) -> bool:
    """Whether it begins with the header of a joblog."""
    return start.lstrip().partition("\n")[0].split() == list(_HEADER)


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a job. Its command is not kept: a password may stand in it."""
    for line in lines:
        fields = [field.strip() for field in line.split("\t", len(_HEADER) - 1)]
        job = dict(zip(_HEADER, fields, strict=False))
        if len(fields) == len(_HEADER) and is_numeric([job["Starttime"], job["JobRuntime"]]):
            yield _job(job)


def _job(job: Mapping[str, str]) -> dict[str, Any]:
    started, took = float(job["Starttime"]), float(job["JobRuntime"])
    status = _status(job["Exitval"], job["Signal"])
    options = {f"{_OPTION}{name}": value for name, value in arguments_of(job["Command"]).items()}
    return {
        **{name: job[name] for name in ("Seq", "Host", "Exitval", "Signal")},
        # A crash in a second is not fast.
        "JobRuntime": took if status == "succeeded" else None,
        "finished_at": round(started + took, 3),
        "status": status,
        **options,
    }


def _status(code: str, signal: str) -> JobStatus:
    """How a job ended. With ``--timeout`` parallel kills one and writes -1."""
    if code == signal == "0":
        return "succeeded"
    if code == "-1":
        return "timeout"
    return "cancelled" if signal in ("1", "2", "15") or code in ("130", "143") else "failed"


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("Seq", "Host", "JobRuntime", "Exitval", "finished_at", "status"):
        return None
    options = head.starting(_OPTION)
    hints = {
        name: ColumnHint(INPUT, "stands in the command", name[len(_OPTION) :]) for name in options
    }
    label = ColumnHint("label", "names or describes the job")
    hints |= dict.fromkeys(("Seq", "Host", "Exitval", "Signal"), label)
    hints["JobRuntime"] = ColumnHint(
        "objective", "how long a job took", None, 0.8, "minimize", "it is a time"
    )
    hints["finished_at"] = ColumnHint("finished_at", "its start and how long it took")
    hints["status"] = ColumnHint("status", "what its exit value and signal mean")
    switches = [name for name in options if _is_switch(head, name)]
    note = "JobRuntime counts for jobs that succeeded alone: others did not do their work"
    marks = ("JobRuntime", "Exitval", "Command")
    return DetectedExport(
        "parallel",
        "a joblog of GNU parallel",
        marks,
        hints,
        reshape=_with_switches(switches),
        units={"JobRuntime": "s"},
        notes=(note,),
    )


def _is_switch(head: TableHead, option: str) -> bool:
    """Whether an option stands in some commands alone, and never with another value: what stands
    behind a switch, ``--fast in.bin``, looks like its value."""
    values = head.values(option)
    one_word = bool(values) and not head.varies(option) and not is_numeric(values)
    named = re.fullmatch(r"program|arg\d+", option[len(_OPTION) :]) is None
    return one_word and named and len(values) < len(head.rows)


def _with_switches(switches: Iterable[str]) -> Reshape:
    def with_switches(values: Mapping[str, Any]) -> dict[str, Any]:
        there = {n: "false" if values.get(n) is None else "true" for n in switches}
        return {**values, **there}

    return each_row(with_switches)


EXPORTER = ExportFormat("parallel", _recognise, log=_log, is_log=_is_log)
