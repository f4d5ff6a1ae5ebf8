"""Rewriting a compacted topic's file to the last value of each key."""

import contextlib
import logging
import os
from pathlib import Path

from tunerd.files import open_regular
from tunerd.streams.jsonl.envelope import LINE_LIMIT, key_of
from tunerd.streams.jsonl.lines import LineReader

__all__ = ["compact", "sync_folder"]

log = logging.getLogger(__name__)

LINES = 1000


def compact(path: Path) -> int:
    """Rewrite the file if that would make it at most half as large. Returns what is alive of it.

    Lines of each key but the last go, and so do tombstones and lines that nobody can read; what
    stays keeps its order. Nobody may append meanwhile; readers see the old file or the new one.
    Raises OSError and leaves the file as it was.
    """
    alive = _alive(path)
    size = sum(end - start for start, end in alive)
    if 2 * size > path.stat().st_size:
        return size
    temporary = path.with_name(f".{path.name}.compacting")
    try:
        temporary.unlink(missing_ok=True)  # of a process that was killed, or a trap
        with open_regular(path) as old, temporary.open("xb") as new:
            for start, end in alive:
                old.seek(start)
                new.write(old.read(end - start))
            new.flush()
            was = os.fstat(old.fileno())
            os.fchmod(new.fileno(), was.st_mode & 0o7777)
            with contextlib.suppress(PermissionError):  # nobody but root may give it away
                os.fchown(new.fileno(), was.st_uid, was.st_gid)
            os.fsync(new.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(path.parent)
    return size


def sync_folder(folder: Path) -> None:
    """Make names in a folder safe: a new file's, or one that was replaced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(path: Path) -> list[tuple[int, int]]:
    """Byte ranges of the lines that stay, in order. In memory are keys, not values."""
    last: dict[str | None, tuple[int, int] | None] = {}
    unreadable = 0
    reader = LineReader(path, limit=LINE_LIMIT)
    try:
        while lines := reader.lines(LINES, LINE_LIMIT):
            for line in lines:
                try:
                    key, freed = key_of(line.text)
                except ValueError:
                    unreadable += 1
                    continue
                last[key] = None if freed else (line.start, line.end)
    finally:
        reader.close()
    if unreadable:
        log.warning("%s has %d lines that are no messages; compacting drops them", path, unreadable)
    return sorted(place for place in last.values() if place is not None)
