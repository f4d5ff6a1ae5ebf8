"""Reading whole lines from a file that grows: in order, in bounded memory, never half of one."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tunerd.files import open_regular
from tunerd.streams.base import KEPT_BYTES, MAX_VALUE_BYTES

__all__ = ["FileLine", "LineReader", "identity", "last_line", "next_line"]

CHUNK_BYTES = 1024 * 1024
TAIL_BYTES = 1024


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line without its newline; ``start`` and ``end`` are where it and the next one begin.

    Of an oversize line ``text`` is the first 64 KiB and ``sha256`` is set; ``size`` is as it was.
    """

    start: int
    end: int
    text: bytes
    size: int
    sha256: str | None


def identity(status: os.stat_result) -> str:
    """The name of a file that survives renaming: device and inode."""
    return f"{status.st_dev}:{status.st_ino}"


class LineReader:
    """Reads one open file from a position on.

    The file stays open, so renaming or removing it loses nothing that was written to it. An
    unfinished line is read again when there is more of it (its writer may take it back); only of
    one that is oversize already is a beginning kept.
    """

    def __init__(self, path: Path, offset: int = 0, limit: int = MAX_VALUE_BYTES) -> None:
        """Lines of more than ``limit`` bytes are oversize. Raises OSError."""
        self._limit = limit
        self._chunk_bytes = max(CHUNK_BYTES, 2 * limit)  # always more than a line that is not
        self._file = open_regular(path, buffering=0)
        self._descriptor = self._file.fileno()
        self.identity = identity(os.fstat(self._descriptor))
        self.go_to(offset)

    def go_to(self, offset: int) -> None:
        """Read on from a line's beginning."""
        self.offset = offset
        """Behind the last whole line that was given out: where a new reader goes on."""
        self._read_to = offset
        self._long: _LongLine | None = None
        self._tail = self._before(offset)

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._descriptor).st_size

    def was_rewritten(self) -> bool:
        """Tell whether what was read is not there any more (truncated, or written anew)."""
        return self._before(self._read_to) != self._tail

    def lines(self, most: int, most_bytes: int) -> list[FileLine]:
        """Return the next whole lines, without blank ones; [] if there is none yet."""
        file_lines: list[FileLine] = []
        size = 0
        while len(file_lines) < most and size < most_bytes:
            chunk = os.pread(self._descriptor, self._chunk_bytes, self._read_to)
            before = self._read_to
            for line in self._split(chunk, most - len(file_lines)):
                file_lines.append(line)
                size += len(line.text)
            if self._read_to == before:
                break
        if file_lines:
            self.offset = file_lines[-1].end
        self._tail = self._before(self._read_to)
        return file_lines

    def count(self, most_bytes: int) -> int:
        """Return how many lines are unread: counted in ``most_bytes``, from there on estimated."""
        unread = self.size() - self._read_to
        if unread <= 0:
            return 0
        sample = os.pread(self._descriptor, most_bytes, self._read_to)
        lines = sample.count(b"\n")
        return lines if unread <= len(sample) else round(lines * unread / max(1, len(sample)))

    def close(self) -> None:
        self._file.close()

    def _split(self, chunk: bytes, most: int) -> list[FileLine]:
        """Take whole lines from a chunk that begins at ``_read_to``."""
        file_lines: list[FileLine] = []
        begin = 0
        while len(file_lines) < most and begin < len(chunk):
            newline = chunk.find(b"\n", begin)
            if newline >= 0:
                line = self._finish(chunk[begin:newline], self._read_to + newline + 1)
                begin = newline + 1
                if line is not None:
                    file_lines.append(line)
                continue
            rest = chunk[begin:]
            if self._long is None and len(rest) > self._limit:
                self._long = _LongLine(self._read_to + begin)
            if self._long is not None:
                self._long.add(rest)
                begin = len(chunk)
            break
        self._read_to += begin
        return file_lines

    def _finish(self, rest: bytes, end: int) -> FileLine | None:
        long, self._long = self._long, None
        if long is None and len(rest) > self._limit:
            long = _LongLine(end - len(rest) - 1)
        if long is not None:
            long.add(rest)
            return FileLine(long.start, end, long.head, long.size, long.sha256())
        return FileLine(end - len(rest) - 1, end, rest, len(rest), None) if rest.strip() else None

    def _before(self, offset: int) -> bytes:
        begin = max(0, offset - TAIL_BYTES)
        return os.pread(self._descriptor, offset - begin, begin)


class _LongLine:
    """An oversize line, of which only the beginning is kept."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.head = b""
        self.size = 0
        self._hash = hashlib.sha256()

    def add(self, text: bytes) -> None:
        if not self.size:
            self.head = text[:KEPT_BYTES]  # the first part is larger than this
        self.size += len(text)
        self._hash.update(text)

    def sha256(self) -> str:
        return self._hash.hexdigest()


def next_line(path: Path, offset: int) -> int:
    """Return where the first line begins that does not begin before ``offset``. Raises OSError."""
    if offset <= 0:
        return 0
    with open_regular(path) as file:
        file.seek(offset - 1)
        while (part := file.readline(CHUNK_BYTES)) and not part.endswith(b"\n"):
            pass
        return file.tell()


def last_line(path: Path, end: int) -> FileLine | None:
    """Return the line that ends at ``end``, or None if no line ends there. Raises OSError."""
    with open_regular(path, buffering=0) as file:
        start = _start_of_line(file.fileno(), end)
    if start is None:
        return None
    reader = LineReader(path, start)
    try:
        file_lines = reader.lines(1, 1)
    finally:
        reader.close()
    return file_lines[0] if file_lines and file_lines[0].end == end else None


def _start_of_line(descriptor: int, end: int) -> int | None:
    if end <= 0 or os.pread(descriptor, 1, end - 1) != b"\n":
        return None
    position = end - 1
    while position > 0:
        begin = max(0, position - CHUNK_BYTES)
        newline = os.pread(descriptor, position - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        position = begin
    return 0
