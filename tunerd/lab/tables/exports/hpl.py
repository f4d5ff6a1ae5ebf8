"""High-Performance Linpack: the results in its output, each below a header of its own."""

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
    names,
)
from tunerd.lab.tables.exports.command_lines import number_or_text

__all__ = ["EXPORTER"]

_HEADER = re.compile(r"^T/V +N +NB +P +Q +Time +Gflops", re.MULTILINE)
_RESULT = re.compile(
    r"(W\S+) +(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +([\d.eE+-]+) +([\d.eE+-]+)(?: .*)?"
)
_VARIANT = re.compile(r"W([RC])(\d)(\d)([LCR])(\d)([LCR])(\d+)")
_OF_VARIANT = names("order depth bcast rfact ndiv pfact nbmin")
"""What the name of a variant, ``WR11C2R4``, is made of: options of HPL.dat."""
_COLUMNS = names("variant N NB P Q time_s gflops")
_ENDED = re.compile(r"HPL_pdgesv\(\) end time +(\w+ +\w+ +\d+ [\d:]+ \d+)")
_CHECKED = re.compile(r"\|\|.*\.\.\. *(PASSED|FAILED)")


def _is_log(start: str) -> bool:
    """Whether the header of a result stands in it."""
    return _HEADER.search(start) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a result, with what stands below it: when it ended, and whether it is right."""
    run: dict[str, Any] = {}
    for line in lines:
        text = line.strip()
        if result := _RESULT.fullmatch(text):
            if run:
                yield run
            run = dict(zip(_COLUMNS, map(number_or_text, result.groups()), strict=True))
            run |= {"ranks": run["P"] * run["Q"]} | _variant(result[1])
            run |= {"finished_at": None, "status": "succeeded"}
        elif run and (ended := _ENDED.match(text)):
            run["finished_at"] = _time(ended[1])
        elif run and (check := _CHECKED.match(text)) and check[1] == "FAILED":
            run |= {"status": "failed", "gflops": None}
    if run:
        yield run


def _variant(name: str) -> dict[str, Any]:
    match = _VARIANT.fullmatch(name)
    return dict(zip(_OF_VARIANT, match.groups(), strict=True)) if match else {}


def _time(text: str) -> str | None:
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").isoformat()  # noqa: DTZ007 - local
    except ValueError:
        return None


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has(*_COLUMNS, "ranks", "status"):
        return None
    option = ColumnHint(INPUT, "an option of HPL.dat")  # Q may follow from P
    hints = dict.fromkeys(("Q", *head.among(_OF_VARIANT)), option)
    hints |= {name: ColumnHint("parameter", "an option of HPL.dat") for name in ("NB", "P")}
    made = ColumnHint("ignored", "its parts stand in columns of their own")
    hints["variant"] = made if "order" in head.columns else hints["NB"]
    hints["N"] = ColumnHint("context", "how large the problem is")
    hints["ranks"] = ColumnHint("context", "P times Q processes were there")
    hints["time_s"] = ColumnHint("metric", "measured by HPL")
    hints["gflops"] = ColumnHint(
        "objective", "what HPL measures", None, 0.9, "maximize", "it is a rate"
    )
    hints["finished_at"] = ColumnHint("finished_at", "when it ended")
    hints["status"] = ColumnHint("status", "whether its residual passed")
    marks = ("T/V", "NB", "Gflops")
    return DetectedExport("hpl", "output of HPL", marks, hints, units={"gflops": "Gflop/s"})


EXPORTER = ExportFormat("hpl", _recognise, log=_log, is_log=_is_log)
