"""PBS and Torque: their accounting logs, in which a record with ``E`` is of a job that ended."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tunerd.core.study.mapping import JobStatus
from tunerd.events.quantities import read_duration
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)

__all__ = ["EXPORTER"]

_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]);([^;]+);(.*)")
_VALUE = re.compile(r"""(?:^| )([A-Za-z][\w.]*)=("[^"]*"|'[^']*'|.*?)(?= [A-Za-z][\w.]*=|$)""")
"""One value of a record. PBS quotes those with blanks, Torque does not."""
_CHUNKS = re.compile(r"(\d+)((?::\w[\w.-]*(?:=[^:+]+)?)*)")
"""Alike chunks, ``2:ncpus=8:mem=4gb``, and Torque's nodes, ``2:ppn=8``."""
_BINARY = re.compile(r"(\d+)([kmgtp])b", re.IGNORECASE)

_ASKED, _USED = "Resource_List.", "resources_used."
_TIME = f"{_USED}walltime"
_LIMITS = names("walltime cput pcput pwalltime min_walltime max_walltime")
_COUNTED = names("nodect neednodes ncpus mem mpiprocs ngpus ompthreads naccelerators vmem")
"""What follows from the chunks, where there are any."""
_CHOSEN = names("ncpus nodect nodes ngpus mpiprocs ompthreads mem place")
_LABELS = names("group project account jobname exec_host exec_vnode owner session jobobit")
_NOTHING = names("run_count total_execution_slots unique_node_count")
_EACH = {"select": "chunk", "nodes": "node"}
_TIMES = names("ctime qtime etime start eligible_time")

_KILLED: Mapping[int, JobStatus] = {
    **dict.fromkeys((-26, -27), "out_of_memory"),
    **dict.fromkeys((-28, -29), "timeout"),
}
"""What PBS says that it killed a job for."""
_KILLED_BY_TORQUE: Mapping[int, JobStatus] = {-10: "out_of_memory", -11: "timeout", -12: "timeout"}
_ASKED_TO_END = (1, 2, 15)
"""Signals of somebody who wants a job to end: a hangup, an interrupt, ``qdel``."""


def _is_log(start: str) -> bool:
    """Whether its first line is of an accounting log."""
    return _RECORD.match(start.lstrip()) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a job that ended. An array as a whole is none."""
    for line in lines:
        record = _RECORD.fullmatch(line.strip())
        if record is not None and record[1] == "E" and "[]" not in record[2]:
            yield _job(record[2], dict(_VALUE.findall(record[3])))


def _job(job_id: str, message: Mapping[str, str]) -> dict[str, Any]:
    job: dict[str, Any] = {"job_id": job_id}
    for name, text in message.items():
        value = text.strip().strip("\"'")
        if name.startswith(_USED):
            value = _BINARY.sub(lambda size: f"{size[1]}{size[2].upper()}iB", value)
        job[name] = value or None
    for name in ("select", "nodes"):
        if chunks := _chunks(name, job.get(f"{_ASKED}{name}") or ""):
            del job[f"{_ASKED}{name}"]
            job |= chunks
    status = _status(job)
    if status not in (None, "succeeded"):
        job.pop(_TIME, None)  # a crash in a second is not fast
    return job | {"status": status}


def _chunks(name: str, text: str) -> dict[str, Any]:
    """What each of some alike chunks has, and how many there are; nothing where they differ."""
    match = _CHUNKS.fullmatch(text)
    if match is None:
        return {}
    chunks: dict[str, Any] = {f"{name}.count": match[1]}
    for part in match[2].split(":")[1:]:
        resource, given, value = part.partition("=")
        chunks[f"{name}.{resource}"] = value if given else True
    return chunks


def _status(job: Mapping[str, Any]) -> JobStatus | None:
    """How a job ended, by what PBS documents of its exit status."""
    try:
        code = int(job["Exit_status"])
    except (KeyError, TypeError, ValueError):
        return None
    if code == 0:
        return "succeeded"
    if code < 0:
        return ({**_KILLED, **_KILLED_BY_TORQUE} if "owner" in job else _KILLED).get(code, "failed")
    signal = code - 256 if code > 256 else code - 128 if code > 128 else 0
    if signal and _out_of_time(job):
        return "timeout"
    return "cancelled" if signal in _ASKED_TO_END else "failed"


def _out_of_time(job: Mapping[str, Any]) -> bool:
    try:
        used, asked = (read_duration(str(job.get(f"{p}walltime"))) for p in (_USED, _ASKED))
    except ValueError:
        return False
    return used >= asked > 0


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("job_id", "Exit_status", "end", "status"):
        return None
    in_chunks = head.starting("select.", "nodes.")
    hints = {column: _of_chunk(head, column, in_chunks) for column in in_chunks}
    for column in head.starting(_ASKED):
        hints[column] = _asked(column[len(_ASKED) :], bool(in_chunks))
    for column in head.starting(_USED):
        name = f"used_{column[len(_USED) :]}"
        hints[column] = ColumnHint("metric", "measured by PBS", name)
    label = ColumnHint("label", "names or describes the job")
    hints |= dict.fromkeys(head.among((*_LABELS, "Exit_status")), label)
    hints |= {name: ColumnHint("time", "another time") for name in head.among(_TIMES)}
    hints |= {name: ColumnHint("ignored", "PBS counts it") for name in head.among(_NOTHING)}
    hints |= {name: ColumnHint(INPUT, "where it waited") for name in head.among(("queue",))}
    hints |= {name: ColumnHint("user", "whose job it was") for name in head.among(("user",))}
    hints["job_id"] = ColumnHint("job_id", "names the job")
    hints["end"] = ColumnHint("finished_at", "when the job ended")
    hints["status"] = ColumnHint("status", "what its exit status means")
    if _TIME in head.columns:
        hints[_TIME] = ColumnHint(
            "objective", "how long a job took", "walltime", 0.6, "minimize", "it is a time"
        )
    notes = (f"{_TIME} counts for jobs that succeeded alone: others did not do their work",)
    marks = ("Exit_status", _TIME)
    title = "an accounting log of PBS or Torque"
    return DetectedExport("pbs", title, marks, hints, units={_TIME: "s"}, notes=notes)


def _of_chunk(head: TableHead, column: str, those: Sequence[str]) -> ColumnHint:
    """The hint of what each chunk has, ``select.ncpus``, or of how many there are."""
    section, _, resource = column.partition(".")
    if resource == "count":
        name = "chunks" if section == "select" else section
    else:
        name = resource if resource == "ppn" else f"{resource}_per_{_EACH[section]}"
    for other in those[: those.index(column)]:
        if all(row.values.get(other) == row.values.get(column) for row in head.rows):
            return ColumnHint("ignored", f"is the same as {other} in every row", name)
    return ColumnHint("parameter", "was asked of PBS", name, 0.7)


def _asked(resource: str, in_chunks: bool) -> ColumnHint:
    if resource in _LIMITS:
        return ColumnHint("label", "a limit", resource)
    if in_chunks and resource in _COUNTED:
        return ColumnHint("ignored", "follows from what each chunk has", resource)
    if resource in _CHOSEN:
        return ColumnHint("parameter", "was asked of PBS", resource, 0.7)
    return ColumnHint(INPUT, "was asked of PBS", resource)


EXPORTER = ExportFormat("pbs", _recognise, log=_log, is_log=_is_log)
