"""The database below the store: connections, transactions, errors, and all that differs by dialect.

SQLite runs in WAL mode with ``synchronous=FULL``: a commit survives a power cut and costs one
fsync, whatever it holds. Writers take the lock when they begin (``BEGIN IMMEDIATE``), so that
none fails in the middle because another was first. PostgreSQL runs READ COMMITTED; what must not
run twice at once locks its row.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url

from tunerd.errors import MisconfiguredError, StoreUnavailableError, ValidationProblem
from tunerd.store.error_messages import explain
from tunerd.store.store_file import StoreFile, make_store_file

__all__ = ["Database", "instant_text"]

_SQLITE = "sqlite:///"

LOCK_TIMEOUT_S = 30
"""Longest wait for another writer; ours hold a lock for milliseconds."""
SQLITE_CACHE_KIB = 8_192
"""Page cache of one connection; what it misses is in the system's page cache as a rule."""
POOL_SIZE = 4
"""Connections kept open: one for each thread that usually is at work."""


class Database:
    """One SQL database. Safe to use from several threads; not to be carried through a fork.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://USER@HOST:PORT/DATABASE``.
        password: for PostgreSQL; never shown in an error.
        create: whether a SQLite file that is missing is made.

    Raises:
        MisconfiguredError: the URL names no database that tunerd can use.
    """

    def __init__(self, url: str, password: str | None = None, *, create: bool = True) -> None:
        parsed = _parse(url)
        self.path: Path | None = None
        """The SQLite file; None on PostgreSQL."""
        self._file: StoreFile | None = None
        if isinstance(parsed, Path):
            self.path = parsed.absolute()
            self.place = str(self.path)
            self._secret = ""
            make_store_file(self.path, create)
            self._file = StoreFile(self.path)
            self.engine = _sqlite_engine(self.path)
        else:
            self.place = f"{parsed.host or 'local socket'}:{parsed.port or 5432}/{parsed.database}"
            self._secret = password or str(parsed.password or "")
            from tunerd.store.postgres import postgres_engine

            self.engine = postgres_engine(parsed, password, POOL_SIZE, LOCK_TIMEOUT_S)
        self.longest_pause_s: float | None = None
        """After so long without a word within a transaction that writes, PostgreSQL ends it: a
        process that is paused there keeps rows locked. None leaves it to the connection."""
        self._writing = threading.Lock()
        self._writer = 0

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a SQLite file."""
        return self.path is not None

    @property
    def placeholder(self) -> str:
        """How the driver marks a positional parameter."""
        return "?" if self.is_sqlite else "%s"

    def native(self, instant: datetime) -> object:
        """An instant as statements that go around SQLAlchemy's types must give it."""
        text = instant_text(instant)
        return text if self.is_sqlite else instant

    def insert(self, table: sa.Table) -> "sqlite.Insert | postgresql.Insert":
        """An INSERT that knows ``ON CONFLICT``, which both databases write alike, and says in
        ``rowcount`` how many rows it wrote."""
        insert = sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)
        return insert.execution_options(preserve_rowcount=True)

    def now(self, connection: sa.Connection) -> datetime:
        """The database's own clock, which all instances share."""
        if self.is_sqlite:
            statement = "SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"
            return datetime.fromisoformat(str(connection.exec_driver_sql(statement).scalar_one()))
        now = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        assert isinstance(now, datetime)
        return now.astimezone(UTC)

    def lock(self, connection: sa.Connection, what: str) -> None:
        """Keep others that ask for the same from going on until this transaction ends; in SQLite
        it does so itself."""
        if not self.is_sqlite:
            statement = (
                "SELECT pg_advisory_xact_lock("
                "hashtextextended(:what || ' ' || current_schema(), 0))"
            )
            connection.execute(sa.text(statement), {"what": f"tunerd {what}"})

    def watch(self) -> None:
        """From now on the files of a SQLite store must stay the ones that they are.

        Raises:
            StoreUnavailableError: the database cannot be read.
        """
        if self._file is not None:
            with self.explained():
                self._file.watch(self.engine)

    def check(self) -> None:
        """Make sure that the store still is the one that was opened.

        Raises:
            StoreUnavailableError: its file was deleted or replaced, or its folder renamed.
        """
        if self._file is not None:
            self._file.check()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection to read from; in SQLite all that it reads is of one moment.

        Raises:
            StoreUnavailableError: the database cannot be reached or read.
        """
        self.check()
        with self.explained(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A connection that reads all of one moment, however long it takes.

        Raises:
            StoreUnavailableError: the database cannot be reached or read.
        """
        with self.reading() as connection:
            if not self.is_sqlite:  # there a transaction is of one moment as it is
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: committed at the end of the block, rolled back when it raises.

        Raises:
            StoreUnavailableError: the database cannot be reached or written. If the connection
                broke during the commit, whether it took place is unknown: read again.
            RuntimeError: this thread already is in a transaction.
        """
        self.check()
        with self._turn(), self.explained(), self.engine.connect() as connection:
            connection.execution_options(tunerd_writes=True)
            with connection.begin():
                if self.longest_pause_s is not None and not self.is_sqlite:
                    pause_ms = int(self.longest_pause_s * 1000)
                    connection.exec_driver_sql(
                        f"SET LOCAL idle_in_transaction_session_timeout = {pause_ms}"
                    )
                yield connection
        self.check()  # a commit into a file that is gone meanwhile must not be acknowledged

    def close(self) -> None:
        """Close all pooled connections."""
        if self._file is not None:
            self._file.unwatch()
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Threads of this process queue here: SQLite would have them poll, up to 0.1 s a turn."""
        if not self.is_sqlite:
            yield
            return
        if self._writer == threading.get_ident():
            raise RuntimeError("a transaction inside a transaction would wait for itself")
        if not self._writing.acquire(timeout=LOCK_TIMEOUT_S):
            raise StoreUnavailableError(
                f"{self.place}: another thread has been writing for {LOCK_TIMEOUT_S} s"
            )
        self._writer = threading.get_ident()
        try:
            yield
        finally:
            self._writer = 0
            self._writing.release()

    @contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            sentence = explain(error, self._secret)
            if sentence is None:
                raise
            raise StoreUnavailableError(f"{self.place}: {sentence}") from error


