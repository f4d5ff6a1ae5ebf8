"""What an import has read and not yet sent, in a file: a killed import goes on where it was.

A million jobs fit into no list, and dated ones are sent oldest first; so they lie in a SQLite file
that sorts them. With every few thousand rows the file also says how far reading and sending are.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import msgspec

from tunerd.errors import AlreadyRunningError, StoreUnavailableError
from tunerd.files import append_to, make_folder

__all__ = ["ImportProgress", "ImportSpool", "SpooledJob"]

CACHE_KIB = 65_536
MOST_COUNTED = 100
"""Reasons that are told apart."""
_TABLES = """
CREATE TABLE IF NOT EXISTS tally (one INTEGER PRIMARY KEY CHECK (one = 1), json BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    place INTEGER PRIMARY KEY, at INTEGER NOT NULL, event_id TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL, file INTEGER NOT NULL, row INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS alike (
    file INTEGER, event_id TEXT, many INTEGER NOT NULL, PRIMARY KEY (file, event_id))
    WITHOUT ROWID;
"""


class ImportProgress(msgspec.Struct, kw_only=True):
    """How far an import is, and what came of the rows."""

    stage: Literal["reading", "sending", "sent"] = "reading"
    file: int = 0
    """The table that is being read …"""
    row: int = 0
    """… and its last row that was."""
    rows: int = 0
    usable: int = 0
    measured: int = 0
    """Usable ones with a usable objective."""
    impossible: int = 0
    """Usable ones whose objective has a value that it cannot have."""
    in_space: int = 0
    """Usable ones whose configuration lies in the study's space."""
    outside: dict[str, int] = msgspec.field(default_factory=dict)
    """The other usable ones, by reason."""
    repeated: int = 0
    """Usable ones that stand in an earlier table too."""
    statuses: dict[str, int] = msgspec.field(default_factory=dict)
    unusable: dict[str, int] = msgspec.field(default_factory=dict)
    """By reason."""
    rejects_bytes: int = 0
    """Length of the rejects file."""
    at: int = -(2**63)
    """Time and place of the last job that was handled …"""
    place: int = 0
    handled: int = 0
    """… and how many were."""
    sent: int = 0
    known: int = 0
    """Not sent, because history has them."""
    conflicts: int = 0
    """Not sent, because history has them with other content."""


@dataclass(frozen=True, slots=True)
class SpooledJob:
    """One job to send."""

    at: int
    """When it finished, in microseconds since 1970."""
    event_id: str
    hash: str
    """Of its content."""
    file: int
    row: int
    body: bytes
    """The job event."""
    place: int = 0


class ImportSpool:
    """The file of one import; one process at a time has it."""

    def __init__(self, path: Path) -> None:
        """Open it, or begin it.

        Raises:
            AlreadyRunningError: another process does this import right now.
            StoreUnavailableError: the file cannot be written.
        """
        self.path = path
        try:
            make_folder(path.parent)
            os.close(append_to(path))
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None)
            for pragma in (
                "locking_mode=EXCLUSIVE",
                "journal_mode=WAL",
                "synchronous=NORMAL",
                f"cache_size=-{CACHE_KIB}",
                "wal_autocheckpoint=16384",
            ):
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.executescript(_TABLES)
            self._connection.execute("BEGIN IMMEDIATE")
            tally = self._connection.execute("SELECT json FROM tally").fetchone()
        except (OSError, sqlite3.Error) as error:
            if "locked" in str(error):
                raise AlreadyRunningError(
                    f"these tables are being imported by another process ({path})"
                ) from None
            raise StoreUnavailableError(f"{path}: {error}") from error
        self.tally = (
            ImportProgress()
            if tally is None
            else msgspec.json.decode(tally[0], type=ImportProgress)
        )
        self.resumed = tally is not None
        self._named: dict[str, int] = {}
        """Tables of the event ids that were asked for and are not added yet."""

    def add(self, jobs: Sequence[SpooledJob]) -> int:
        """Add jobs; says how many of them were not there yet."""
        self._named.clear()
        before = self._connection.total_changes
        self._connection.executemany(
            "INSERT OR IGNORE INTO jobs (at, event_id, hash, file, row, body)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [(job.at, job.event_id, job.hash, job.file, job.row, job.body) for job in jobs],
        )
        return self._connection.total_changes - before

    def place_among_alike(self, file: int, event_id: str) -> int:
        """The how-manieth row with this id this is in a table, counted from 1. Nearly all are the
        first: only the others are written down."""
        first = self._named.get(event_id)
        if first is None:
            row = self._connection.execute(
                "SELECT file FROM jobs WHERE event_id = ?", (event_id,)
            ).fetchone()
            if row is None:
                self._named[event_id] = file
                return 1
            (first,) = row
        before = 1 if first == file else 0
        (place,) = self._connection.execute(
            "INSERT INTO alike VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET many = many + 1 RETURNING many",
            (file, event_id, before + 1),
        ).fetchone()
        return int(place)

    def sorted(self) -> None:
        """All jobs are here: get ready to give them out oldest first."""
        self._connection.execute("DELETE FROM alike")
        self._connection.execute("CREATE INDEX IF NOT EXISTS by_time ON jobs (at, place)")

    def count(self) -> int:
        """How many jobs there are."""
        (count,) = self._connection.execute("SELECT count(*) FROM jobs").fetchone()
        return int(count)

    def next(self, many: int) -> list[SpooledJob]:
        """The next jobs to send: those after ``tally.at`` and ``tally.place``."""
        rows = self._connection.execute(
            "SELECT at, event_id, hash, file, row, body, place FROM jobs"
            " WHERE (at, place) > (?, ?) ORDER BY at, place LIMIT ?",
            (self.tally.at, self.tally.place, many),
        )
        return [SpooledJob(*row) for row in rows]

    def rename(self, jobs: Sequence[SpooledJob]) -> None:
        """Take over the event ids that these jobs have by now, and what follows from them."""
        self._connection.executemany(
            "UPDATE jobs SET event_id = ?, hash = ?, body = ? WHERE place = ?",
            [(job.event_id, job.hash, job.body, job.place) for job in jobs],
        )

    def milestones(self, many: int) -> Iterator[tuple[int, str]]:
        """About so many event ids, evenly spread over the order of sending, each with how many
        jobs there are up to it; the last one is among them."""
        total = self.count()
        places = sorted({total * part // many for part in range(1, many + 1)} - {0})
        with closing(self._connection.cursor()) as cursor:
            rows = cursor.execute("SELECT event_id FROM jobs ORDER BY at, place")
            wanted = iter(places)
            following = next(wanted, 0)
            for place, (event_id,) in enumerate(rows, 1):
                if place == following:
                    yield place, event_id
                    following = next(wanted, 0)

    def save(self) -> None:
        """Make everything since the last time safe."""
        self._connection.execute(
            "INSERT INTO tally VALUES (1, ?) ON CONFLICT DO UPDATE SET json = excluded.json",
            (msgspec.json.encode(self.tally),),
        )
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")

    def remove(self) -> None:
        """The import is over."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file; what was not saved is forgotten."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def count_into(counts: dict[str, int], name: str) -> None:
    """Count one; what is rare beyond a bound goes together."""
    if name not in counts and len(counts) >= MOST_COUNTED:
        name = "other reasons"
    counts[name] = counts.get(name, 0) + 1
