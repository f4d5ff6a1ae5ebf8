"""The file of a SQLite store: made for its owner alone, and noticed when it is gone.

SQLite goes on writing into a file that was deleted, or renamed with its folder: every commit
succeeds, and nothing of it is there after a restart. So the names are compared with what was
opened, before and after every transaction: three looks at a folder, some microseconds.
"""

import os
from pathlib import Path

import sqlalchemy as sa

from tunerd.errors import MisconfiguredError, StoreUnavailableError, ValidationProblem
from tunerd.files import append_to, make_folder
from tunerd.store.error_messages import RUN_AS_OWNER

__all__ = ["StoreFile", "make_store_file"]

_BESIDE = ("", "-wal", "-shm")
"""What SQLite has beside the file while somebody has it open; the log holds the latest commits."""


def make_store_file(path: Path, create: bool) -> None:
    """Make an empty store file when it is missing; or, without ``create``, refuse that.

    Raises:
        MisconfiguredError: there is none, and it may not be made.
        StoreUnavailableError: it cannot be made.
    """
    try:
        if path.exists():
            return
        if not create:
            raise MisconfiguredError(
                [
                    ValidationProblem(
                        "store.url",
                        f"{path} does not exist: no daemon has been here; `tunerd run` makes it",
                    )
                ]
            )
        make_folder(path.parent)
        os.close(append_to(path))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, PermissionError):
            why = f"{why}; {RUN_AS_OWNER}"
        raise StoreUnavailableError(f"store.url: {path}: {why}") from error


class StoreFile:
    """The files of one open store. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._paths = tuple(f"{path}{suffix}" for suffix in _BESIDE)
        self._opened: tuple[tuple[int, int] | None, ...] | None = None
        self._keeper: sa.Connection | None = None

    def watch(self, engine: sa.Engine) -> None:
        """Remember what is there now. A connection stays open meanwhile: as long as one does,
        SQLite itself removes nothing."""
        self._keeper = engine.connect()
        self._keeper.detach()
        self._keeper.exec_driver_sql("SELECT count(*) FROM sqlite_master").close()
        self._keeper.rollback()
        self._opened = tuple(map(_identity, self._paths))

    def unwatch(self) -> None:
        """Let go of it."""
        self._opened = None
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def check(self) -> None:
        """Make sure that each file is the one that was opened.

        Raises:
            StoreUnavailableError: one is not. It says what to do.
        """
        opened = self._opened
        if opened is None:
            return
        for name, before in zip(self._paths, opened, strict=True):
            now = _identity(name)
            if now != before:
                raise StoreUnavailableError(_lost(self._path, name, now is None))


def _identity(name: str) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none, or one that was emptied."""
    try:
        status = os.stat(name)
    except OSError:
        return None
    emptied = status.st_size == 0 and not name.endswith(_BESIDE[1])
    return None if emptied else (status.st_dev, status.st_ino)


def _lost(path: Path, name: str, missing: bool) -> str:
    what = (
        "is gone: it was deleted or emptied, or its folder renamed"
        if missing
        else ("is another file than the one that tunerd opened: it was replaced")
    )
    then = (
        "put it back, and tunerd goes on; or stop tunerd, restore a backup, and start it again"
        if missing
        else "stop tunerd, see that the right store is there, and start it again"
    )
    if name != str(path):
        what += ", and with it the latest commits, which only the running tunerd still has"
        then = "stop tunerd, which writes them into the store, and start it again"
    return f"{name} {what}; nothing is written or acknowledged any more: {then}"
