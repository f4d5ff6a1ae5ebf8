"""What ``torch.utils.benchmark.Compare`` prints: one setting across, one down, by threads."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
)
from tunerd.lab.tables.exports.command_lines import MAX_LINE, number_or_text
from tunerd.lab.tables.exports.units import SECONDS

__all__ = ["EXPORTER"]

_TITLE = re.compile(r"\[-+ ?(.*?) ?-+\]")
_THREADS = re.compile(r"(\d+) threads?: -+")
_UNIT = re.compile(r"Times are in \w+ \((\w+)\)")
MOST_HELD = 100_000
"""Cells that are held until the line comes that has their unit."""


def _is_log(start: str) -> bool:
    return re.search(r"^\d+ threads?: -{5,}", start, re.MULTILINE) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a cell."""
    title, threads, across = "", 0, list[str]()
    held: list[dict[str, Any]] = []
    for given in lines:
        line = given.strip()[:MAX_LINE]
        label, *cells = (cell.strip() for cell in line.split("|"))
        if match := _TITLE.fullmatch(line):
            title, across = match[1], []
        elif match := _THREADS.fullmatch(line):
            threads = int(match[1])
        elif match := _UNIT.match(line):
            factor = SECONDS.get(match[1])
            yield from ({**cell, "time_s": cell["time_s"] * factor} for cell in held if factor)
            held.clear()
        elif cells and not across:
            across = cells
        elif cells and len(held) < MOST_HELD:
            times = map(number_or_text, cells)
            held += [
                {"label": title, "sub_label": label, "description": name, "threads": threads}
                | {"time_s": time}
                for name, time in zip(across, times, strict=False)
                if isinstance(time, int | float)
            ]


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("label", "sub_label", "description", "threads", "time_s"):
        return None
    hints = {
        "label": ColumnHint("context", "what was done"),
        "sub_label": ColumnHint("context", "what it was done to", sure=0.6),
        "description": ColumnHint("parameter", "how it was done", sure=0.6),
        "threads": ColumnHint(INPUT, "how it was done"),
        "time_s": ColumnHint("objective", "a time", None, 0.7, "minimize", "it is a time"),
    }
    title = "what torch.utils.benchmark compares"
    return DetectedExport("torch_compare", title, ("threads:", "Times are in"), hints)


EXPORTER = ExportFormat("torch_compare", _recognise, log=_log, is_log=_is_log)
