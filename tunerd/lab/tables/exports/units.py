"""Tables in which one quantity has several units: ``0.3 GB/s`` beside ``950 MB/s``, a unit in a
column of its own (``5``, ``ms``), or a column for each (``latency_ms`` and ``latency_s``).

All become the base unit (s, B, tokens/s), so that two files of one kind mean the same.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tunerd.core.observation import Value
from tunerd.lab.tables.column_names import read_name, unit_of, words
from tunerd.lab.tables.exports.base import (
    DetectedExport,
    ExportFormat,
    Reshape,
    TableHead,
    each_row,
    is_numeric,
)

__all__ = ["EXPORTER", "SECONDS", "base_of", "mixed_units", "units_beside"]

_PLAIN: dict[str, tuple[str, float]] = {
    name: (base, factor)
    for base, factor, names in (
        ("s", 1e-12, "ps"),
        ("s", 1e-9, "ns nsec nsecond nanosecond nanoseconds"),
        ("s", 1e-6, "us µs μs usec usecond microsecond microseconds"),
        ("s", 1e-3, "ms msec msecond millisecond milliseconds"),
        ("s", 1.0, "s sec secs second seconds"),
        ("s", 60.0, "min mins minute minutes"),
        ("s", 3_600.0, "h hr hour hours"),
        ("s", 86_400.0, "d day days"),
        ("B", 1.0, "b byte bytes"),
        ("B", 1e3, "kb kbyte kbytes"),
        ("B", 1e6, "mb mbyte mbytes"),
        ("B", 1e9, "gb gbyte gbytes"),
        ("B", 1e12, "tb tbyte tbytes"),
        ("B", 2.0**10, "kib"),
        ("B", 2.0**20, "mib"),
        ("B", 2.0**30, "gib"),
        ("B", 2.0**40, "tib"),
        ("bits", 1.0, "bit bits"),
        ("bits", 1e3, "kbit kbits"),
        ("bits", 1e6, "mbit mbits"),
        ("bits", 1e9, "gbit gbits"),
        ("FLOP", 1.0, "flop"),
        ("FLOP", 1e6, "mflop"),
        ("FLOP", 1e9, "gflop"),
        ("FLOP", 1e12, "tflop"),
        ("FLOP", 1e15, "pflop"),
        ("J", 1.0, "j joule joules"),
        ("J", 1e3, "kj"),
        ("J", 3.6e6, "kwh"),
        ("Hz", 1.0, "hz"),
        ("Hz", 1e6, "mhz"),
        ("Hz", 1e9, "ghz"),
    )
    for name in names.split()
}
SECONDS = {name: factor for name, (base, factor) in _PLAIN.items() if base == "s"}
"""Of units of time."""
_PREFIXES = {"k": 1e3, "M": 1e6}
_BITS = re.compile(r"[kKMGT]?b(?:ps|/.*)?")
"""A small b is a bit for some, and a byte for others."""
_CELL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([^\d\s.,:+-][^\d]{0,23})")
_OF_UNITS = re.compile(r"(.*?)[ ._-]*units?", re.IGNORECASE)
_OWN = ("s", "B")
"""What durations and sizes are in: cells of these have a notation of their own."""


def base_of(unit: str) -> tuple[str, float] | None:
    """The base unit of a unit, and how many of it one is; ``None`` where nobody knows it."""
    bare = unit.strip()
    if _BITS.fullmatch(bare):
        return None
    if (plain := _PLAIN.get(bare.lower())) is not None:
        return plain
    noun, _, rest = unit_of(bare).partition("/")
    second, *per = rest.split("/")
    before, _, thing = noun.rpartition(" ")
    base, factor = _PLAIN.get(thing.lower(), (thing, 1.0))
    time, seconds = _PLAIN.get(second, ("", 1.0))
    if time != "s" or base == "s" or before not in ("", *_PREFIXES):
        return None
    return "/".join([base, "s", *per]), factor * _PREFIXES.get(before, 1.0) / seconds


def units_beside(head: TableHead) -> dict[str, str]:
    """The unit of each column that has one in the column beside it, the same in each row."""
    pairs = {value: set(map(str, head.values(unit))) for value, unit in _beside(head)}
    return {value: units.pop() for value, units in pairs.items() if len(units) == 1}


def mixed_units(name: str, values: Sequence[object]) -> list[str]:
    """The units of one quantity that a column of units has; none where it has one, or others."""
    units = [str(value) for value in values]
    of_units = len(units) > 1 and _OF_UNITS.fullmatch(name) is not None
    return units if of_units and _of_one(units, all_of=len(units)) else []


def _beside(head: TableHead) -> Iterator[tuple[str, str]]:
    """Columns of numbers with that of their units: ``latency.value``, ``latency.unit``."""
    for place, column in enumerate(head.columns):
        match = _OF_UNITS.fullmatch(column)
        if match is None or not head.values(column):
            continue
        own = [match[1], f"{match[1]}.value", f"{match[1]}_value"]
        if not match[1]:  # what is measured stands before it, or behind
            own = [*head.columns[max(place - 1, 0) : place], *head.columns[place + 1 : place + 2]]
            own.sort(key=lambda name: -read_name(name).weight("measured"))
        value = next((name for name in own if name in head.columns), None)
        if value is not None and is_numeric(head.values(value)):
            yield value, column


def _of_one(units: Sequence[str], *, all_of: int) -> str:
    """The base unit that units have in common; "" where one has another, or is none."""
    bases = {base[0] if (base := base_of(unit)) else "" for unit in set(units)}
    return bases.pop() if len(bases) == 1 and len(units) == all_of else ""


def _cells(head: TableHead, column: str) -> list[str]:
    """The units of the cells of a column that has a unit behind each number."""
    texts = [value for value in head.values(column) if isinstance(value, str)]
    return [match[2] for text in texts if (match := _CELL.fullmatch(text.strip()))]


def _alike(head: TableHead) -> dict[str, list[str]]:
    """Columns of one quantity in several units, of which each row has one; by the name for all."""
    groups: dict[str, list[str]] = {}
    for column in head.columns:
        unit = unit_of(column)
        if unit and (base := base_of(unit)) is not None:
            noun = {word for part in (unit, base[0]) for word in words(part)}
            stem = " ".join(word for word in words(column) if word not in noun)
            groups.setdefault(f"{stem} ({base[0]})" if stem else base[0], []).append(column)
    return {
        name: columns
        for name, columns in groups.items()
        if len(columns) > 1
        and (name in columns or name not in head.columns)
        and all(is_numeric(head.values(column)) for column in columns)
        and all(sum(row.values.get(c) is not None for c in columns) < 2 for row in head.rows)
    }


def _asked(head: TableHead) -> DetectedExport | None:
    beside = {
        value: (unit, base)
        for value, unit in _beside(head)
        if (base := _of_one(list(map(str, head.values(unit))), all_of=len(head.values(unit))))
    }
    inside = {
        column: base
        for column in head.columns
        if (units := _cells(head, column))
        and (base := _of_one(units, all_of=len(head.values(column)))) not in ("", *_OWN)
    }
    alike = _alike(head)
    if not beside and not inside and not alike:
        return None
    gone = {unit for unit, _ in beside.values()} | {c for those in alike.values() for c in those}
    bases = {value: base for value, (_, base) in beside.items()} | inside
    bases |= {name: name.rpartition("(")[2].rstrip(")") for name in alike}
    reshape = _in_base(bases, {value: unit for value, (unit, _) in beside.items()}, alike, gone)
    columns = (*(c for c in head.columns if c not in gone), *alike)
    shown = ", ".join(f"{column} in {base}" for column, base in list(bases.items())[:4])
    return DetectedExport(
        "units",
        "a table with one quantity in several units",
        tuple(gone | inside.keys())[:3],
        reshape=reshape,
        units=bases,
        columns=columns,
        notes=(f"numbers are in the base unit: {shown}",),
    )


def _recognise(head: TableHead) -> DetectedExport | None:
    units = [head.values(unit) for _, unit in _beside(head)]
    units += [_cells(head, column) for column in head.columns]
    several = any(len(set(map(str, those))) > 1 for those in units)
    return _asked(head) if several or _alike(head) else None


def _in_base(
    bases: Mapping[str, str],
    beside: Mapping[str, str],
    alike: Mapping[str, Sequence[str]],
    gone: set[str],
) -> Reshape:
    def of_row(row: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: value for name, value in row.items() if name not in gone}
        for column, base in bases.items():
            number: Value
            unit: Value
            if column in alike:
                given = ((row.get(name), unit_of(name)) for name in alike[column])
                number, unit = next((pair for pair in given if pair[0] is not None), (None, ""))
            elif column in beside:
                number, unit = row.get(column), row.get(beside[column])
            else:
                match = _CELL.fullmatch(str(row.get(column) or "").strip())
                number, unit = match.groups() if match else (row.get(column), "")
            values[column] = _scaled(number, str(unit or ""), base)
        return values

    return each_row(of_row)


def _scaled(value: Value, unit: str, base: str) -> Value:
    """A number in its base unit; what is none, and what has no such unit, as it stands."""
    known = base_of(unit)
    if value is None or known is None or known[0] != base:
        return value if value is None or not is_numeric([value]) else None
    return float(str(value)) * known[1] if is_numeric([value]) else value


EXPORTER = ExportFormat("units", _recognise, asked=_asked)
