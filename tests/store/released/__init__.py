"""Stores as daemons of every released schema left them. ``make`` says how they were made."""

import gzip
import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

import tunerd.store.migrations
from tunerd.store.schema import VERSION_TABLE

__all__ = ["FOLDER", "SCHEMAS", "migrations", "restore", "stored_ledger"]

FOLDER = Path(__file__).parent
SCHEMAS = sorted(file.name.partition(".")[0] for file in FOLDER.glob("*.sql.gz"))


def stored_ledger(schema: str) -> dict[str, Any] | None:
    """What `tunerd ledger --json` of that time said; None of versions that had no ledger."""
    file = FOLDER / f"{schema}.ledger.json"
    if not file.exists():
        return None
    ledger: dict[str, Any] = json.loads(file.read_text())
    return ledger


def restore(schema: str, url: str) -> None:
    """Put the store of a schema into a new SQLite file or an empty database of PostgreSQL."""
    dump = gzip.decompress((FOLDER / f"{schema}.sql.gz").read_bytes()).decode()
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as file:
            file.executescript(dump)
        return
    engine = sa.create_engine(url)
    with closing(sqlite3.connect(":memory:")) as file, engine.begin() as connection:
        file.executescript(dump)
        file.row_factory = sqlite3.Row
        command.upgrade(migrations(connection), schema)
        _copy(file, connection)
    engine.dispose()


def migrations(connection: sa.Connection) -> Config:
    """What Alembic needs to migrate on a connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(tunerd.store.migrations.__path__[0])))
    config.attributes["connection"] = connection
    return config


def _copy(file: sqlite3.Connection, connection: sa.Connection) -> None:
    tables = sa.MetaData()
    tables.reflect(connection)
    for table in tables.sorted_tables:
        if table.name == VERSION_TABLE:
            continue
        rows = file.execute(f"SELECT * FROM {table.name}").fetchall()  # noqa: S608
        if rows:
            values = [{key: _value(table.c[key], row[key]) for key in row.keys()} for row in rows]  # noqa: SIM118
            connection.execute(sa.insert(table), values)
        if "id" in table.c:
            connection.exec_driver_sql(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "  # noqa: S608
                f"(SELECT greatest(max(id), 1) FROM {table.name}))"
            )


def _value(column: sa.Column[Any], value: Any) -> Any:
    """As PostgreSQL's driver wants what SQLite keeps as text or a number."""
    if value is None:
        return None
    if isinstance(column.type, sa.TIMESTAMP):
        return datetime.fromisoformat(value)
    return bool(value) if isinstance(column.type, sa.Boolean) else value
