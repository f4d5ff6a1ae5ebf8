"""The stores that the contract suite runs over: the same tests, SQLite and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.empty_store import empty_store
from tests.servers.postgres import Databases
from tunerd.store import Store, open_store
from tunerd.store.tables import metadata


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_databases: Databases) -> str:
    """A database with tunerd's schema; emptied for each test, which is quicker than a new one."""
    url = postgres_databases.create()
    open_store(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty store; each test runs with both kinds."""
    if request.param == "sqlite":
        return empty_store(tmp_path / "store.sqlite")
    url: str = request.getfixturevalue("shared_postgres_url")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        names = ", ".join(table.name for table in metadata.sorted_tables)
        connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
    engine.dispose()
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store of each kind."""
    with open_store(store_url) as opened:
        yield opened
