"""Who has a store or a folder of streams: one daemon, or on PostgreSQL several that share it.
Whoever cannot have it is told who does.

A file lock is held by the open file and vanishes with its process, however that ends; the file
itself stays and names the last holder. On PostgreSQL it is an advisory lock of a connection.
"""

import contextlib
import fcntl
import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Self

import sqlalchemy as sa

from tunerd.errors import (
    AlreadyRunningError,
    MisconfiguredError,
    StoreUnavailableError,
    ValidationProblem,
)
from tunerd.files import append_to, open_regular
from tunerd.store.engine import Database
from tunerd.store.tables import daemons, instances

__all__ = ["InstanceLock", "folder_guard", "is_held", "share_store", "store_guard"]

MOST_BYTES = 4096
"""Of a lock file; ours have a hundred."""
NO_SCHEMA = (
    "no schema of this user's search_path exists: create one, or name another by "
    "`?options=-csearch_path=NAME` in the URL"
)
BEATS_WITHIN = timedelta(minutes=1)
"""An instance whose last heartbeat is older is not named to whoever is refused."""


class InstanceLock(ABC):
    """A claim. Held until released or until the process ends."""

    @abstractmethod
    def check(self) -> bool:
        """Make sure that the claim still stands; call it every few seconds. Says whether it had to
        be made anew: the database was away, and may be another since.

        Raises:
            AlreadyRunningError: the connection or the lock file was lost and another daemon was
                quicker.
            StoreUnavailableError: the database cannot be reached, or has not yet noticed that
                the connection was lost; or the store's file is gone.
        """

    @abstractmethod
    def release(self) -> None:
        """Give it up; a second time does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def store_guard(database: Database, now: datetime) -> InstanceLock:
    """Claim a store: a lock file beside a SQLite file, an advisory lock on PostgreSQL.

    Raises:
        AlreadyRunningError: names the daemon that has it.
        StoreUnavailableError: the lock cannot be had for another reason, such as that the server
            has not yet noticed that the process that had it is no more.
    """
    if database.path is not None:
        lock = _lock_file(database.path)
        return _FileLock(lock, f"store {database.place}", now, database.check)
    return _AdvisoryLock(database, now)


def share_store(database: Database, instance: str, now: datetime) -> InstanceLock:
    """Claim a store on PostgreSQL together with others, under a name that nobody else has.

    Raises:
        AlreadyRunningError: somebody has it alone, or has the name; says who.
        StoreUnavailableError: as :func:`store_guard`.
    """
    return _AdvisoryLock(database, now, instance)


def is_held(database: Database) -> bool:
    """Whether some daemon has a store. Looks and claims nothing: one that starts at this very
    moment must not find it taken.

    Raises:
        StoreUnavailableError: the database cannot be reached.
    """
    if database.path is not None:
        return _is_locked(_lock_file(database.path))
    statement = (
        "SELECT count(*) FROM pg_locks "  # noqa: S608 - nothing of it comes from outside
        "WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        f"AND (classid::bigint << 32) | objid::bigint = {_AdvisoryLock.KEY}"
    )
    with database.reading() as connection:
        return bool(connection.exec_driver_sql(statement).scalar_one())


def _lock_file(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


def _is_locked(path: Path) -> bool:
    try:
        inode = f":{path.stat().st_ino}"
    except FileNotFoundError:
        return False  # no daemon ever had it
    try:
        # "1: FLOCK  ADVISORY  WRITE 4711 08:01:123456 0 EOF"; a lock is looked at by taking it
        # anywhere else.
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return _cannot_share(path)
    locks = (line.split() for line in lines)
    return any(
        len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(inode) for fields in locks
    )


def _cannot_share(path: Path) -> bool:
    with open_regular(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def folder_guard(folder: Path, now: datetime) -> InstanceLock:
    """Claim a folder of streams, by a lock file in it.

    Raises:
        AlreadyRunningError: names the daemon that has it.
        StoreUnavailableError: the lock file cannot be written.
    """
    return _FileLock(folder / ".tunerd.lock", f"folder {folder}", now)


def _taken(what: str, pid: object, host: object, since: object) -> AlreadyRunningError:
    return AlreadyRunningError(
        f"{what} is in use by another tunerd: process {pid} on {host}, since {since}; "
        "stop that one, or give this one another"
    )


class _FileLock(InstanceLock):
    def __init__(
        self, path: Path, what: str, now: datetime, still_there: Callable[[], None] = lambda: None
    ) -> None:
        self._path, self._what, self._now = path, what, now
        self._still_there = still_there
        """Raises when what is claimed is there no longer."""
        self._descriptor = self._claim()

    def _claim(self) -> int:
        """Lock the file and write into it who we are."""
        try:
            descriptor = append_to(self._path)
        except OSError as error:
            raise StoreUnavailableError(f"{self._path}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _taken(self._what, *_holder(descriptor)) from None
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._now}
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(holder, default=datetime.isoformat).encode())
        except OSError as error:
            os.close(descriptor)
            raise StoreUnavailableError(f"{self._path}: {error.strerror}") from error
        except AlreadyRunningError:
            os.close(descriptor)
            raise
        return descriptor

    def check(self) -> bool:
        """As the interface says. A lock file that was deleted keeps nobody out: it is made and
        locked again."""
        self._still_there()
        before = os.fstat(self._descriptor)
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            now = None
        except OSError as error:
            raise StoreUnavailableError(f"{self._path}: {error.strerror}") from error
        if now is None or (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            descriptor = self._claim()
            os.close(self._descriptor)
            self._descriptor = descriptor
        return False

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _holder(descriptor: int) -> tuple[str, str, str]:
    """Process, machine and time that a lock file names."""
    try:
        holder = json.loads(os.pread(descriptor, MOST_BYTES, 0))
        return tuple(str(holder.get(key, "unknown")) for key in ("pid", "host", "since"))  # type: ignore[return-value]
    except (ValueError, AttributeError):
        return "unknown", "unknown", "unknown"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _first(connection: sa.Connection, statement: sa.Select[Any]) -> Any:
    """The row, where there is one; a store of an older schema need not have the table."""
    (table,) = statement.get_final_froms()
    if not sa.inspect(connection).has_table(str(table)):
        return None
    return connection.execute(statement).one_or_none()


class _AdvisoryLock(InstanceLock):
    KEY = "hashtextextended('tunerd daemon ' || current_schema(), 0)"
    NAME = "hashtextextended('tunerd instance ' || current_schema() || ' ' || :instance, 0)"

    def __init__(self, database: Database, now: datetime, instance: str | None = None) -> None:
        self._database = database
        self._now = now
        self._instance = instance
        """Name of one of several that share the store; None for whoever wants it alone."""
        self._connection: sa.Connection | None = None
        self._claimed = False
        self._entered = False
        self._claim()

    def _claim(self) -> None:
        with self._database.explained():
            connection = self._database.engine.connect()
            try:
                connection.execution_options(isolation_level="AUTOCOMMIT")
                # It leaves the pool, so that closing it ends the session and with it the lock.
                connection.detach()
                self._lock(connection)
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        self._claimed = True

    def _lock(self, connection: sa.Connection) -> None:
        if connection.exec_driver_sql("SELECT current_schema()").scalar_one() is None:
            raise MisconfiguredError([ValidationProblem("store.url", NO_SCHEMA)])
        if self._instance is not None:
            self._share(connection, self._instance)
            return
        got = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({self.KEY})")
        if not got.scalar_one():
            self._refuse(connection)
        self._enter(connection)

    def _enter(self, connection: sa.Connection) -> None:
        """Write down who has the store; in a new one, :meth:`check` does so once it has tables."""
        self._entered = self._instance is not None or sa.inspect(connection).has_table("daemons")
        if self._instance is None and self._entered:
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._now}
            connection.execute(
                self._database.insert(daemons)
                .values(name="daemon", **holder)
                .on_conflict_do_update(index_elements=["name"], set_=holder)
            )

    def _share(self, connection: sa.Connection, instance: str) -> None:
        got = connection.execute(
            sa.text(f"SELECT pg_try_advisory_lock({self.NAME})"), {"instance": instance}
        )
        if not got.scalar_one():
            what = f"instance {instance} of store {self._database.place}"
            statement = sa.select(
                instances.c.pid, instances.c.host, instances.c.started_at.label("since")
            )
            row = _first(connection, statement.where(instances.c.name == instance))
            self._tell(what, row)
        shared = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock_shared({self.KEY})")
        if not shared.scalar_one():
            self._refuse(connection)

    def _refuse(self, connection: sa.Connection) -> NoReturn:
        """Say who has the store: one that has it alone, or the last of those that share it."""
        row = _first(connection, sa.select(daemons))
        if self._instance is None:
            started = instances.c.started_at
            sharing = sa.select(instances.c.pid, instances.c.host, started.label("since"))
            now = self._database.now(connection)
            living = sharing.where(instances.c.heartbeat_at > now - BEATS_WITHIN)
            row = _first(connection, living.order_by(started.desc()).limit(1)) or row
        self._tell(f"store {self._database.place}", row)

    def _tell(self, what: str, row: Any) -> NoReturn:
        if row is None:
            raise _taken(what, "unknown", "unknown", "unknown")
        if self._is_former(row):
            raise StoreUnavailableError(
                f"{what}: the server still has the session of process {row.pid} on this "
                "machine, which lost its connection or has ended; it notices within a minute"
            )
        raise _taken(what, row.pid, row.host, row.since.isoformat())

    def _is_former(self, holder: sa.Row[Any]) -> bool:
        """Whether a claim is this one's own, of a connection that broke, or of a process that is
        no more: nobody is there who could be stopped, and it is over when the server notices."""
        if holder.host != socket.gethostname():
            return False
        same = self._instance is not None or holder.since == self._now
        own = self._claimed and holder.pid == os.getpid() and same
        return own or not _exists(holder.pid)

    def check(self) -> bool:
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("SELECT 1")
                if not self._entered:
                    self._enter(self._connection)
                return False
            except sa.exc.DBAPIError:
                self.release()
        self._claim()
        return True

    def release(self) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        with contextlib.closing(connection), contextlib.suppress(sa.exc.DBAPIError):
            if not connection.invalidated:
                # A server notices that a connection was closed only some time later: who starts
                # next would find the store taken.
                connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
