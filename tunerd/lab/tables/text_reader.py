"""Texts that are read line by line, whatever they are compressed and encoded with.

Memory is constant, and no line ends the reading: what is too long is told, and skipped.
"""

import errno
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.files import open_regular
from tunerd.lab.tables.encodings import Encoding, encoding_of
from tunerd.lab.tables.rows import shortened

__all__ = [
    "SAMPLE",
    "TextReader",
    "is_comment",
    "open_text",
    "text_encoding",
    "told_by_excel",
    "unpacked",
]

MAX_LINE = 1 << 20
"""Characters of one line. What is longer is no row, and would take memory."""

MOST_SKIPPED = 32 << 20
"""Characters of a line that is skipped. What is longer ends the reading: a gigabyte of one byte
packs into a megabyte, and takes half a minute."""

SAMPLE = 64 << 10
_COMMENT = re.compile(r"\s*(?:#|//|==\w+==)")
"""What lines begin with that are for people; NVIDIA's profilers and valgrind say who speaks."""


def is_comment(line: str) -> bool:
    """Whether a line is for people, by its beginning."""
    return _COMMENT.match(line) is not None


_TOLD = re.compile(r"\"?sep=([,;|\t])\"?", re.IGNORECASE)


def told_by_excel(line: str) -> str:
    """The delimiter that Excel's own first line says; "" for any other line."""
    match = _TOLD.fullmatch(line.rstrip("\r\n"))
    return "" if match is None else match[1]


class TextReader:
    """A text file that is being read, and how much of the file on disk has been."""

    def __init__(self, raw: IO[bytes], plain: IO[bytes], encoding: str, errors: str) -> None:
        self.raw = raw
        self.text = io.TextIOWrapper(plain, encoding, errors, newline="")
        self.taken: list[str] = []
        """The lines of the row that is being read, for a person to look at."""
        self.ended = False
        """Whether the file ended in the middle of that row."""
        self.lines = 0
        """Lines read so far."""
        self._again: list[str] = []
        """Lines to read once more, the next one last."""

    def __iter__(self) -> "TextReader":
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self.text.readline(MAX_LINE)
        if not line:
            self.ended = bool(self.taken)
            raise StopIteration
        self.lines += 1
        self.taken.append(line)
        if len(line) >= MAX_LINE:
            if line[-1] not in "\r\n":
                self.taken[-1] += "\n"  # read once more, it is as long and has no more to skip
                self._skip()
            raise ValueError(f"is longer than {MAX_LINE:,} characters")
        return line

    def _skip(self) -> None:
        """Read to the end of a line that is too long. Raises OSError where there is none."""
        for _ in range(MOST_SKIPPED // MAX_LINE):
            line = self.text.readline(MAX_LINE)
            if len(line) < MAX_LINE or line[-1] in "\r\n":
                return
        problem = f"line {self.lines} is longer than {MOST_SKIPPED:,} characters; is this a table?"
        raise OSError(errno.EFBIG, problem)

    def told_delimiter(self) -> str:
        """What Excel's own first line, ``sep=;``, says: it is taken, and is no header.

        "" where there is none.
        """
        line = self.text.readline(MAX_LINE)
        if delimiter := told_by_excel(line):
            self.lines += 1
            return delimiter
        self._again.append(line)
        return ""

    def keep_one_line(self) -> None:
        """Take the first line alone for the row that is being read, and read the others again."""
        self._again += reversed(self.taken[1:])
        self.lines -= len(self.taken) - 1
        del self.taken[1:]
        self.ended = False

    @property
    def line(self) -> int:
        """The number of the line at which the row that is being read begins, from 1."""
        return self.lines - len(self.taken) + 1

    @property
    def commented(self) -> bool:
        """Whether the row that is being read begins as comments do."""
        return bool(self.taken) and is_comment(self.taken[0])

    def shown(self) -> str:
        """The row that is being read, as it stands in the file."""
        return shortened("".join(self.taken[:64])).rstrip("\r\n")


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file, and what is in it when it is compressed (gzip or Zstandard, told by content).

    Raises MisconfiguredError when the file or what is in it cannot be read, then or later.
    """
    try:
        with open_regular(path) as raw:
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
            [ValidationProblem(str(path), f"its compression is broken: {error}")]
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise MisconfiguredError(
            [ValidationProblem(str(path), f"cannot be read: {why}")]
        ) from error


@contextmanager
def open_text(path: Path) -> Iterator[TextReader]:
    """Open a text table, whatever it is compressed and encoded with."""
    encoding = text_encoding(path)
    with unpacked(path) as (raw, plain):
        yield TextReader(raw, plain, *encoding)


def text_encoding(path: Path) -> Encoding:
    """How a text table is encoded. Raises MisconfiguredError when it cannot be opened."""
    try:
        status = path.stat()
    except OSError as error:
        raise MisconfiguredError(
            [ValidationProblem(str(path), f"cannot be read: {error}")]
        ) from error
    return _encoding(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _encoding(path: Path, size: int, changed_ns: int) -> Encoding:  # noqa: ARG001 - of the cache
    with unpacked(path) as (_, plain):
        return encoding_of(_blocks(plain))


def _blocks(plain: IO[bytes]) -> Iterator[bytes]:
    """Its bytes, up to where its compression is broken: whoever reads it to there will say so."""
    with suppress(EOFError, OSError, zlib.error):
        while block := plain.read(1 << 20):
            yield block
