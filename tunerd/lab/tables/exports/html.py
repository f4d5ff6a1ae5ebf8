"""Tables in HTML, as notebooks, pandas and wikis write them: the longest one of a page."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from tunerd.lab.tables.exports.base import ExportFormat
from tunerd.lab.tables.exports.markdown import Header, rows_of_longest
from tunerd.lab.tables.header_rows import distinct_names, joined

__all__ = ["EXPORTER"]

_BEGINS = re.compile(r"(?:<\?xml[^>]*>\s*)?<(?:!doctype html|html|table|div|style|p|h\d)\b", re.I)
MOST_CELLS, MOST_TEXT = 2_000, 2_000
"""Cells of a row, and characters of a cell."""
MOST_OPEN = 8
"""Tables within tables that are looked into."""


@dataclass
class _Cell:
    text: str = ""
    across: int = 1
    down: int = 1


@dataclass
class _Table:
    """A table that has not ended."""

    cells: list[_Cell] = field(default_factory=list)
    """Of the row that has not ended."""
    inside: bool = False
    """Whether text belongs to the last cell."""
    names: bool = True
    """Whether all cells of the row name columns."""
    below: dict[int, tuple[str, int]] = field(default_factory=dict)
    """What merged cells say, by their place, and in how many rows to come."""
    header: list[tuple[str, ...]] = field(default_factory=list)
    columns: Header = ()


class _Reader(HTMLParser):
    """Rows of all tables, each with the names of its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Header, dict[str, str | None]]] = []
        """Read and not taken yet."""
        self._open: list[_Table] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser. Ends of rows and cells may be left out."""
        if tag == "table" and len(self._open) < MOST_OPEN:
            self._open.append(_Table())
        elif not self._open:
            return
        elif tag == "tr":
            self._end_row(self._open[-1])
        elif tag in ("td", "th"):
            table, spans = self._open[-1], dict(attrs)
            table.inside = len(table.cells) < MOST_CELLS
            table.names &= tag == "th"
            if table.inside:
                table.cells.append(_Cell("", _many(spans, "colspan"), _many(spans, "rowspan")))
        elif tag in ("br", "p", "li"):
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        """See HTMLParser."""
        if not self._open:
            return
        if tag in ("td", "th"):
            self._open[-1].inside = False
        elif tag in ("tr", "table"):
            self._end_row(self._open[-1])
            if tag == "table":
                self._open.pop()

    def handle_data(self, data: str) -> None:
        """See HTMLParser."""
        if self._open and self._open[-1].inside:
            cell = self._open[-1].cells[-1]
            cell.text = (cell.text + data)[:MOST_TEXT]

    def _end_row(self, table: _Table) -> None:
        names, texts = table.names, tuple(_laid_out(table))
        table.cells, table.inside, table.names = [], False, True
        if not any(texts):
            return
        if not table.columns and (names or not table.header):
            table.header.append(texts)
            if not names:
                table.columns = _names(table.header)
        elif texts not in table.header:
            table.columns = table.columns or _names(table.header)
            row = zip(table.columns, [text or None for text in texts], strict=False)
            self.rows.append((table.columns, dict(row)))


def _many(spans: Mapping[str, str | None], name: str) -> int:
    text = spans.get(name) or ""
    return max(1, min(int(text), MOST_CELLS)) if text.isdecimal() and len(text) < 6 else 1


def _laid_out(table: _Table) -> Iterator[str]:
    """The texts of a row, one for each column. A merged cell says the same in all of them."""
    cells = [text for cell in table.cells for text in [cell] * cell.across][:MOST_CELLS]
    place = 0
    while cells or place in table.below:
        if place in table.below:
            text, left = table.below.pop(place)
        else:
            cell = cells.pop(0)
            text, left = " ".join(cell.text.split()), cell.down
        if left > 1:
            table.below[place] = text, left - 1
        yield text
        place += 1


def _names(header: Sequence[tuple[str, ...]]) -> Header:
    """One name for each column; titles over all columns are left out."""
    lines = [line for line in header if len(set(line)) > 1] or list(header[-1:])
    width = max(map(len, lines))
    lines = [(*line, *[""] * (width - len(line))) for line in lines]
    names = joined(lines) if len(lines) > 1 else None
    return distinct_names([n or f"column_{k}" for k, n in enumerate(names or lines[-1], 1)])


def _is_log(start: str) -> bool:
    return _BEGINS.match(start) is not None


def _rows(lines: Iterable[str]) -> Iterator[tuple[Header, dict[str, str | None]]]:
    reader = _Reader()
    for line in lines:
        reader.feed(line)
        yield from reader.rows
        reader.rows.clear()
    reader.close()
    yield from reader.rows


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    return rows_of_longest(_rows(lines))


EXPORTER = ExportFormat("html", log=_log, is_log=_is_log)
