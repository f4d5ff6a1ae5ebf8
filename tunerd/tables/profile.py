"""What a table's columns hold: types, values, and a sample of the rows as arrays.

One pass over the file; memory is bounded by ``SAMPLE`` rows and ``DISTINCT`` values a column.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Literal

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Scalar, Value
from tunerd.core.study.context_key import INT64, clean_value
from tunerd.tables.exports import Export, Reading
from tunerd.tables.files import Row, TableFile
from tunerd.tables.times import read_time
from tunerd.tables.values import number_in, value_name

__all__ = ["Column", "Kind", "Profile", "profile"]

SAMPLE = 20_000
"""Rows whose relations are looked at."""
DISTINCT = 20_000
"""Values of a column that are told apart."""
SPELLED = 200
GROUPED = 50
"""Values of a column, each of several rows, up to which "1,024" is taken for a number: a study's
mapping lists what each means. What was measured has more, and is refused by name."""
MAX_TEXT = 200
"""Characters of a category; what is longer is prose."""

Kind = Literal["int", "float", "bool", "category", "text", "datetime", "list", "empty"]
"""``text`` is a category with too many values to be one, ``list`` several scalars."""

Raw = str | int | float | tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class Column:
    """One column."""

    name: str
    place: int
    """From 0."""
    kind: Kind
    counts: Mapping[Scalar | tuple[Scalar, ...], int]
    """Rows by value, in the type of the column; at most ``DISTINCT``. Smallest value first."""
    rows: int
    missing: int
    codes: IntArray
    """In the sample, the place of the value among ``counts``; -1 where there is none."""
    numbers: FloatArray
    """In the sample, NaN where there is none; empty when these are no numbers."""
    words: Mapping[str, int] = field(default_factory=dict)
    """Words that stand where numbers belong, and in how many rows."""
    grouped: Mapping[str, int] = field(default_factory=dict)
    """What is written with commas between thousands, and the numbers that it is."""
    spelled: Mapping[str, Scalar] = field(default_factory=dict)
    """Its values by how the file spells them, when these are at most ``SPELLED``."""
    form: str = "auto"
    """Of times, as :func:`tunerd.tables.times.read_time` wants it."""

    @property
    def distinct(self) -> int:
        return len(self.counts)

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def numeric(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def values(self) -> list[Scalar | tuple[Scalar, ...]]:
        return list(self.counts)


@dataclass(frozen=True, eq=False)
class Profile:
    """A table."""

    columns: tuple[Column, ...]
    rows: int
    unreadable: int
    sampled: int
    export: Export | None = None
    """What the table was recognised as."""
    reading: Reading = field(default_factory=Reading)
    """How it was read."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of columns, where a row of the table has them."""

    def column(self, name: str) -> Column:
        """By name; raises KeyError."""
        return {column.name: column for column in self.columns}[name]


def profile(table: TableFile, tick: Callable[[int, int], None] | None = None) -> Profile:
    """Look at a whole table; ``tick`` is told now and then how many of its bytes have been read.

    Raises MisconfiguredError when it cannot be read to its end.
    """
    rng = np.random.default_rng(0)
    counts: list[dict[Raw, int]] = [{} for _ in table.columns]
    sample: dict[int, tuple[Raw | None, ...]] = {}
    rows = unreadable = 0
    for row in table.rows():
        if not isinstance(row, Row):
            unreadable += 1
            continue
        raws = tuple(_raw(row.values.get(name)) for name in table.columns)
        for raw, seen in zip(raws, counts, strict=True):
            if raw is not None and (raw in seen or len(seen) < DISTINCT):
                seen[raw] = seen.get(raw, 0) + 1
        # Each row is as likely to be in the sample as any other (algorithm R).
        place = rows if rows < SAMPLE else int(rng.integers(rows + 1))
        if place < SAMPLE:
            sample[place] = raws
        rows += 1
        if tick is not None and rows % 1_000 == 0:
            tick(*table.progress())
    kept = list(sample.values())
    missing = [sum(1 for row in kept if row[place] is None) for place in range(len(counts))]
    share = rows / max(1, len(kept))
    # Between semicolons a comma is one of decimals.
    grouping = table.delimiter != ";"
    columns = [
        _column(
            name,
            place,
            seen,
            [row[place] for row in kept],
            rows,
            round(missing[place] * share),
            _grouped_in(seen, rows) if grouping else {},
        )
        for place, (name, seen) in enumerate(zip(table.columns, counts, strict=True))
    ]
    return Profile(
        tuple(columns), rows, unreadable, len(kept), table.export, table.reading, table.units
    )


