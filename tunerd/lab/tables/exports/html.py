"""Tables in HTML, as notebooks, pandas and wikis write them: the longest one of a page."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import islice
from typing import Any

from tunerd.lab.tables.exports.base import ExportFormat
from tunerd.lab.tables.exports.markdown import Header, rows_of_longest
from tunerd.lab.tables.header_rows import distinct_names, joined, like_data
from tunerd.lab.tables.rows import NoJob

__all__ = ["EXPORTER"]

_PAGE = re.compile(r"(?:<(?:\?xml|!--)[^>]*>\s*)*<(?:!doctype html|html)\b", re.IGNORECASE)
_PIECE = re.compile(r"<[!a-z]", re.IGNORECASE)
_ROW = re.compile(r"<t[rdh]\b", re.IGNORECASE)
MOST_CELLS, MOST_TEXT = 2_000, 2_000
"""Cells of a row, and characters of a cell."""
BLOCK, MOST_WITHOUT_END = 1 << 16, 1 << 20
"""Characters that are read at once, and of a tag or comment that has no end."""
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
        elif tag == "sup":
            self.handle_data("^")  # a note behind a number is no digit of it

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
        if self._open and self._open[-1].inside and self.cdata_elem is None:
            cell = self._open[-1].cells[-1]
            cell.text = (cell.text + data)[:MOST_TEXT]

    def close(self) -> None:
        """See HTMLParser. A page may end within a table."""
        super().close()
        for table in self._open:
            self._end_row(table)

    def _end_row(self, table: _Table) -> None:
        if not table.cells:
            return  # it has ended, and merged cells go on in the next
        names, texts = table.names, tuple(_laid_out(table))
        table.cells, table.inside, table.names = [], False, True
        if not any(texts):
            return
        if not table.columns and (names or not table.header):
            table.header.append(texts)
            if not names:
                table.columns = _names(table.header)
                if all(map(like_data, texts)):  # nothing names the columns
                    table.columns = tuple(f"column_{k}" for k in range(1, len(texts) + 1))
                    self.rows.append((table.columns, dict(zip(table.columns, texts, strict=True))))
        elif texts not in table.header:
            table.columns = table.columns or _names(table.header)
            row = zip(table.columns, [text or None for text in texts], strict=False)
            self.rows.append((table.columns, dict(row)))


def _many(spans: Mapping[str, str | None], name: str) -> int:
    text = spans.get(name) or ""
    return max(1, min(int(text), MOST_CELLS)) if text.isdecimal() and len(text) < 6 else 1


def _laid_out(table: _Table) -> Iterator[str]:
    """The texts of a row, one for each column. A merged cell says the same in all of them."""
    spread = (cell for cell in table.cells for _ in range(cell.across))
    cells = deque(islice(spread, MOST_CELLS))
    place = 0
    while cells or place in table.below:
        if place in table.below:
            text, left = table.below.pop(place)
        else:
            cell = cells.popleft()
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
    if _PAGE.match(start) is not None:
        return True  # what stands above a page's first table may be long
    return _PIECE.match(start) is not None and _ROW.search(start) is not None


def _rows(lines: Iterable[str]) -> Iterator[tuple[Header, dict[str, str | None]]]:
    reader = _Reader()
    block: list[str] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size < max(BLOCK, len(reader.rawdata)):
            continue  # the parser looks at all that has no end yet again
        reader.feed("".join(block))
        block, size = [], 0
        if len(reader.rawdata) > MOST_WITHOUT_END:
            reader.rawdata = ""
        yield from reader.rows
        reader.rows.clear()
    reader.feed("".join(block))
    reader.close()
    yield from reader.rows


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any] | NoJob]:
    return rows_of_longest(_rows(lines))


EXPORTER = ExportFormat("html", log=_log, is_log=_is_log)
