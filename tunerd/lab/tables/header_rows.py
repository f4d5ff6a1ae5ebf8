"""Headers of several lines: pandas' columns in groups, and merged cells of spreadsheets."""

import re
from collections.abc import Sequence

from tunerd.lab.tables.row_filter import is_unit

__all__ = ["MOST_LINES", "are_units", "distinct_names", "has_data", "joined", "like_data"]

MOST_LINES = 4
"""Lines of a header."""

Fields = tuple[str, ...]
_LIKE_DATA = re.compile(r"[+-]?[$€£]?[.,]?\d[\d.,:'eE+-]*(?:\s?[A-Za-zµ%/]{0,4})?")


def distinct_names(names: Sequence[str]) -> Fields:
    """The names with a number behind each that stood there before: ``time``, ``time (2)``."""
    taken, counts = set(names), dict[str, int]()
    distinct: list[str] = []
    for name in names:
        unique, count = name, counts.get(name, 0) + 1
        while count > 1 and (unique := f"{name} ({count})") in taken:
            count += 1
        counts[name] = count
        distinct.append(unique)
    return tuple(distinct)


def has_data(fields: Fields) -> bool:
    """Whether a line below names of columns is no part of the header: it has a number."""
    return any(map(like_data, fields))


def like_data(text: str) -> bool:
    """Whether a text is a number, in whatever notation."""
    return _LIKE_DATA.fullmatch(text) is not None


def are_units(fields: Fields) -> bool:
    """Whether a line has units alone, and is not that with the names of an index."""
    return all(is_unit(text) for text in fields if text) and not _index(fields)


def _index(fields: Fields) -> int:
    """How many columns a line names that names the first ones alone; 0 for any other."""
    given = [place for place, text in enumerate(fields) if text]
    return len(given) if given == list(range(len(given))) and len(given) < len(fields) else 0


def joined(lines: Sequence[Fields]) -> Fields | None:
    """One name for each column, of lines of which the last stands right above the rows.

    ``None`` where that gives a name twice: then they are no header.
    """
    *above, last = lines
    if _are_titles(above, last):
        return last
    if len(above) == 1 and _index(last) == 1 and all(map(like_data, above[0][1:])):
        return (f"{last[0]}\\{above[0][0]}", *above[0][1:])  # one setting down, one across
    indexed = _index(last) if len(above) > 1 else 0
    names = [_of_column(parts) for parts in zip(*_filled(lines), strict=True)]
    names[:indexed] = last[:indexed]  # pandas writes them below the names of the columns
    given = [name for name in names if name]
    return tuple(names) if len(set(given)) == len(given) else None


def _are_titles(above: Sequence[Fields], last: Fields) -> bool:
    """Whether the last line alone names all columns, and those above it only groups of some."""
    return all(last) and len(set(last)) == len(last) and any("" in line for line in above)


def _filled(lines: Sequence[Fields]) -> list[Fields]:
    """The lines with what a merged cell says in each column below it, where there is a name."""
    filled = list(lines)
    last = lines[-1]
    for number, line in enumerate(lines[:-1]):
        cells = list(line)
        for place in range(1, len(cells)):
            if not cells[place] and last[place] and cells[place - 1]:
                cells[place] = cells[place - 1]
        filled[number] = tuple(cells)
    return filled


def _of_column(parts: Sequence[str]) -> str:
    """The parts of a name, each once; not what pandas calls a cell without a name."""
    kept = [part for part in parts if part and not part.startswith("Unnamed: ")]
    return "_".join(dict.fromkeys(kept))