def _raw(value: Value) -> Raw | None:
    match value:
        case bool():
            return "true" if value else "false"  # Python takes True and 1 for the same key
        case list():
            return tuple(value)
        case _:
            return value


def _column(
    name: str,
    place: int,
    seen: Mapping[Raw, int],
    sample: Sequence[Raw | None],
    rows: int,
    missing: int,
    grouped: Mapping[str, int],
) -> Column:
    kind, read, form = _kind({grouped.get(str(raw), raw): n for raw, n in seen.items()}, rows)
    typed = {raw: read(grouped.get(str(raw), raw)) for raw in seen}
    counts: dict[Scalar | tuple[Scalar, ...], int] = {}
    words: dict[str, int] = {}
    for raw, count in seen.items():
        if typed[raw] is not None:
            counts[typed[raw]] = counts.get(typed[raw], 0) + count
        elif isinstance(raw, str) and kind in ("int", "float") and number_word(raw):
            words[raw] = count
    ordered = dict(sorted(counts.items(), key=_order))
    codes_of: dict[Hashable, int] = {value: code for code, value in enumerate(ordered)}
    known = [None if raw is None else typed.get(raw) for raw in sample]
    codes = np.array([-1 if one is None else codes_of[one] for one in known], dtype=np.int64)
    numbers = np.empty(0)
    if kind in ("int", "float", "bool"):
        numbers = np.array([np.nan if one is None else one for one in known], dtype=float)
    lost = rows - sum(counts.values()) - missing if len(seen) < DISTINCT else 0
    gone = min(rows, missing + max(0, lost))
    spelled: dict[str, Scalar] = {}
    if len(seen) <= SPELLED:
        plain = ((raw, value) for raw, value in typed.items() if not isinstance(value, tuple))
        spelled = {value_name(raw): value for raw, value in plain if not isinstance(raw, tuple)}
    return Column(
        name, place, kind, ordered, rows, gone, codes, numbers, words, grouped, spelled, form
    )


def _order(item: tuple[Scalar | tuple[Scalar, ...], int]) -> tuple[bool, float, str]:
    value = item[0]
    if isinstance(value, int | float):
        return False, float(value), ""
    return True, 0.0, str(value)


Reader = Callable[[Raw], Scalar | tuple[Scalar, ...]]


def _kind(seen: Mapping[Raw, int], rows: int) -> tuple[Kind, Reader, str]:
    """The type of a column, how its values are read, and the form of times."""
    if not seen:
        return "empty", lambda _: None, "auto"
    if any(isinstance(raw, tuple) for raw in seen):
        whole = all(isinstance(raw, tuple) for raw in seen)
        return ("list", _itself, "auto") if whole else ("text", _prose, "auto")
    if all(isinstance(raw, str) and raw.lower() in ("true", "false") for raw in seen):
        return "bool", lambda raw: str(raw).lower() == "true", "auto"
    numbers = {raw: count for raw, count in seen.items() if _number(raw) is not None}
    if numbers and _are_numbers(numbers, seen):
        if all(_is_integer(raw) for raw in numbers):
            return "int", _number, "auto"
        return "float", _float, "auto"
    if (form := _time_form(seen)) is not None:
        return "datetime", lambda raw: _moment(raw, form), form
    texts = [str(raw) for raw in seen]
    many = len(texts) > 500 or len(texts) > max(30.0, 0.3 * sum(seen.values()))
    prose = many or max(map(len, texts)) > MAX_TEXT or len(texts) == rows > 12
    return ("text" if prose else "category"), _prose, "auto"