def instant_text(instant: datetime) -> str:
    """An instant as SQLite keeps it: UTC, of fixed width, so that it sorts as text."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no zone; the store takes aware times only")
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat(timespec="microseconds")


def _parse(url: str) -> URL | Path:
    """The parts of a URL; of SQLite's only the path, which is taken as it stands: ``%``, ``?`` and
    ``#`` are letters of a folder's name."""
    wrong = None
    try:
        if url.startswith(_SQLITE):
            path = url.removeprefix(_SQLITE)
            if path not in ("", ":memory:"):
                return Path(path)
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        wrong = "is not a database URL"
    else:
        backend = parsed.get_backend_name()
        if backend == "sqlite":
            wrong = "would forget everything; name a file"
        elif backend != "postgresql":
            wrong = f"{backend} is not supported"
    if wrong:
        right = "should be sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE"
        raise MisconfiguredError([ValidationProblem("store.url", f"{wrong}; {right}")])
    return parsed


def _sqlite_engine(path: Path) -> sa.Engine:
    # As a URI, so that a file that was deleted meanwhile is not made anew, empty.
    uri = f"file:{quote(os.fsencode(path))}?mode=rw"
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        ),
        hide_parameters=True,
        poolclass=sa.pool.QueuePool,
        pool_size=POOL_SIZE,
        pool_use_lifo=True,  # the connection whose cache is warm
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # One text that is damaged must not end the reading of all others.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"cache_size=-{SQLITE_CACHE_KIB}",
            "journal_size_limit=67108864",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("tunerd_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
