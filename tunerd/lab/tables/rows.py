"""What a table file yields: rows, and lines that are none."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from tunerd.core.observation import Scalar, Value

__all__ = [
    "NoJob",
    "SkippedRows",
    "TableRow",
    "UnreadableLine",
    "flattened",
    "renumbered",
    "shortened",
    "spelt_out",
]

MAX_SHOWN = 4_096
MOST_LINES = 5
"""Line numbers that are told of rows of one kind."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table."""

    number: int
    """Its place among the data rows and the unreadable lines, from 1."""
    values: Mapping[str, Value]
    """By column, ``None`` where there is none. CSV: text as written, without white space around
    it. JSON lines and Parquet: native values; times as ISO 8601 text."""


@dataclass(frozen=True, slots=True)
class UnreadableLine:
    """A line that is no row."""

    number: int
    reason: str
    text: str
    """As it stands in the file, cut to 4,096 characters; empty when the file has no lines."""


@dataclass(frozen=True, slots=True)
class NoJob:
    """A row of a file that is not of its table."""

    what: str


@dataclass
class SkippedRows:
    """Rows and lines of a table that are no jobs: how many of which kind, and where."""

    counts: dict[str, int] = field(default_factory=dict)
    """By what they are."""
    lines: dict[str, list[int]] = field(default_factory=dict)
    """The first of them, where they have line numbers."""

    def add(self, what: str, line: int | None = None) -> None:
        """Count one."""
        self.counts[what] = self.counts.get(what, 0) + 1
        known = self.lines.setdefault(what, [])
        if line is not None and len(known) < MOST_LINES:
            known.append(line)

    def clear(self) -> None:
        """Count anew."""
        self.counts.clear()
        self.lines.clear()

    def told(self) -> list[str]:
        """A sentence for each kind."""
        return [self._told(what, count) for what, count in self.counts.items()]

    def _told(self, what: str, count: int) -> str:
        several = "is no job" if count == 1 else "are no jobs"
        where = self.lines[what]
        if not where:
            return f"{count:,} {'row' if count == 1 else 'rows'} {several}: {what}"
        more = ", ..." if count > len(where) else ""
        shown = ", ".join(map(str, where)) + more
        return f"{'line' if count == 1 else 'lines'} {shown} {several}: {what}"


def renumbered(rows: Iterable[TableRow | UnreadableLine]) -> Iterator[TableRow | UnreadableLine]:
    """The same with numbers from 1."""
    for number, row in enumerate(rows, 1):
        if isinstance(row, TableRow):
            yield TableRow(number, row.values)
        else:
            yield UnreadableLine(number, row.reason, row.text)


def shortened(text: str) -> str:
    """Text as UTF-8 that can be written, at most ``MAX_SHOWN`` characters of it."""
    return text[:MAX_SHOWN].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def spelt_out(text: str) -> str:
    """Text with the bytes of a file's name that are not UTF-8 as ``\\xff``."""
    return _BYTE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)


_BYTE = re.compile("[\udc80-\udcff]")
"""What Python puts for a byte that is no text."""


def flattened(record: Mapping[str, Any]) -> dict[str, Value]:
    """Columns of a record: ``{"config": {"tp": 4}}`` has the column ``config.tp``, and so has
    ``{"config": [{"name": "tp", "value": 4}]}``.

    Lists of scalars stay lists; other lists become JSON text. Raises ValueError when a name
    comes out twice, RecursionError when it is nested too deeply.
    """
    flat: dict[str, Value] = {}
    for name, given in record.items():
        value = _by_name(given)
        if isinstance(value, Mapping) and value:
            for inner, leaf in flattened(value).items():
                _put(flat, f"{name}.{inner}", leaf)
        else:
            _put(flat, name, _leaf(value))
    return flat


_NAMES = ("name", "key", "parameterid", "parameter_id", "metricid", "metric_id", "parameter")
_VALUES = ("value", "latest")
"""What Vertex, Vizier, Katib, MLflow and Kubernetes call the two halves of an entry, whatever their
case."""
_MOST_ENTRIES, _MOST_HALVES = 200, 6


def _by_name(value: Any) -> Any:
    """A list of names with their values as one record, and a list of one record as this record;
    anything else as it is."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_ENTRIES:
        return value
    if not all(isinstance(entry, Mapping) and entry for entry in value):
        return value
    pairs = [_pair(entry) for entry in value]
    named = dict(pair for pair in pairs if pair is not None)
    if len(named) == len(value):
        return named
    return value[0] if len(value) == 1 else value


def _pair(entry: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The name and the value of an entry that has little more than these."""
    keys = {key.lower(): key for key in entry if isinstance(key, str)}
    names = (entry[keys[name]] for name in _NAMES if name in keys)
    name = next((name for name in names if isinstance(name, str)), "")
    key = next((keys[value] for value in _VALUES if value in keys), None)
    if not 0 < len(name) <= 100 or key is None or len(entry) > _MOST_HALVES:
        return None
    return None if isinstance(entry[key], Mapping | list) else (name, entry[key])


def _put(flat: dict[str, Value], name: str, value: Value) -> None:
    if name in flat:
        raise ValueError(f"has {name!r} twice")
    flat[name] = value


def _leaf(value: Any) -> Value:
    if isinstance(value, list | tuple):
        scalars = [_scalar(item) for item in value]
        if not any(isinstance(item, list | tuple | Mapping) for item in value):
            return scalars
        return json.dumps(value, default=str)
    return _scalar(value)


def _scalar(value: Any) -> Scalar:
    match value:
        case int() if value.bit_length() > 1_023:
            return str(value)  # no float can hold it: a text, as a CSV has it
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else None  # pandas writes what is missing so
        case Decimal():
            return float(value) if value.is_finite() else None
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.decode(errors="replace")
        case Mapping():  # an empty one: the others have been flattened
            return None
        case _:
            return str(value)
