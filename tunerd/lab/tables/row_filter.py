"""Rows of a table that are no jobs, told by the rows around them: units, totals, ruled lines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunerd.core.observation import Value
from tunerd.lab.tables.rows import TableRow
from tunerd.lab.tables.vocabulary import word_set

__all__ = ["RowFilter", "is_unit", "strays"]


_TOTALS = word_set("""
    total totals sum sums grand_total overall subtotal gesamt summe insgesamt somme
""")
"""What only the last row of a table is called."""
_STATISTICS = word_set("""
    aggregated mean average avg median min max minimum maximum std stdev stddev count mittelwert 25%
    50% 75% geomean variance all
""")
"""What such a row may be called, and a setting too: told by where it stands."""
_UNIT_WORDS = word_set("""
    s sec secs second seconds ms us µs ns min mins minute minutes h hr hrs hour hours day
    days b byte bytes kb mb gb tb kib mib gib tib kbyte mbyte gbyte bit bits gbit mbit gb/s
    mb/s kb/s gbit/s mbit/s gib/s mib/s tok token tokens tok/s tokens/s token/s samples/s
    images/s img/s req/s reqs/s requests/s ops ops/s iops qps tps rps fps it/s steps/s flops
    gflops tflops gflop/s tflop/s gflops/s flop/s hz khz mhz ghz w kw watt watts j kj joule
    joules wh kwh % percent pct count counts number num n/a - -- none usd eur $ € k m °c c
    kelvin int integer float double str string text bool boolean number object category
    int64 float64 int32 float32 i64 i32 u64 u32 f64 f32 real numeric varchar char date
    datetime timestamp unit units [-] (-) 1 m/s mm cm km cores gpus nodes threads ranks procs
    processes cycles
""")
_BRACKETED = re.compile(r"[\[(<{][^\[\](){}<>]{0,20}[\])>}]")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """How the rows of one table that are no jobs are told."""

    units: Mapping[str, str] = field(default_factory=dict)
    """What the row under the header says, without what says nothing."""
    units_row: Mapping[str, Value] | None = None
    numeric: frozenset[str] = frozenset()
    """Columns that hold numbers in the first rows, and nothing else."""
    full: frozenset[str] = frozenset()
    """Columns that have a value in each of the first rows."""
    first: str | None = None
    """The first column."""
    usual: frozenset[str] = frozenset()
    """What stands in the first column more than once."""

    def why_none(self, row: TableRow) -> str | None:
        """Why a row is no job; ``None`` when it is one."""
        if self.units_row is not None and row.values == self.units_row:
            return "units under the header"
        given = [(column, value) for column, value in row.values.items() if value is not None]
        column, value = given[0] if given else ("", None)
        if not isinstance(value, str):
            return None
        empty = sum(row.values.get(other) is None for other in self.full)
        if len(given) == 1 and column in self.numeric and empty > 1 and not _number(value):
            return f"a note ({value.strip()[:20]})"
        return self._total(row, column, value)

    def _total(self, row: TableRow, column: str, value: str) -> str | None:
        word = value.strip().rstrip(":").lower().replace(" ", "_")
        if word not in _TOTALS and word not in _STATISTICS:
            return None
        gaps = any(row.values.get(other) is None for other in self.full)
        certain = word in _TOTALS and column == self.first and value not in self.usual
        if column in self.numeric or gaps or certain:
            return f"a row of totals ({value.strip()[:20]})"
        return None


def strays(head: Sequence[TableRow]) -> RowFilter:
    """How to tell the rows that are no jobs, by the first rows of a table."""
    if not head:
        return RowFilter()
    columns = list(head[0].values)
    body = head[1:]
    numeric = {column for column in columns if _is_numeric(body, column)}
    units = _units(head[0], numeric, _are_texts(body))
    rest = body if units is not None else head
    full = {c for c in columns if len(rest) > 2 and not _gaps(rest[:-2], c)}
    plain = frozenset(c for c in numeric if units is not None or _number(head[0].values.get(c)))
    firsts = [str(row.values.get(columns[0])) for row in rest] if columns else []
    return RowFilter(
        {n: unit.strip("[](){}<> ") for n, unit in (units or {}).items() if _says_something(unit)},
        None if units is None else dict(head[0].values),
        plain,
        frozenset(full),
        columns[0] if columns else None,
        frozenset(unit_of for unit_of in set(firsts) if firsts.count(unit_of) > 1),
    )


def _are_texts(rows: Sequence[TableRow]) -> bool:
    """Whether rows are of a CSV, and several."""
    values = (value for row in rows for value in row.values.values())
    return len(rows) > 2 and all(value is None or isinstance(value, str) for value in values)


def _gaps(rows: Sequence[TableRow], column: str) -> bool:
    return any(row.values.get(column) is None for row in rows)


def _is_numeric(rows: Sequence[TableRow], column: str) -> bool:
    """Whether a column holds numbers in nearly all rows; the last two may be totals."""
    values = [row.values.get(column) for row in rows[:-2] or rows]
    there = [value for value in values if value is not None]
    return bool(there) and all(map(_number, there))


_LIKE_A_NUMBER = re.compile(r"[+-]?[$€£]?\s?[.,]?\d[\d.,:'\u202f\u00a0 eE+-]*\s?[A-Za-zµ%/]{0,12}")


def _number(value: Value) -> bool:
    """Whether a value is a number, in whatever notation: 1.5, 1.024,5, 01:09:48, 16G."""
    if isinstance(value, bool | list):
        return False
    return value is not None and _LIKE_A_NUMBER.fullmatch(str(value)) is not None


def _units(row: TableRow, numeric: set[str], of_text: bool) -> dict[str, str] | None:
    """What a row says where it has nothing but units, one of them where numbers belong. In a table
    of text these are units too if nothing stands where texts belong."""
    texts = {name: value.strip() for name, value in row.values.items() if isinstance(value, str)}
    if len(texts) != sum(value is not None for value in row.values.values()):
        return None
    if not any(name in numeric and not _number(text) for name, text in texts.items()):
        return None
    above_numbers = numeric.issuperset(texts) and not any(map(_number, texts.values()))
    apart = of_text and above_numbers and len(row.values) > len(numeric)
    return texts if apart or all(map(is_unit, texts.values())) else None


def is_unit(text: str) -> bool:
    """Whether a text is a unit or a type, as tables have them below their header."""
    return bool(_BRACKETED.fullmatch(text)) or text.lower() in _UNIT_WORDS


def _says_something(unit: str) -> bool:
    plain = unit.strip("[](){}<> ")
    kinds = (
        "int integer float double str string text bool boolean object category number numeric real"
    )
    nothing = {"", "-", "--", "none", "n/a", "1", "unit", "units", *kinds.split()}
    return plain.lower() not in nothing and not plain.lower().startswith(("int", "float"))
