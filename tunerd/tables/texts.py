"""Tables that are text: CSV with any delimiter, and JSON lines, plain or compressed.

Read line by line in constant memory. What no line may do is end the reading: a line that is no
row is yielded as :class:`Unreadable`, and reading goes on after it.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from tunerd.errors import MisconfiguredError, Problem
from tunerd.tables.rows import Row, Unreadable, flattened, shortened

__all__ = ["OpenText", "csv_rows", "json_rows", "open_text", "sniffed", "unpacked"]

MAX_LINE = 1 << 20
"""Characters of one line. What is longer is no row, and would take memory."""

SAMPLE = 64 << 10
DELIMITERS = ",\t;|"
MISSING = frozenset({"", "NaN", "nan", "NULL", "null", "N/A", "#N/A", "<NA>", "\\N"})
"""How programs write a missing value into a CSV. Not ``NA`` and ``None``, which are values of
categories too; where numbers belong those cannot be used either."""

_TOLD = re.compile(r"\"?sep=([,;|\t])\"?", re.IGNORECASE)

_UTF8 = ("utf-8-sig", "surrogateescape")  # what is not UTF-8 spoils its line and no other


class OpenText:
    """A text file that is being read, and how much of the file on disk has been."""

    def __init__(self, raw: IO[bytes], plain: IO[bytes], encoding: str, errors: str) -> None:
        self.raw = raw
        self.text = io.TextIOWrapper(plain, encoding, errors, newline="")
        self.taken: list[str] = []
        """The lines of the row that is being read, for a person to look at."""
        self.ended = False
        """Whether the file ended in the middle of that row."""
        self._again: list[str] = []
        """Lines to read once more, the next one last."""

    def __iter__(self) -> "OpenText":
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self.text.readline(MAX_LINE)
        if not line:
            self.ended = bool(self.taken)
            raise StopIteration
        self.taken.append(line)
        if len(line) >= MAX_LINE:
            if line[-1] not in "\r\n":
                self.taken[-1] += "\n"  # read once more, it is as long and has no more to skip
                while len(line) == MAX_LINE and line[-1] not in "\r\n":
                    line = self.text.readline(MAX_LINE)
            raise ValueError(f"is longer than {MAX_LINE:,} characters")
        return line

    def told_delimiter(self) -> str:
        """What Excel's own first line, ``sep=;``, says: it is taken, and is no header.

        "" where there is none.
        """
        line = self.text.readline(MAX_LINE)
        if found := _TOLD.fullmatch(line.rstrip("\r\n")):
            return found[1]
        self._again.append(line)
        return ""

    def keep_one_line(self) -> None:
        """Take the first line alone for the row that is being read, and read the others again."""
        self._again += reversed(self.taken[1:])
        del self.taken[1:]
        self.ended = False

    def shown(self) -> str:
        """The row that is being read, as it stands in the file."""
        return shortened("".join(self.taken[:64])).rstrip("\r\n")


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file, and what is in it when it is compressed (gzip or Zstandard, told by content).

    Raises MisconfiguredError when the file or what is in it cannot be read, then or later.
    """
    try:
        with path.open("rb") as raw:
            start = raw.read(4)
            raw.seek(0)
            if start[:2] == b"\x1f\x8b":
                with gzip.open(raw) as plain:
                    yield raw, cast("IO[bytes]", plain)
            elif start == b"\x28\xb5\x2f\xfd":
                import pyarrow  # the only reader here that notices a truncated file

                with pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd") as plain:
                    yield raw, cast("IO[bytes]", io.BufferedReader(plain))
            else:
                yield raw, raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise MisconfiguredError(
            [Problem(str(path), f"its compression is broken: {error}")]
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise MisconfiguredError([Problem(str(path), f"cannot be read: {why}")]) from error


@contextmanager
def open_text(path: Path) -> Iterator[OpenText]:
    """Open a text table, whatever it is compressed and encoded with (UTF-8, or UTF-16 by mark)."""
    with unpacked(path) as (raw, plain):
        buffered: Any = plain if hasattr(plain, "peek") else io.BufferedReader(cast("Any", plain))
        mark = buffered.peek(2)[:2]
        wide = mark in (b"\xff\xfe", b"\xfe\xff")
        yield OpenText(raw, buffered, *(("utf-16", "replace") if wide else _UTF8))


def sniffed(sample: str, first: str) -> str:
    """The delimiter of a CSV: what splits its header and most of its lines alike.

    ``first`` wins where none does, and ties.
    """
    best, delimiter = (0.0, 0), first
    for one in dict.fromkeys(first + DELIMITERS):
        reader = csv.reader(io.StringIO(sample, newline=""), delimiter=one)
        counts: list[int] = []
        with suppress(csv.Error):  # a sample cut within quotes, or too long a field: count so far
            counts.extend(len(fields) for fields in reader if fields)
        if counts and counts[0] > 1:
            body = counts[1:-1] or counts[1:] or counts  # the sample may end in a line's middle
            alike = sum(count == counts[0] for count in body) / len(body)
            if (round(alike, 1), counts[0]) > best:
                best, delimiter = (round(alike, 1), counts[0]), one
    return delimiter


def csv_rows(file: OpenText, columns: Sequence[str], delimiter: str) -> Iterator[Row | Unreadable]:
    """The rows after the header."""
    file.told_delimiter()
    lines = _csv_lines(file, delimiter)
    next(lines, None)
    for number, (fields, mistake) in enumerate(lines, 1):
        reason = mistake
        if not reason and len(fields) != len(columns):
            reason = f"has {len(fields)} fields, the header has {len(columns)}"
        if len(file.taken) > 1 and (reason or file.ended):
            # One quotation mark too many would take the lines up to the next one with it.
            file.keep_one_line()
            reason = "opens a quotation that does not end in the line"
        elif not reason and not _is_text(fields):
            reason = "is not UTF-8"
        if reason:
            yield Unreadable(number, reason, file.shown())
        else:
            values = (None if (text := field.strip()) in MISSING else text for field in fields)
            yield Row(number, dict(zip(columns, values, strict=True)))


def _csv_lines(file: OpenText, delimiter: str) -> Iterator[tuple[list[str], str]]:
    """Fields of each record that is not empty, or what is wrong with it."""
    reader = csv.reader(file, delimiter=delimiter)
    while True:
        file.taken.clear()
        try:
            fields, mistake = next(reader), ""
        except StopIteration:
            return
        except (csv.Error, ValueError) as error:
            fields, mistake = [], str(error)
        if fields or mistake:
            yield fields, mistake


def _is_text(fields: Sequence[str]) -> bool:
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        return False
    return True


def json_rows(file: OpenText) -> Iterator[Row | Unreadable]:
    """One row for each line that is a JSON object."""
    for number, (line, mistake) in enumerate(_json_lines(file), 1):
        reason = mistake
        if not reason:
            try:
                values = flattened(_object(line))
            except RecursionError:
                reason = "is nested too deeply"
            except ValueError as error:
                reason = str(error)
        yield Unreadable(number, reason, file.shown()) if reason else Row(number, values)


def _json_lines(file: OpenText) -> Iterator[tuple[str, str]]:
    while True:
        file.taken.clear()
        try:
            line, mistake = next(file), ""
        except StopIteration:
            return
        except ValueError as error:
            line, mistake = "", str(error)
        if mistake or line.strip():
            yield line, mistake


def _object(line: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
    except msgspec.DecodeError as error:
        try:  # Python's own writer puts NaN where a number is missing
            found = json.loads(line, parse_constant=lambda _: None)
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("has half of a surrogate pair") from None
        except ValueError:
            raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return found
