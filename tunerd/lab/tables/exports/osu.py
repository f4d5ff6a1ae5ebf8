"""OSU's micro-benchmarks: the rows that ``osu_latency``, ``osu_bw`` and their kin print."""

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
from tunerd.lab.tables.exports.command_lines import (
    MAX_LINE,
    arguments_of,
    is_secret,
    number_or_text,
    without_secrets,
)

__all__ = ["EXPORTER"]

_TITLE = re.compile(r"^#\s*OSU (.{3,80}?) Test(?: v?[\d.]+)?\s*$", re.MULTILINE)
_HEADER = re.compile(r"#\s*(?:(Size)\s{2,})?((?(1)\S|Avg Latency).*)")
"""A barrier sends nothing: its table has no sizes."""
_ROW = re.compile(r"[\d.]+(?:\s+[\d.]+)*(?:\s+(?:Pass|Fail))?")
_COMMAND = re.compile(r"(?:^|[/\s])osu_[a-z_]+(?:\s|$)")
_VARIABLE = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=(\S{1,100})")
_OPTION = "option."
_OF_MEASURING = re.compile(r"[imxfv]|program|arg\d+|iterations|warmup|message_size|full")
MOST_SETTINGS = 100


def _is_log(start: str) -> bool:
    return _TITLE.search(start) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a size, with what the command and the variables above it say."""
    variables: dict[str, str] = {}
    command: dict[str, str] = {}
    test, columns, nothing = "", list[str](), list[str]()
    for line in lines:
        text = line.strip()[:MAX_LINE]
        if title := _TITLE.match(text):
            test, columns = title[1], []
        elif header := _HEADER.match(text):
            nothing = [] if header[1] else ["0"]
            columns = ["size", *re.split(r"\s{2,}", header[2])]
        elif _ROW.fullmatch(text) and len(fields := nothing + text.split()) == len(columns):
            measured = dict(zip(columns, map(number_or_text, fields), strict=True))
            if (valid := measured.pop("Validation", None)) is not None:
                measured["status"] = "succeeded" if valid == "Pass" else "failed"
            yield {**variables, **command, "osu_test": test, **measured}
        elif (variable := _VARIABLE.fullmatch(text)) and len(variables) < MOST_SETTINGS:
            if not is_secret(variable[1]):
                variables[f"{_OPTION}{variable[1]}"] = without_secrets(variable[2])
        elif _COMMAND.search(text) and not text.startswith("# "):
            given = arguments_of(re.sub(r"^\S*[+$#>]\s+", "", text))
            command = {
                f"{_OPTION}{name}": value
                for name, value in given.items()
                if not _OF_MEASURING.fullmatch(name)
            }


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("osu_test", "size"):
        return None
    options = head.starting(_OPTION)
    measured = list(head.columns)[head.columns.index("size") + 1 :]
    hints = {
        name: ColumnHint(INPUT, "stands above the run", name[len(_OPTION) :]) for name in options
    }
    hints |= {name: ColumnHint("context", "what was measured") for name in ("osu_test", "size")}
    hints |= {name: ColumnHint("metric", "measured by OSU's benchmark") for name in measured}
    hints |= {
        name: ColumnHint("status", "whether what came was right")
        for name in head.among(("status",))
    }
    notes = () if any(map(head.varies, options)) or "file" in head.columns else (_NOTE,)
    return DetectedExport(
        "osu", "output of OSU's micro-benchmarks", ("OSU ... Test", "Size"), hints, notes=notes
    )


_NOTE = "nothing differs but the work: put logs of several runs, each below its command, together"
EXPORTER = ExportFormat("osu", _recognise, log=_log, is_log=_is_log)
