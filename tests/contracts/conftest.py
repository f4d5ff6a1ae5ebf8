"""The stores that the contract suite runs over: the same tests, SQLite and PostgreSQL."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.servers.postgres import Databases
from tunerd.store import Store, open_store
from tunerd.store.tables import metadata


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_databases: Databases) -> str:
    """A database with tunerd's schema; emptied for each test, which is quicker than a new one."""
    url = postgres_databases.create()
    open_store(url).close()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with tunerd's schema; copied for each test, which is quicker than migrating."""
    path = tmp_path_factory.mktemp("store") / "template.sqlite"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> str:
    """URL of an empty store; each test runs with both kinds."""
    if request.param == "sqlite":
        shutil.copy(sqlite_template, tmp_path / "store.sqlite")
        return f"sqlite:///{tmp_path}/store.sqlite"
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
