"""What the parts of the store share: a part that reads borrows a connection, a part that writes
lives on the connection of its transaction."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from tunerd.store.engine import Database

__all__ = ["StoreReads", "StoreWrites", "chunks"]

T = TypeVar("T")


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """These in parts: one statement takes so many at most."""
    return (values[start : start + size] for start in range(0, len(values), size))


class StoreReads:
    """Base of the parts that read; used by the store and, inside a transaction, by its writers."""

    _database: Database

    def _reading(self) -> AbstractContextManager[sa.Connection]:
        return self._database.reading()


class StoreWrites(StoreReads):
    """Base of the parts that write. Everything that they do is one transaction's."""

    def __init__(self, database: Database, connection: sa.Connection) -> None:
        self._database = database
        self._connection = connection

    def no_later(self, now: datetime) -> datetime:
        """This moment, or the database's where that is earlier: to an instance whose clock is far
        ahead, all that is young looks old. The clock of SQLite is this machine's."""
        return now if self._database.is_sqlite else min(now, self._database.now(self._connection))

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        yield self._connection
