"""One table of old jobs in a file: CSV, JSON, a log or Parquet; text also as gzip or Zstandard.

What the file is, its content says; its name only where the content leaves it open.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.files import open_regular
from tunerd.lab.tables.column_names import without_number
from tunerd.lab.tables.csv_tables import (
    CsvHeader,
    columns_without_names,
    csv_header,
    csv_rows,
    is_prose,
    lines_above,
    sniffed,
)
from tunerd.lab.tables.documents import document_records, is_document, is_log, log_records
from tunerd.lab.tables.encodings import guessed_encoding
from tunerd.lab.tables.exports import ReadOptions, TableHead, recognised
from tunerd.lab.tables.exports.units import units_beside
from tunerd.lab.tables.folders import folder_bytes, folder_digest, folder_rows
from tunerd.lab.tables.header_rows import distinct_names
from tunerd.lab.tables.json_lines import json_rows
from tunerd.lab.tables.merged_cells import MergedCells, merged_columns
from tunerd.lab.tables.not_tables import advice_for
from tunerd.lab.tables.parquet import parquet_columns, parquet_rows
from tunerd.lab.tables.row_filter import strays
from tunerd.lab.tables.rows import (
    NoJob,
    SkippedRows,
    TableRow,
    UnreadableLine,
    renumbered,
    spelt_out,
)
from tunerd.lab.tables.text_reader import (
    SAMPLE,
    is_comment,
    open_text,
    text_encoding,
    unpacked,
)

__all__ = ["Format", "ReadOptions", "TableFile", "TableRow", "UnreadableLine", "open_table"]

Format = Literal["csv", "jsonl", "json", "log", "parquet", "folder"]
LOOKED_AT = 1_000
"""Rows of JSON lines whose keys are the columns; later keys are in the rows all the same."""
HEAD = 200
"""Rows by which a known export is recognised."""

MAX_NAME = 1_000
"""Characters of a column's name."""
AS_IT_STANDS = ReadOptions()
_A_GUESS = ", by its letters; if they look wrong, save it as UTF-8"


