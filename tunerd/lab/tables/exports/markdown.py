"""Tables in Markdown, as they stand in a README: among other text, over a row of alignments."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import ExportFormat
from tunerd.lab.tables.header_rows import distinct_names
from tunerd.lab.tables.rows import NoJob

__all__ = ["EXPORTER", "Header", "rows_of_longest"]

_CELL = r"[ \t]*:?-+:?[ \t]*"
_ALIGNED = re.compile(rf"\|?{_CELL}(?:\|{_CELL})*\|?")
_BETWEEN = re.compile(r"(?<!\\)\|")
_BOX = str.maketrans("│┃┆║┏┓┳┡┩╇┌┐┬├┤┼└┘┴╞╡╪╔╗╦╠╣╬╚╝╩━─═", "|" * 31 + "-" * 3)
"""The lines of boxes that Polars, rich and ClickHouse draw."""
_WIKI = re.compile(r"\|\|(?:[^|\n]+\|\|){2,}")
"""The names of columns in Jira and Confluence."""
_MARKS = " *`"
"""What makes a cell bold, or code."""
MOST_HELD = 16 << 20
"""Characters that are held until it is plain which table of several is the longest."""
MOST_SHOWN = 5
"""Columns of another table that are told."""

Header = tuple[str, ...]


def _is_log(start: str) -> bool:
    """Whether a table stands in the text."""
    return next(_rows(start.splitlines()), None) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any] | NoJob]:
    return rows_of_longest(_rows(lines))


def rows_of_longest(
    rows: Iterator[tuple[Header, dict[str, str | None]]],
) -> Iterator[Mapping[str, Any] | NoJob]:
    """The rows of the longest of several tables, from rows that each have the names of their
    columns, and what the others are of. Tables with the same names are one."""
    held: dict[Header, list[dict[str, str | None]]] = {}
    size = 0
    for header, row in rows:
        held.setdefault(header, []).append(row)
        size += sum(len(cell or "") for cell in row.values())
        if size > MOST_HELD:
            break
    longest = max(held, key=lambda header: len(held[header]), default=())
    yield from held.pop(longest, ())
    for header, others in held.items():
        yield from [_of_another(header)] * len(others)
    held.clear()
    yield from (row if header == longest else _of_another(header) for header, row in rows)


def _of_another(header: Header) -> NoJob:
    shown = ", ".join(header[:MOST_SHOWN]) + (", ..." if len(header) > MOST_SHOWN else "")
    return NoJob(
        f"of another table in the file ({shown}); the longest is read. Save that one in a file of"
        " its own to read it"
    )


def _rows(lines: Iterable[str]) -> Iterator[tuple[Header, dict[str, str | None]]]:
    """Each row of each table, with the names of its columns."""
    above: list[str] = []
    header: Header = ()
    for given in lines:
        line = given if given.isascii() else given.translate(_BOX)
        cells = _cells(line)
        if _WIKI.fullmatch(line.strip()):
            cells = [name.strip(_MARKS) for name in line.strip().strip("|").split("||")]
            header = distinct_names(cells)
        elif "-" in line and "|" in line and _ALIGNED.fullmatch(line.strip()):
            if header and line != given:
                continue  # the rule of a box, below what the types of its columns are
            names = [name or f"column_{place}" for place, name in enumerate(above, 1)]
            header = distinct_names(names) if len(cells) == len(names) > 1 else ()
        elif "|" not in line:
            header = ()
        elif header and any(cells):
            yield header, dict(zip(header, [cell or None for cell in cells], strict=False))
        above = cells


def _cells(line: str) -> list[str]:
    """The cells of a row, without their marks."""
    cells = [cell.strip() for cell in _BETWEEN.split(line.strip())]
    start, end = int(cells[0] == ""), len(cells) - int(cells[-1] == "" and len(cells) > 1)
    return [cell.replace("\\|", "|").strip(_MARKS) for cell in cells[start:end]]


EXPORTER = ExportFormat("markdown", log=_log, is_log=_is_log)
