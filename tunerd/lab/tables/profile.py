"""What a table's columns hold: types, values, and a sample of the rows as arrays.

One pass over the file; memory is bounded by ``SAMPLE`` rows and ``DISTINCT`` values a column.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import cached_property
from typing import Literal

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Scalar, Value
from tunerd.core.study.context_key import INT64, clean_value
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events.quantities import NumberNotation, read_quantity
from tunerd.events.times import read_time
from tunerd.lab.tables.exports import DetectedExport, ReadOptions
from tunerd.lab.tables.files import TableFile, TableRow
from tunerd.lab.tables.notations import AS_IT_STANDS, ColumnNotation, notations
from tunerd.lab.tables.values import is_nothing, number_in, status_in, truth_in, value_name

__all__ = ["ColumnProfile", "Kind", "TableProfile", "profile"]

MOST_COLUMNS = 1_000
"""Columns of a table; a study has no more context features, nor a mapping more metrics."""
SAMPLE = 20_000
"""Rows whose relations are looked at."""
DISTINCT = 20_000
"""Values of a column that are told apart."""
SPELLED = 200
NOISE = 1e-6
"""Numbers closer than this, relative, are one that was rounded: 30.25 and 30.250000000003."""
APART = 1_000
"""How much farther apart different numbers lie than those that only rounding tells apart."""
GAP = 0.1
"""Share of the rows from which on ``None`` among few numbers is a value and not a gap."""
DAMAGED = 1 / 8
"""Share of the rows that may have something else where a column has numbers or times, each once:
it is spoilt, and says nothing of the column."""
FEW = 12
MAX_TEXT = 200
"""Characters of a category; what is longer is prose."""

Kind = Literal["int", "float", "bool", "category", "text", "datetime", "list", "empty"]
"""``text`` is a category with too many values to be one, ``list`` several scalars."""

Raw = str | int | float | tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class ColumnProfile:
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
    written: ColumnNotation = AS_IT_STANDS
    """How its numbers are written."""
    spelled: Mapping[str, Scalar] = field(default_factory=dict)
    """Its values by how the file spells them, when these are at most ``SPELLED``."""
    form: str = "auto"
    """Of times, as :func:`tunerd.events.times.read_time` wants it."""

    def as_texts(self) -> "ColumnProfile":
        """The column as it is spelled, ``16G`` and ``01:00:00``: that is what can be launched.

        As it is where two spellings mean the same number, or there are many.
        """
        spelling = {value: text for text, value in self.spelled.items() if value is not None}
        spelt = [
            spelling.get(value) for value in self.counts if not isinstance(value, tuple | None)
        ]
        texts = [text for text in spelt if text is not None]
        several = len(self.spelled) > len(spelling) + sum(map(is_nothing, self.spelled))
        notation = self.written.notation
        launched = bool(notation.unit) or notation.format in ("duration", "size", "count")
        if not launched or several or len(texts) < self.distinct or not texts:
            return self
        counts: dict[Scalar | tuple[Scalar, ...], int]
        counts = dict(zip(texts, self.counts.values(), strict=True))
        return replace(
            self,
            kind="category",
            counts=counts,
            numbers=np.empty(0),
            words={},
            written=AS_IT_STANDS,
            spelled={text: text for text in texts},
        )

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
class TableProfile:
    """A table."""

    columns: tuple[ColumnProfile, ...]
    rows: int
    unreadable: int
    sampled: int
    export: DetectedExport | None = None
    """What the table was recognised as."""
    reading: ReadOptions = field(default_factory=ReadOptions)
    """How it was read."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of columns, where a row of the table or its export has them."""

    def column(self, name: str) -> ColumnProfile:
        """By name; raises KeyError."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, ColumnProfile]:
        return {column.name: column for column in self.columns}


def profile(table: TableFile, tick: Callable[[int, int], None] | None = None) -> TableProfile:
    """Look at a whole table; ``tick`` is told now and then how many of its bytes have been read.

    Raises MisconfiguredError when it has too many columns or cannot be read to its end.
    """
    if len(table.columns) > MOST_COLUMNS:
        message = f"has {len(table.columns):,} columns, at most {MOST_COLUMNS:,} can be looked at"
        raise MisconfiguredError([ValidationProblem("table", message)])
    rng = np.random.default_rng(0)
    counts: list[dict[Raw, int]] = [{} for _ in table.columns]
    sample: dict[int, tuple[Raw | None, ...]] = {}
    rows = unreadable = 0
    for row in table.rows():
        if not isinstance(row, TableRow):
            unreadable += 1
            continue
        raws = tuple(_raw(row.values.get(name)) for name in table.columns)
        for raw, counter in zip(raws, counts, strict=True):
            if raw is not None and (raw in counter or len(counter) < DISTINCT):
                counter[raw] = counter.get(raw, 0) + 1
        # Each row is as likely to be in the sample as any other (algorithm R).
        place = rows if rows < SAMPLE else int(rng.integers(rows + 1))
        if place < SAMPLE:
            sample[place] = raws
        rows += 1
        if tick is not None and rows % 1_000 == 0:
            tick(*table.progress())
    kept = list(sample.values())
    alone = [bool(counter) and all(map(_is_alone, counter)) for counter in counts]
    if any(alone):
        counts = [
            _unwrapped(counter) if listed else counter
            for counter, listed in zip(counts, alone, strict=True)
        ]
        kept = [
            tuple(
                _raw(raw[0]) if listed and isinstance(raw, tuple) else raw
                for raw, listed in zip(row, alone, strict=True)
            )
            for row in kept
        ]
    missing = [sum(1 for row in kept if row[place] is None) for place in range(len(counts))]
    share = rows / max(1, len(kept))
    named = list(zip(table.columns, counts, strict=True))
    written = notations([(name, list(counter)) for name, counter in named], table.delimiter)
    columns = [
        _column(
            name,
            place,
            counter,
            [row[place] for row in kept],
            rows,
            round(missing[place] * share),
            written[place],
        )
        for place, (name, counter) in enumerate(named)
    ]
    return TableProfile(
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


def _is_alone(raw: Raw) -> bool:
    return isinstance(raw, tuple) and len(raw) == 1 and raw[0] is not None


def _unwrapped(counter: Mapping[Raw, int]) -> dict[Raw, int]:
    """What lists of one value each hold."""
    counts: dict[Raw, int] = {}
    for raw, count in counter.items():
        value = _raw(raw[0]) if isinstance(raw, tuple) else raw
        if value is not None:
            counts[value] = counts.get(value, 0) + count
    return counts


def _column(
    name: str,
    place: int,
    seen: Mapping[Raw, int],
    sample: Sequence[Raw | None],
    rows: int,
    missing: int,
    written: ColumnNotation,
) -> ColumnProfile:
    numbers_of = _numbers(seen, written.notation)
    kind, read, form = _kind(seen, numbers_of, rows)
    if kind not in ("int", "float"):
        written = AS_IT_STANDS
    with np.errstate(over="ignore"):  # of numbers such as 1e308
        typed = _without_noise({raw: read(raw) for raw in seen}, kind)
    counts: dict[Scalar | tuple[Scalar, ...], int] = {}
    words: dict[str, int] = {}
    for raw, count in seen.items():
        if typed[raw] is not None:
            counts[typed[raw]] = counts.get(typed[raw], 0) + count
        elif isinstance(raw, str) and kind in ("int", "float") and not is_nothing(raw):
            words[raw] = count
    ordered = dict(sorted(counts.items(), key=_order))
    codes_of: dict[Hashable, int] = {value: code for code, value in enumerate(ordered)}
    known = [None if raw is None else typed.get(raw) for raw in sample]
    codes = np.array([-1 if value is None else codes_of[value] for value in known], dtype=np.int64)
    numbers = np.empty(0)
    if kind in ("int", "float", "bool"):
        numbers = np.array([np.nan if value is None else value for value in known], dtype=float)
    lost = rows - sum(counts.values()) - missing if len(seen) < DISTINCT else 0
    gone = min(rows, missing + max(0, lost))
    spelled: dict[str, Scalar] = {}
    if len(seen) <= SPELLED:
        plain = ((raw, value) for raw, value in typed.items() if not isinstance(value, tuple))
        spelled = {value_name(raw): value for raw, value in plain if not isinstance(raw, tuple)}
    return ColumnProfile(
        name, place, kind, ordered, rows, gone, codes, numbers, words, written, spelled, form
    )


def _order(item: tuple[Scalar | tuple[Scalar, ...], int]) -> tuple[bool, float, str]:
    value = item[0]
    if isinstance(value, int | float):
        return False, float(value), ""
    return True, 0.0, str(value)


Reader = Callable[[Raw], Scalar | tuple[Scalar, ...]]


def _kind(
    seen: Mapping[Raw, int], numbers: Mapping[Raw, int | float], rows: int
) -> tuple[Kind, Reader, str]:
    """The type of a column, how its values are read, and the form of times."""
    there = {raw: n for raw, n in seen.items() if not _is_missing(raw)}
    if not there:
        return "empty", lambda _: None, "auto"
    if any(isinstance(raw, tuple) for raw in seen):
        whole = all(isinstance(raw, tuple) for raw in seen)
        return ("list", _itself, "auto") if whole else ("text", _prose, "auto")
    if _are_truths(seen):
        return "bool", _truth, "auto"
    if numbers and _are_numbers(numbers, seen):
        if all(float(number).is_integer() and int(number) in INT64 for number in numbers.values()):
            whole_numbers = {raw: int(number) for raw, number in numbers.items()}
            return "int", whole_numbers.get, "auto"
        floats = {raw: float(number) for raw, number in numbers.items()}
        return "float", floats.get, "auto"
    if (form := _time_form(seen)) is not None:
        return "datetime", lambda raw: _moment(raw, form), form
    texts = [str(raw) for raw in there]
    many = len(texts) > 500 or len(texts) > max(30.0, 0.3 * sum(there.values()))
    prose = many or max(map(len, texts)) > MAX_TEXT or len(texts) == rows > 12
    return ("text" if prose else "category"), _prose, "auto"


def _are_truths(seen: Mapping[Raw, int]) -> bool:
    """Whether a column holds true and false, or 1 and 0 beside them; a few may be missing."""
    words = [raw for raw in seen if not _is_gap(raw, seen)]
    if not any(isinstance(raw, str) and raw.lower() in ("true", "false") for raw in words):
        return False
    return all(_truth(raw) is not None for raw in words)


def _truth(raw: Raw) -> bool | None:
    try:
        return None if isinstance(raw, tuple) else truth_in(raw)
    except ValueError:
        return None


def _are_numbers(numbers: Mapping[Raw, int | float], seen: Mapping[Raw, int]) -> bool:
    """Whether what is no number is a rare word: an OOM among speeds, not an "auto" among sizes."""
    many = len(numbers) > FEW
    words = [
        raw
        for raw in seen
        if raw not in numbers and not (_is_nothing(raw) if many else _is_gap(raw, seen))
    ]
    if not words:
        return True
    rows, odd = sum(seen.values()), sum(seen[raw] for raw in words)
    if len(numbers) >= 20 and len(words) <= 8 and odd < 0.9 * rows:
        return True
    return odd == len(words) <= DAMAGED * rows and all(map(_is_damaged, words))


def _is_damaged(raw: Raw) -> bool:
    """Whether a text says how a job ended or was spoilt: ``OOM``, ``#####``, ``12:3x``, and not a
    word that may be set, such as ``auto``."""
    return isinstance(raw, str) and (not raw.isalpha() or status_in(raw) is not None)


def _is_nothing(raw: Raw) -> bool:
    return isinstance(raw, str) and is_nothing(raw)


def _is_missing(raw: Raw) -> bool:
    """``none`` is a value of many a parameter; a dash never is."""
    return _is_nothing(raw) and str(raw).strip().lower() not in ("none", "nil", "?", "na")


def _is_gap(raw: Raw, seen: Mapping[Raw, int]) -> bool:
    """Whether a value says that another is missing: ``None`` only where it is rare."""
    if not _is_nothing(raw):
        return False
    lower = str(raw).strip().lower()
    return lower not in ("none", "nil") or seen[raw] < GAP * sum(seen.values())


def _numbers(seen: Mapping[Raw, int], notation: NumberNotation) -> dict[Raw, int | float]:
    """The numbers among some values."""
    numbers: dict[Raw, int | float] = {}
    for raw in seen:
        number = _number(raw) if notation.plain else _noted(raw, notation)
        if number is not None:
            numbers[raw] = number
    return numbers


def _noted(raw: Raw, notation: NumberNotation) -> int | float | None:
    if not isinstance(raw, str):
        return _number(raw)
    try:
        return None if is_nothing(raw) else read_quantity(raw, notation)
    except ValueError:
        return None


def _without_noise(
    typed: dict[Raw, Scalar | tuple[Scalar, ...]], kind: Kind
) -> dict[Raw, Scalar | tuple[Scalar, ...]]:
    """Floats that differ by rounding as the shortest of them.

    Only where all others lie much farther apart: measurements may lie close to each other.
    """
    if kind != "float":
        return typed
    values = np.unique([value for value in typed.values() if isinstance(value, float)])
    gaps = np.diff(values)
    near = gaps <= NOISE * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    groups = np.split(values, np.flatnonzero(~near) + 1)
    if not near.any() and len(groups) > SPELLED:
        return typed
    widest = max(float(np.ptp(group)) for group in groups)
    chained = any(float(np.ptp(group)) > NOISE * abs(float(group[0])) for group in groups)
    if chained or ((~near).any() and float(gaps[~near].min()) < APART * widest):
        return typed
    shortest: dict[float, float] = {}
    for group in groups:
        short = _shortest(group)
        shortest |= dict.fromkeys(map(float, group), short)
    return {
        raw: shortest[value] if isinstance(value, float) else value for raw, value in typed.items()
    }


def _shortest(group: FloatArray) -> float:
    """The number with the fewest digits that all of a group may have been."""
    middle = float(group[len(group) // 2])
    for digits in range(1, 17):
        short = float(f"{middle:.{digits}g}")
        if all(abs(short - float(value)) <= NOISE * abs(middle) for value in group):
            # Alone, only one that ends in noise: 0.30000001192 of 32 bits, not 0.3000004.
            noisy = len(group) > 1 or f"{middle:.{digits + 3}g}" == f"{middle:.{digits}g}"
            return short if noisy else middle
    return middle


_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")


def _number(raw: Raw) -> int | float | None:
    if isinstance(raw, tuple) or (isinstance(raw, str) and _LEADING_ZERO.fullmatch(raw)):
        return None  # 0012 is a name
    try:
        number = number_in(raw)
    except ValueError:
        return None
    if isinstance(number, float):
        return number + 0.0
    return number if number is None or number in INT64 else float(number)


def _itself(raw: Raw) -> Scalar | tuple[Scalar, ...]:
    return raw


def _prose(raw: Raw) -> Scalar:
    if _is_missing(raw):
        return None
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
    "%b %d, %Y %I:%M %p",
    "%b %d, %Y %I:%M:%S %p",
    "%b %d, %Y, %I:%M:%S %p",
    "%a %b %d %H:%M:%S UTC %Y",
    "%Y-%m-%d_%H-%M-%S",
    "%Y%m%d-%H%M%S",
    "%Y年%m月%d日 %H:%M:%S",
    "%Y年%m月%d日 %H:%M",
    "%Y年%m月%d日",
)


def _time_form(seen: Mapping[Raw, int]) -> str | None:
    """The form in which a column has times; ``None`` when it has none.

    A few words are no hindrance: Slurm ends a job that still runs at "Unknown".
    """
    texts = [raw for raw in seen if isinstance(raw, str) and not is_nothing(raw)]
    times = [text for text in texts if re.search(r"\d[-/.:年]\d", text)]
    words = len(texts) - len(times)
    if not times or len(texts) < len(seen) - 3 or words > 3 or 4 * words > len(times):
        return None
    for most_damaged in (0, int(DAMAGED * len(times))):
        for form in _FORMS:
            if sum(_moment(text, form) is None for text in times) <= most_damaged:
                return form
    return None


def _moment(raw: Raw, form: str) -> str | None:
    try:
        return read_time(raw, form, UTC).isoformat()  # type: ignore[arg-type]  # no tuples here
    except ValueError:
        return None
