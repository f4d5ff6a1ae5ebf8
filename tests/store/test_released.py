"""Stores of every released schema, migrated: every row is there as it was, and can be read."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from tests.store.released import SCHEMAS, migrations, restore
from tunerd.store import Store, open_store
from tunerd.store.schema import VERSION_TABLE

JOBS = 60


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.sqlite"
    made: str = request.getfixturevalue("postgres_url")
    return made


def test_every_schema_has_its_store() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(migrations(connection)).walk_revisions()
        schemas = sorted(script.revision for script in scripts)
    # Of the newest there is one only when it is released.
    assert SCHEMAS in (schemas, schemas[:-1]), "python -m tests.store.released.make"


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_migrating_changes_no_row(schema: str, url: str) -> None:
    restore(schema, url)
    before = content(url)
    assert len(before["observations"]) == JOBS
    with open_store(url) as store:
        readable(store)
    after = content(url)
    assert before.keys() <= after.keys()
    for table, rows in before.items():
        kept = [{key: row[key] for key in rows[0]} for row in after[table]]
        assert kept == rows
    with open_store(url, upgrade=False):  # whoever only looks takes it for one of today
        pass


def content(url: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of each table, in the order of its key."""
    engine, tables = sa.create_engine(url), sa.MetaData()
    with engine.connect() as connection:
        tables.reflect(connection)
        read = {
            table.name: [
                dict(row._mapping)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            for table in tables.sorted_tables
            if table.name != VERSION_TABLE
        }
    engine.dispose()
    return read


def readable(store: Store) -> None:
    """Everything that was kept comes out as today's code wants it."""
    jobs = store.observations("toy", limit=10_000)
    assert [job.sequence for job in jobs] == list(range(1, JOBS + 1))
    assert sum(job.recommendation_id is not None for job in jobs) == 12
    assert {row.context_key for row in store.recommendations("toy")} == {
        f"toy|n={n}" for n in (4, 8, 16)
    }
    (command,) = store.commands("toy", pending=False)
    assert command.why == "to see it after an upgrade"
    assert command.finished_at is not None
    assert not store.outbox_depths()
