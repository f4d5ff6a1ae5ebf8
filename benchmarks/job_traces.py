"""Traces of other people's jobs: which contexts came when.

Read are files of the Standard Workload Format (``.swf``: 18 numbers a job, comments behind ``;``),
as the Parallel Workloads Archive has them, and tables with a header, whose first column ``time`` is
ISO 8601 or seconds since 1970, and whose other columns are the context. Either may end in ``.gz``.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TextIO

from tunerd.core.observation import Scalar
from tunerd.lab.tables.column_names import identifier

__all__ = ["Arrival", "read_trace"]

USUAL_LENGTH = timedelta(hours=3)
"""How long a job takes of which nothing is said."""
FARTHEST_S = 4e10
"""From 1970, either way: beyond are no dates of jobs, nor room for what is counted from there."""
LONGEST_S = 1e9
SWF_FIELDS = 18
SWF_SUBMIT, SWF_RUN_TIME, SWF_PROCESSORS, SWF_REQUESTED = 1, 3, 4, 7
SWF_CONTEXT = {"user": 11, "executable": 13, "queue": 14, "partition": 15}
"""Beside the number of processors; the group follows from the user."""
SWF_START = "UnixStartTime:"


class Arrival(NamedTuple):
    """A job that begins."""

    at: datetime
    context: dict[str, Scalar]
    takes: timedelta = USUAL_LENGTH


def read_trace(path: Path, days: int) -> list[Arrival]:
    """Of each context the first job of each day, over so many days from the first job on.

    Raises:
        ValueError: a line is not what its format says, or there is no job.
    """
    swf = ".swf" in path.suffixes
    try:
        with _open(path) as file:
            jobs = sorted(_swf_jobs(file) if swf else _table_jobs(file), key=lambda job: job.at)
    except (csv.Error, EOFError, zlib.error) as error:  # a field too long, a .gz that is cut off
        raise ValueError(str(error)) from None
    if not jobs:
        raise ValueError("no jobs")
    begin = _midnight(jobs[0].at)
    first: dict[object, Arrival] = {}
    for job in _known(jobs):
        if job.at < begin + timedelta(days=days):
            first.setdefault((job.at.date(), *job.context.values()), job)
    return list(first.values())


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _known(jobs: list[Arrival]) -> Iterator[Arrival]:
    """Without what is the same of all jobs, which mostly is that it is unknown."""
    varied = [
        name for name in jobs[0].context if len({job.context[name] for job in jobs}) > 1
    ] or list(jobs[0].context)[:1]
    return (job._replace(context={name: job.context[name] for name in varied}) for job in jobs)


def _swf_jobs(lines: Iterable[str]) -> Iterator[Arrival]:
    start = 0.0
    for number, line in enumerate(lines, 1):
        if line.startswith(";") and SWF_START in line:
            start = _number(line.partition(SWF_START)[2], number)
        fields = line.split(";")[0].split()
        if not fields:
            continue
        if len(fields) != SWF_FIELDS:
            raise ValueError(f"line {number}: {len(fields)} fields, expected {SWF_FIELDS}")
        numbers = [_number(field, number) for field in fields]
        processors = numbers[SWF_REQUESTED if numbers[SWF_REQUESTED] > 0 else SWF_PROCESSORS]
        context: dict[str, Scalar] = {
            name: f"{numbers[place]:g}" for name, place in SWF_CONTEXT.items()
        }
        took = numbers[SWF_RUN_TIME]
        yield Arrival(
            _moment(start + numbers[SWF_SUBMIT], number),
            {**context, "processors": f"{processors:g}"},
            _length(took, number) if took >= 0 else USUAL_LENGTH,
        )


def _table_jobs(lines: Iterable[str]) -> Iterator[Arrival]:
    rows = csv.reader(lines)
    head = next(rows, [])
    if len(head) < 2 or head[0] != "time" or len(set(head)) < len(head):
        raise ValueError(f"line 1: expected the columns time and context, not {','.join(head)!r}")
    names: list[str] = []
    for column in head[1:]:  # a study's names have no blanks
        names.append(identifier(column, names))
    for number, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise ValueError(f"line {number}: {len(row)} columns, expected {len(head)}")
        yield Arrival(_time(row[0], number), dict(zip(names, row[1:], strict=True)))


def _time(text: str, line: int) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return _moment(_number(text, line), line)
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return _moment(seconds, line)  # in UTC, where days begin alike


def _moment(seconds: float, line: int) -> datetime:
    if not abs(seconds) <= FARTHEST_S:
        raise ValueError(f"line {line}: no time: {seconds:g}")
    return datetime.fromtimestamp(seconds, UTC)


def _length(seconds: float, line: int) -> timedelta:
    if seconds > LONGEST_S:
        raise ValueError(f"line {line}: no run time: {seconds:g}")
    return timedelta(seconds=seconds)


def _number(text: str, line: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"line {line}: expected a number, not {text.strip()!r}")
    return number
