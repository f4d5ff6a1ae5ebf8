"""One table of old jobs in a file: CSV, JSON lines or Parquet; text also as gzip or Zstandard.

What the file is, its content says; its name only where the content leaves it open.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from tunerd.core.study.context_key import clean_value
from tunerd.errors import MisconfiguredError, Problem
from tunerd.tables.parquet import parquet_columns, parquet_rows
from tunerd.tables.rows import Row, Unreadable
from tunerd.tables.texts import SAMPLE, csv_rows, json_rows, open_text, sniffed, unpacked

__all__ = ["Format", "Row", "TableFile", "Unreadable", "open_table"]

Format = Literal["csv", "jsonl", "parquet"]
LOOKED_AT = 1_000
"""Rows of JSON lines whose keys are the columns; later keys are in the rows all the same."""

MAX_NAME = 1_000
"""Characters of a column's name."""


class TableFile:
    """A table of old jobs: its columns, and its rows in the order of the file."""

    def __init__(self, path: Path, form: Format, columns: Sequence[str], delimiter: str) -> None:
        self.path = path
        self.form = form
        self.columns = tuple(columns)
        self.delimiter = delimiter
        """Of a CSV."""
        self._size = path.stat().st_size
        self._read = 0

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content, uncompressed: the table keeps it when it is compressed later."""
        digest = hashlib.sha256()
        with unpacked(self.path) as (_, plain):
            while block := plain.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def progress(self) -> tuple[int, int]:
        """Bytes of the file read by the last :meth:`rows`, and bytes in all."""
        return min(self._read, self._size), self._size

    def rows(self) -> Iterator[Row | Unreadable]:
        """Every row, and every line that is none. Constant memory.

        Raises MisconfiguredError when the file cannot be read to its end.
        """
        self._read = 0
        yield from self._parquet() if self.form == "parquet" else self._text()
        self._read = self._size

    def _parquet(self) -> Iterator[Row | Unreadable]:
        for row, share in parquet_rows(self.path):
            self._read = int(share * self._size)
            yield row

    def _text(self) -> Iterator[Row | Unreadable]:
        absent = dict.fromkeys(self.columns)
        with open_text(self.path) as file:
            if self.form == "csv":
                rows = csv_rows(file, self.columns, self.delimiter)
            else:
                rows = json_rows(file)
            for row in rows:
                self._read = file.raw.tell()
                if self.form == "jsonl" and isinstance(row, Row):
                    yield Row(row.number, absent | row.values)  # type: ignore[operator]
                else:
                    yield row


def open_table(path: Path) -> TableFile:
    """Open a table. Raises MisconfiguredError naming the file, and the line where there is one."""
    if not path.is_file():
        problem = "is a folder, not a table" if path.is_dir() else "there is no such file"
        raise _wrong(path, problem)
    with unpacked(path) as (raw, _):
        parquet = raw.read(4) == b"PAR1"
    if parquet:
        return TableFile(path, "parquet", _checked(path, parquet_columns(path)), "")
    with open_text(path) as file:
        sample = file.text.read(SAMPLE)
    start = sample.lstrip()
    if not start:
        raise _wrong(path, "is empty")
    if "\0" in start.partition("\n")[0]:
        raise _wrong(path, "is neither a text table (CSV, JSON lines) nor Parquet")
    if start.startswith("["):
        _refuse_array(path, start)
    if start.startswith("{"):
        return TableFile(path, "jsonl", _checked(path, _keys(path)), "")
    if _named(path, ".jsonl", ".ndjson", ".json"):
        raise _wrong(path, "line 1 is not a JSON object")
    with open_text(path) as file:
        delimiter = file.told_delimiter()
    delimiter = delimiter or sniffed(sample, "\t" if _named(path, ".tsv", ".tab") else ",")
    return TableFile(path, "csv", _checked(path, _header(path, delimiter)), delimiter)


def _named(path: Path, *suffixes: str) -> bool:
    return not {suffix.lower() for suffix in path.suffixes}.isdisjoint(suffixes)


def _wrong(path: Path, message: str) -> MisconfiguredError:
    return MisconfiguredError([Problem(str(path), message)])


def _refuse_array(path: Path, start: str) -> None:
    if start[1:].lstrip().startswith(("{", "]")):
        message = "is one JSON array; write one object a line, for instance with jq -c '.[]'"
        raise _wrong(path, message)


def _header(path: Path, delimiter: str) -> list[str]:
    """Names in the first line of a CSV; a column without one is called by its place."""
    import csv

    with open_text(path) as file:
        file.told_delimiter()
        try:
            fields = next(
                (fields for fields in csv.reader(file, delimiter=delimiter) if fields), []
            )
        except (csv.Error, ValueError) as error:
            raise _wrong(path, f"line 1: {error}") from error
    names = [field.strip() for field in fields]
    given = [name for name in names if name]
    if not given:
        raise _wrong(path, "line 1 has no column names")
    if len(given) == 1 and len(names) > 2:
        title = f"line 1 names one of {len(names)} columns ({given[0][:60]!r})"
        raise _wrong(path, f"{title}; take out what stands above their names")
    if all(clean_value(name, "float") is not None for name in given):
        shown = json.dumps(given[0])
        raise _wrong(
            path, f"line 1 should have the names of the columns, but has numbers ({shown})"
        )
    return [name or f"column_{place}" for place, name in enumerate(names, 1)]


def _keys(path: Path) -> list[str]:
    names: dict[str, None] = {}
    problem = None
    with open_text(path) as file:
        for row in json_rows(file):
            if row.number > LOOKED_AT:
                break
            if isinstance(row, Row):
                names.update(dict.fromkeys(row.values))
            elif problem is None:
                problem = f"line {row.number}: {row.reason}"
    if not names:
        raise _wrong(path, problem or "has objects without a single key")
    return list(names)


def _checked(path: Path, names: Sequence[str]) -> Sequence[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        shown = ", ".join(map(repr, twice[:5]))
        raise _wrong(path, f"has columns with the same name: {shown}; rename them")
    unspeakable = [name for name in names if not _is_unicode(name)]
    if unspeakable:
        raise _wrong(path, f"has column names that are not UTF-8: {unspeakable[0]!a}")
    if any(len(name) > MAX_NAME for name in names):
        raise _wrong(path, f"has column names of more than {MAX_NAME} characters")
    if not names:
        raise _wrong(path, "has no columns")
    return names


def _is_unicode(name: str) -> bool:
    try:
        msgspec.json.encode(name)
    except UnicodeEncodeError:
        return False
    return True
