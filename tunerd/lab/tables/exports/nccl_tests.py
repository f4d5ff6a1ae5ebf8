"""NVIDIA's nccl-tests: the rows that ``all_reduce_perf`` and its kin print, a size each."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)
from tunerd.lab.tables.exports.command_lines import MAX_LINE, arguments_of, number_or_text

__all__ = ["EXPORTER"]

_HEADER = re.compile(
    r"^#[ \t]+size[ \t]+count[ \t]+type[ \t].*\btime[ \t]+algbw[ \t]+busbw", re.MULTILINE
)
_NAMES = {"time": "time_us", "algbw": "algbw_gb_s", "busbw": "busbw_gb_s", "error": "wrong"}
_ROW = re.compile(r"\d+\s+\d+\s+[a-z]\w*\s.*")
_START = re.compile(r"# nThread (\d+) nGpus (\d+) ")
_DEVICE = re.compile(r"#\s+Rank\s+\d+ .*\bdevice\s+\d+ \[\S+\] (\S.{0,80})")
_COMMAND = re.compile(r"(?:^|[/\s])(\w+)_perf(?:\s|$)")
_SETTING = re.compile(r"(?:export )?(NCCL_[A-Z0-9_]{1,60})[=:] ?(\S{1,100})")
_OPTION = "option."
_OF_MEASURING = re.compile(
    r"[befinwcmap]|minbytes|maxbytes|step\w+|iters|warmup_iters|agg_iters|check|average|program"
    r"|arg\d+"
)
_GOAL = _NAMES["time"]
MOST_SETTINGS = 100


def _is_log(start: str) -> bool:
    """Whether the header of these rows stands in it."""
    return _HEADER.search(start) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a row, with what its command and the variables above it say."""
    about: dict[str, Any] = {}
    settings: dict[str, str] = {}
    command: dict[str, str] = {}
    columns: list[str] = []
    for line in lines:
        text = line.strip()[:MAX_LINE]
        fields = text.split()
        if _HEADER.match(text):
            columns = _columns(fields[1:])
        elif start := _START.match(text):
            launched = {"threads": start[1], "gpus_per_thread": start[2]}
            about = {**settings, **command, **launched}
        elif device := _DEVICE.match(text):
            about |= {"gpu": device[1], "ranks": about.get("ranks", 0) + 1}
        elif _ROW.fullmatch(text) and len(fields) == len(columns):
            yield {**about, **_measured(columns, fields)}
        elif (setting := _SETTING.fullmatch(text)) and len(settings) < MOST_SETTINGS:
            settings[f"{_OPTION}{setting[1]}"] = setting[2]
        elif program := _COMMAND.search(text):
            options = command if text.startswith("#") else _options(text)  # it names itself, too
            command = {**options, "collective": program[1]}


def _options(command: str) -> dict[str, str]:
    """What a command sets, without what only says how it is measured."""
    options = arguments_of(re.sub(r"^\S*[+$#>]\s+", "", command))
    return {f"{_OPTION}{n}": v for n, v in options.items() if not _OF_MEASURING.fullmatch(n)}


def _columns(header: Iterable[str]) -> list[str]:
    """Names of a header; what comes again is of what was done in place."""
    columns: list[str] = []
    for word in header:
        name = _NAMES.get(word.lstrip("#"), word.lstrip("#"))
        columns.append(f"in_place_{name}" if name in columns else name)
    return columns


def _measured(columns: Iterable[str], fields: Iterable[str]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(columns, map(number_or_text, fields), strict=True))
    wrong = any(row.get(name) not in (0, "N/A", None) for name in ("wrong", "in_place_wrong"))
    return row | {"status": "failed" if wrong else "succeeded"}


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("size", "count", "type", _GOAL, _NAMES["busbw"], "status"):
        return None
    options = head.starting(_OPTION)
    hints = {name: ColumnHint("metric", "measured by nccl-tests") for name in head.columns}
    hints |= {n: ColumnHint(INPUT, "stands above the run", n[len(_OPTION) :]) for n in options}
    work = head.among(names("collective gpu ranks size type redop threads gpus_per_thread"))
    hints |= {name: ColumnHint("context", "what was measured") for name in work}
    nothing = head.among(names("count root wrong in_place_wrong"))
    hints |= {name: ColumnHint("ignored", "follows from others, or checks") for name in nothing}
    hints["status"] = ColumnHint("status", "whether its results are right")
    hints[_GOAL] = ColumnHint(
        "objective", "the time out of place", None, 0.7, "minimize", "it is a time"
    )
    several = any(map(head.varies, options))
    note = (
        "nothing differs but the work: put logs of several runs, each below its command, together"
    )
    notes = () if several else (note,)
    marks = ("size", "algbw", "busbw")
    return DetectedExport("nccl_tests", "output of nccl-tests", marks, hints, notes=notes)


EXPORTER = ExportFormat("nccl_tests", _recognise, log=_log, is_log=_is_log)
