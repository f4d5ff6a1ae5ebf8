"""What the parts of the store share: a part that reads borrows a connection, a part that writes
lives on the connection of its transaction."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa

from tunerd.store.engine import Database

__all__ = ["StoreReads", "StoreWrites"]


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

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        yield self._connection
