"""The database below the store: connections, transactions, errors, and all that differs by dialect.

SQLite runs in WAL mode with ``synchronous=FULL``: a commit survives a power cut and costs one
fsync, whatever it holds. Writers take the lock when they begin (``BEGIN IMMEDIATE``), so that
none fails in the middle because another was first. PostgreSQL runs READ COMMITTED; what must not
run twice at once locks its row.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url

from tunerd.errors import MisconfiguredError, Problem, StoreUnavailableError
from tunerd.store.explain import RUN_AS_OWNER, explain

__all__ = ["Database", "give_to_owner", "instant_text"]

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
        if parsed.get_backend_name() == "sqlite":
            self.path = Path(str(parsed.database)).absolute()
            self.place = str(self.path)
            self._secret = ""
            self.engine = _sqlite_engine(self.path, create)
        else:
            self.place = f"{parsed.host or 'local socket'}:{parsed.port or 5432}/{parsed.database}"
            self._secret = password or str(parsed.password or "")
            from tunerd.store.postgres import postgres_engine

            self.engine = postgres_engine(parsed, password, POOL_SIZE, LOCK_TIMEOUT_S)
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

    def lock_schema(self, connection: sa.Connection) -> None:
        """Keep others from migrating until this transaction ends; in SQLite it does so itself."""
        if not self.is_sqlite:
            connection.exec_driver_sql(
                "SELECT pg_advisory_xact_lock("
                "hashtextextended('tunerd schema ' || current_schema(), 0))"
            )

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection to read from; in SQLite all that it reads is of one moment.

        Raises:
            StoreUnavailableError: the database cannot be reached or read.
        """
        with self.explained(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: committed at the end of the block, rolled back when it raises.

        Raises:
            StoreUnavailableError: the database cannot be reached or written. If the connection
                broke during the commit, whether it took place is unknown: read again.
            RuntimeError: this thread already is in a transaction.
        """
        with self._turn(), self.explained(), self.engine.connect() as connection:
            connection.execution_options(tunerd_writes=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all pooled connections."""
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


def give_to_owner(path: Path) -> None:
    """What root made beside a store belongs to whoever the folder belongs to: a command that root
    typed must not keep out the daemon's user. SQLite does so with the files that it adds."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        with suppress(OSError):  # a root without that right, as containers and NFS have
            os.chown(path, folder.st_uid, folder.st_gid)


def _parse(url: str) -> URL:
    wrong = None
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        wrong = "is not a database URL"
    else:
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
            wrong = "would forget everything; name a file"
        elif backend not in ("sqlite", "postgresql"):
            wrong = f"{backend} is not supported"
    if wrong:
        right = "should be sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE"
        raise MisconfiguredError([Problem("store.url", f"{wrong}; {right}")])
    return parsed


def _sqlite_engine(path: Path, create: bool) -> sa.Engine:
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.touch()  # an empty database
                give_to_owner(path)
        elif not path.exists():
            raise MisconfiguredError(
                [Problem("store.url", f"{path} does not exist; `tunerd run` makes it")]
            )
    except OSError as error:
        why = f"{error.strerror}; {RUN_AS_OWNER}" if isinstance(error, PermissionError) else error
        raise StoreUnavailableError(f"store.url: {path}: {why}") from error
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": LOCK_TIMEOUT_S, "isolation_level": None},
        hide_parameters=True,
        pool_size=POOL_SIZE,
        pool_use_lifo=True,  # the connection whose cache is warm
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
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