def _are_numbers(numbers: Mapping[Raw, int], seen: Mapping[Raw, int]) -> bool:
    """Whether what is no number is a rare word: an OOM among speeds, not an "auto" among sizes."""
    words = [raw for raw in seen if raw not in numbers and not _is_missing(raw)]
    if not words:
        return True
    rows = sum(seen.values()) - sum(seen[raw] for raw in words)
    return len(numbers) >= 20 and len(words) <= 8 and 10 * rows > sum(seen.values())


def number_word(raw: str) -> bool:
    """Whether a text among numbers is a word and not a way of writing "missing"."""
    return _number(raw) is None and not _is_missing(raw)


def _is_missing(raw: Raw) -> bool:
    """``none`` is a value of many a parameter; a dash never is."""
    return isinstance(raw, str) and raw.lower() in ("-", "na", "n/a", "nan", "null")


_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+")


def _grouped_in(seen: Mapping[Raw, int], rows: int) -> dict[str, int]:
    """The values of a column that are written with commas between thousands, where all others are
    numbers too; none where it has many values, or values that hardly repeat."""
    if len(seen) > GROUPED or 3 * len(seen) > rows:
        return {}
    grouped = {
        raw: int(raw.replace(",", ""))
        for raw in seen
        if isinstance(raw, str) and _THOUSANDS.fullmatch(raw)
    }
    others = (raw for raw in seen if raw not in grouped and not _is_missing(raw))
    return grouped if all(_number(raw) is not None for raw in others) else {}


_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")


def _number(raw: Raw) -> int | float | None:
    if isinstance(raw, tuple) or (isinstance(raw, str) and _LEADING_ZERO.fullmatch(raw)):
        return None  # 0012 is a name
    try:
        found = number_in(raw)
    except ValueError:
        return None
    if isinstance(found, float):
        return found + 0.0
    return found if found is None or found in INT64 else float(found)


def _float(raw: Raw) -> float | None:
    found = _number(raw)
    return None if found is None else float(found)


def _is_integer(raw: Raw) -> bool:
    return isinstance(_number(raw), int)


def _itself(raw: Raw) -> Scalar | tuple[Scalar, ...]:
    return raw


def _prose(raw: Raw) -> Scalar:
    return str(list(raw)) if isinstance(raw, tuple) else clean_value(raw, "category")


_FORMS = (
    "auto",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y",
    "%d/%m/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%d/%m/%Y",
    "%a %b %d %H:%M:%S %Y",
    "%b %d %Y %H:%M",
    "%b %d, %Y %H:%M",
    "%Y-%m-%d_%H-%M-%S",
    "%Y%m%d-%H%M%S",
)


def _time_form(seen: Mapping[Raw, int]) -> str | None:
    """The form in which a column has times; ``None`` when it has none.

    A few words are no hindrance: Slurm ends a job that still runs at "Unknown".
    """
    texts = [raw for raw in seen if isinstance(raw, str) and not _is_missing(raw)]
    times = [text for text in texts if re.search(r"\d[-/.:]\d", text)]
    words = len(texts) - len(times)
    if not times or len(texts) < len(seen) - 3 or words > 3 or 4 * words > len(times):
        return None
    for form in _FORMS:
        if all(_moment(text, form) is not None for text in times):
            return form
    return None


def _moment(raw: Raw, form: str) -> str | None:
    try:
        return read_time(raw, form, UTC).isoformat()  # type: ignore[arg-type]  # no tuples here
    except ValueError:
        return None