class TableFile:
    """A table of old jobs: its columns, and its rows in the order of the file."""

    def __init__(
        self,
        path: Path,
        form: Format,
        columns: Sequence[str | None],
        delimiter: str,
        reading: ReadOptions = AS_IT_STANDS,
        header: CsvHeader | None = None,
    ) -> None:
        self.path = path
        self.form = form
        self.delimiter = delimiter
        """Of a CSV."""
        self.reading = reading
        self.not_jobs = SkippedRows()
        """What the last :meth:`rows` left out, because it is no job."""
        self._fields, self._header = tuple(columns), header
        self._size = folder_bytes(path) if form == "folder" else path.stat().st_size
        self._read = 0
        if form == "csv":
            self._fields = self._without_empty()
        self.columns = tuple(field for field in self._fields if field is not None)
        head = tuple(row for row in islice(self._raw(), HEAD) if isinstance(row, TableRow))
        self._strays = strays(head)
        self._merged = MergedCells(merged_columns(head) if form == "csv" else ())
        kept = tuple(row for row in head if self._strays.why_none(row) is None)
        self.export = recognised(TableHead(self.columns, kept), reading.export, str(path))
        """What it was recognised as, if it was."""
        self._beside = units_beside(TableHead(self.columns, kept))
        if self.export is not None and self.export.columns:
            self.columns = self.export.columns
        self.not_jobs.clear()

    @property
    def units(self) -> Mapping[str, str]:
        """Units of columns, where a row under the header has them, or the export says them."""
        own = {} if self.export is None else self.export.units
        return {**self._strays.units, **self._beside, **own}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content, uncompressed: the table keeps it when it is compressed later."""
        if self.form == "folder":
            return folder_digest(self.path)
        digest = hashlib.sha256()
        with unpacked(self.path) as (_, plain):
            while block := plain.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def progress(self) -> tuple[int, int]:
        """Bytes of the file read by the last :meth:`rows`, and bytes in all."""
        return min(self._read, self._size), self._size

    def rows(self) -> Iterator[TableRow | UnreadableLine]:
        """Every row that is a job, and every line that is no row. Constant memory, but for JSON
        documents, and runs whose reports are joined.

        Raises MisconfiguredError when the file cannot be read to its end.
        """
        self._read = 0
        self.not_jobs.clear()
        rows = self._jobs()
        if self.export is not None and self.export.reshape is not None:
            # Numbers rise whatever was joined: an import that was killed goes on behind one.
            rows = renumbered(self.export.reshape(rows, self.not_jobs, self.reading))
        yield from rows
        self._read = self._size

    def told(self) -> list[str]:
        """Sentences about how it was read: what it was recognised as, what was left out."""
        export = [] if self.export is None else self.export.told(self.reading)
        is_text = self.form not in ("parquet", "folder")
        encoding = guessed_encoding(text_encoding(self.path)) if is_text else ""
        letters = [f"is not UTF-8, and read as {encoding}{_A_GUESS}"] if encoding else []
        given = (self._header or CsvHeader(())).fields
        numbered = [c for c in self.columns if c not in given and c != without_number(c)]
        again = [c for c in numbered if without_number(c) in self.columns]
        alike = [f"has names twice; the later columns are {', '.join(again[:5])}"] if again else []
        return [*export, *letters, *alike, *self._merged.told(), *self.not_jobs.told()]

    def _without_empty(self) -> tuple[str | None, ...]:
        """The columns without those that have no name and no value: `sacct -p` ends lines with
        its delimiter, and tables with a frame begin with it too."""
        names = (self._header or CsvHeader(())).fields
        unnamed = [place for place, name in enumerate(names) if not name]
        if not unnamed:
            return self._fields
        head = [row for row in islice(self._raw(), HEAD) if isinstance(row, TableRow)]
        empty = {
            place
            for place in unnamed
            if all(row.values.get(str(self._fields[place])) is None for row in head)
        }
        return tuple(None if place in empty else name for place, name in enumerate(self._fields))

    def _jobs(self) -> Iterator[TableRow | UnreadableLine]:
        self._merged.begin()
        for row in self._raw():
            if isinstance(row, NoJob):
                self.not_jobs.add(row.what)
                continue
            why = self._strays.why_none(row) if isinstance(row, TableRow) else None
            if why is None:
                yield self._merged.filled(row) if isinstance(row, TableRow) else row
            else:
                self.not_jobs.add(why)

    def _raw(self) -> Iterator[TableRow | UnreadableLine | NoJob]:
        match self.form:
            case "parquet":
                return self._parquet()
            case "json" | "log" | "folder":
                return self._records()
            case _:
                return self._text()

    def _parquet(self) -> Iterator[TableRow | UnreadableLine]:
        for row, share in parquet_rows(self.path):
            self._read = int(share * self._size)
            yield row

    def _records(self) -> Iterator[TableRow | UnreadableLine | NoJob]:
        absent = dict.fromkeys(self._given())
        rows = _RECORDS[self.form](self.path)
        for row in map(_with_names_as_text, rows) if self.form == "folder" else rows:
            yield TableRow(row.number, absent | row.values) if isinstance(row, TableRow) else row  # type: ignore[operator]

    def _given(self) -> Iterator[str]:
        return (field for field in self._fields if field is not None)

    def _text(self) -> Iterator[TableRow | UnreadableLine]:
        absent = dict.fromkeys(self._given())
        with open_text(self.path) as file:
            if self._header is not None:
                rows = csv_rows(file, self._header, self._fields, self.delimiter, self.not_jobs)
            else:
                rows = json_rows(file, self.not_jobs)
            for row in rows:
                self._read = file.raw.tell()
                if self.form == "jsonl" and isinstance(row, TableRow):
                    yield TableRow(row.number, absent | row.values)  # type: ignore[operator]
                else:
                    yield row


def _with_names_as_text(
    row: TableRow | UnreadableLine | NoJob,
) -> TableRow | UnreadableLine | NoJob:
    """A row of a folder with bytes in names of files that are not UTF-8 as ``\\xff``."""
    if isinstance(row, NoJob):
        return row
    if isinstance(row, UnreadableLine):
        return UnreadableLine(row.number, row.reason, spelt_out(row.text))
    values = {
        name: spelt_out(value) if isinstance(value, str) else value
        for name, value in row.values.items()
    }
    return TableRow(row.number, values)


_RECORDS: dict[Format, Callable[[Path], Iterator[TableRow | UnreadableLine | NoJob]]] = {
    "json": document_records,
    "log": log_records,
    "folder": folder_rows,
}


def open_table(path: Path, reading: ReadOptions = AS_IT_STANDS) -> TableFile:
    """Open a table. Raises MisconfiguredError naming the file, and the line where there is one."""
    if path.is_dir():
        keys = _checked(path, _record_keys(path, folder_rows))
        return TableFile(path, "folder", keys, "", reading)
    try:
        open_regular(path).close()
    except FileNotFoundError:
        raise _wrong(path, "there is no such file") from None
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    with unpacked(path) as (raw, _):
        parquet = raw.read(4) == b"PAR1"
    if parquet:
        return TableFile(path, "parquet", _checked(path, parquet_columns(path)), "", reading)
    with open_text(path) as file:
        sample = file.text.read(SAMPLE)
    start = _start_of_table(path, sample, part=reading.part)
    if is_log(start):
        return TableFile(path, "log", _checked(path, _record_keys(path, log_records)), "", reading)
    if is_document(start):
        keys = _record_keys(path, document_records)
        return TableFile(path, "json", _checked(path, keys), "", reading)
    if _without_comments(start).startswith("{"):
        return TableFile(path, "jsonl", _checked(path, _keys(path)), "", reading)
    if _named(path, ".jsonl", ".ndjson", ".json"):
        raise _wrong(path, "line 1 is not a JSON object")
    with open_text(path) as file:
        delimiter = file.told_delimiter()
    delimiter = delimiter or sniffed(sample, "\t" if _named(path, ".tsv", ".tab") else ",")
    if reading.header:
        header = CsvHeader(reading.header, line=0)
    else:
        above = lines_above(sample, delimiter)
        if not above and (unnamed := columns_without_names(sample, delimiter)):
            raise _wrong(path, _NO_NAMES.format(columns=unnamed))
        if not above and (is_prose(sample, delimiter) or _is_yaml(start)):
            raise _wrong(path, _no_table(start))
        header = _header(path, delimiter, above)
    given = [name or f"column_{place}" for place, name in enumerate(header.fields, 1)]
    names = distinct_names(given)
    return TableFile(path, "csv", _checked(path, names), delimiter, reading, header)


_NO_RECORDS = (
    "has no records that could be rows. Write a line for each job below one with the names of the"
    " columns (CSV), or a JSON object a line"
)
_NO_NAMES = (
    "has no names of columns: its first line, of {columns} values, looks like those below. Name"
    " them in their order with --columns threads,batch,time_s or, for an import, with header in"
    " [mapping]; or write that line above the first row"
)


def _start_of_table(path: Path, sample: str, *, part: bool) -> str:
    """The beginning of a text that may be a table."""
    start = sample.lstrip()
    if not start:
        raise _wrong(path, "is empty")
    if "\0" in start.partition("\n")[0]:
        raise _wrong(path, "is neither a text table (CSV, JSON lines) nor Parquet")
    if not part and (advice := advice_for(start)):
        raise _wrong(path, advice)
    return start


def _without_comments(start: str) -> str:
    """A text from the first line that is no comment on."""
    while is_comment(start) and "\n" in start:
        start = start.partition("\n")[2].lstrip()
    return start


MOST_SHOWN = 60
"""Characters of a line that are shown."""


def _no_table(start: str) -> str:
    """What to do about a text that is no table."""
    lines = (line.strip() for line in start[:10_000].splitlines())
    line = next((line for line in lines if re.search(r"\w", line)), "")
    shown = line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}..."
    yaml = " (yq -o json makes JSON of YAML)" if _is_yaml(start) else ""
    return (
        f"its lines are no table that tunerd can read, such as {shown!a}. Write a line for each job"
        f" below one with the names of the columns (CSV), or a JSON object a line{yaml}. Files of"
        " the tools that docs/import.md lists are read as they are"
    )


_YAML_LINE = re.compile(r"\s*(?:- |-$|#|(?:- )?[\w .\"'/-]{1,80}:(?: |$)|---$)")


def _is_yaml(start: str) -> bool:
    """Whether a text is YAML: nearly all of its lines name something or begin an entry, and no
    comma stands between what would be the names of columns."""
    lines = [line for line in start[:10_000].splitlines()[:-1] if line.strip()]
    if len(lines) < 2 or "," in lines[0]:
        return start.startswith(("- ", "---"))
    return all(map(_YAML_LINE.match, lines[:200]))


def _named(path: Path, *suffixes: str) -> bool:
    return not {suffix.lower() for suffix in path.suffixes}.isdisjoint(suffixes)


def _wrong(path: Path, message: str) -> MisconfiguredError:
    return MisconfiguredError([ValidationProblem(str(path), message)])


def _header(path: Path, delimiter: str, above: int) -> CsvHeader:
    """The first line of a CSV that is no comment, nor one of those ``above``; it names columns."""
    import csv

    with open_text(path) as file:
        try:
            header = csv_header(file, delimiter, above)
        except (csv.Error, ValueError) as error:
            raise _wrong(path, f"line {file.line}: {error}") from error
    names = header.fields
    line = f"line {header.line}"
    given = [name for name in names if name]
    if not given:
        raise _wrong(path, f"{line} has no column names")
    if len(given) == 1 and len(names) > 2:
        title = f"{line} names one of {len(names)} columns ({given[0][:60]!r})"
        raise _wrong(path, f"{title}; take out what stands above their names")
    return header


def _record_keys(
    path: Path, records: Callable[[Path], Iterator[TableRow | UnreadableLine | NoJob]]
) -> list[str]:
    names: dict[str, None] = {}
    for row in records(path):
        if isinstance(row, TableRow):
            names.update(dict.fromkeys(row.values))
    if not names:
        raise _wrong(path, _NO_RECORDS)
    return list(names)


def _keys(path: Path) -> list[str]:
    names: dict[str, None] = {}
    problem = None
    with open_text(path) as file:
        for row in json_rows(file, SkippedRows()):
            if row.number > LOOKED_AT:
                break
            if isinstance(row, TableRow):
                names.update(dict.fromkeys(row.values))
            elif problem is None:
                problem = f"line {row.number}: {row.reason}"
    if not names:
        raise _wrong(path, problem or "has objects without a single key")
    return list(names)


def _checked(path: Path, names: Sequence[str]) -> Sequence[str]:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
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
