"""Tables with columns of fixed width over a ruled line: ``sacct`` without ``-P``, and others."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import ExportFormat
from tunerd.lab.tables.header_rows import distinct_names

__all__ = ["EXPORTER"]

_RULED = re.compile(r"[-=]{2,}(?: +[-=]{2,})+ *")


def _is_log(start: str) -> bool:
    """Whether the second line rules off columns of which the first has the names."""
    lines = [line for line in start.splitlines()[:5] if line.strip()]
    if len(lines) < 3 or not _RULED.fullmatch(lines[1].rstrip()):
        return False
    return all(lines[0][begin:end].strip() for begin, end in _spans(lines[1]))


def _spans(ruled: str) -> list[tuple[int, int]]:
    """Where each column begins and ends; the last has no end."""
    spans = [match.span() for match in re.finditer(r"[-=]+", ruled)]
    return [*spans[:-1], (spans[-1][0], 1 << 20)]


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a row. Titles and rules that come again are left out."""
    above = ""
    header = ""
    spans: list[tuple[int, int]] = []
    names: tuple[str, ...] = ()
    for line in lines:
        text = line.rstrip("\r\n")
        if _RULED.fullmatch(text.rstrip()):
            if not spans:
                spans, header = _spans(text), above
                names = distinct_names([header[begin:end].strip() for begin, end in spans])
            continue
        if spans and text.strip() and text != header:
            values = (text[begin:end].strip() or None for begin, end in spans)
            yield dict(zip(names, values, strict=True))
        above = text if text.strip() else above


EXPORTER = ExportFormat("fixed_width", log=_log, is_log=_is_log)
