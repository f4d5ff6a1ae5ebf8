"""Columns with nothing but white space between them, as programs print tables, R and pandas write
them and plotting programs read them; and tables of LaTeX."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from tunerd.lab.tables.exports.base import ExportFormat
from tunerd.lab.tables.exports.command_lines import MAX_LINE
from tunerd.lab.tables.header_rows import distinct_names, like_data

__all__ = ["EXPORTER"]

LOOKED_AT = 400
"""Lines by which it is told whether a text is such a table."""
FEWEST = 3
"""Rows of a table."""
_NO_ROW = re.compile(r"[\s+|=:~_.-]*|\\[a-z]+(?:[\[{(].*)?|\(?\d+ rows?\)?|>.*|(?:<\w+>\s*)+")
_BEHIND = re.compile(r"\\\\(?:\[.*?\])?(?:\s*\\[a-z]+(?:\{.*\})?)*\s*$")
"""What ends a row of LaTeX."""


def _cells(line: str, *, wide: bool) -> list[str]:
    """What stands in a line, with quotes taken off; ``wide``: one blank parts no words."""
    text = line.strip()[:MAX_LINE].lstrip("#%").strip()
    if "&" in text and _BEHIND.search(text):
        return [cell.strip().strip("$") for cell in _BEHIND.sub("", text).split("&")]
    if _NO_ROW.fullmatch(text):
        return []
    if wide:
        return re.split(r"\s{2,}", text)
    if '"' not in text:
        return [word for word in text.split() if word != "±"]  # JMH has it between two columns
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _layout(lines: Sequence[str]) -> tuple[tuple[str, ...], int, bool] | None:
    """The names of the columns, the place of their line among ``lines``, and whether more than one
    blank stands between columns; ``None`` where the lines are no table."""
    for wide in (False, True):
        split = [_cells(line, wide=wide) for line in lines]
        width, rows = (
            Counter(map(len, filter(None, split))).most_common(1)[0] if any(split) else (0, 0)
        )
        row = next((place for place, cells in enumerate(split) if _is_row(cells, width)), 0)
        first = next((place for place in range(row - 1, -1, -1) if split[place]), -1)
        body = [cells for cells in split[first + 1 :] if cells]
        fitting = [cells for cells in body if len(cells) == width]
        if (
            width < 2
            or first < 0
            or not _is_header(split[first], width)
            or rows < FEWEST
            or 10 * len(fitting) < 9 * len(body)
        ):
            continue
        names = split[first]
        names = names if len(names) == width else ["", *names]  # R and pandas number the rows
        numeric = [all(like_data(cells[place]) for cells in fitting) for place in range(width)]
        named = [name for name, is_number in zip(names, numeric, strict=True) if is_number and name]
        if named and len(set(names)) == len(names):
            return distinct_names([name or "row" for name in names]), first, wide
    return None


def _is_row(cells: Sequence[str], width: int) -> bool:
    """Whether a line may be the first row of so many columns."""
    return len(cells) == width and any(map(like_data, cells))


def _is_header(cells: Sequence[str], width: int) -> bool:
    """Whether a line may have the names of so many columns."""
    named = all(
        cell[-1:] == "%" or (re.search(r"[^\W\d]", cell) and not like_data(cell)) for cell in cells
    )
    return len(cells) in (width, width - 1) and len(cells) > 1 and named


_DELIMITED = re.compile(r"[,;|\t{}<>]")
_NO_TABLE = re.compile(r"=+\s+MLPerf ")


def _is_log(start: str) -> bool:
    lines = [line for line in start.splitlines()[:LOOKED_AT] if line.strip()]
    layout = (
        _layout(lines[:-1] if len(start) >= 1 << 16 else lines) if len(lines) > FEWEST else None
    )
    if _NO_TABLE.match(start):
        return False
    return layout is not None and _DELIMITED.search(lines[layout[1]]) is None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a row. The header may come again; lines of other widths are left out."""
    rest = (line for line in lines if line.strip())
    head = list(islice(rest, LOOKED_AT))
    layout = _layout(head)
    if layout is None:
        return
    names, first, wide = layout
    header = head[first].split()
    for line in chain(head[first + 1 :], rest):
        cells = _cells(line, wide=wide)
        if len(cells) == len(names) and line.split() != header:
            yield dict(zip(names, cells, strict=True))


EXPORTER = ExportFormat("spaced", log=_log, is_log=_is_log)
