"""Bringing a database's schema up to date, in one transaction that others wait for."""

import logging
import threading
import time
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from tunerd.errors import MisconfiguredError, StoreUnavailableError, ValidationProblem
from tunerd.store.engine import Database

__all__ = ["HEAD", "VERSION_TABLE", "check_schema", "upgrade_schema"]

HEAD = "0010"
"""The newest migration. Known here so that a start on an up-to-date store need not import Alembic
(0.3 s); a test compares it with the migrations."""

VERSION_TABLE = "tunerd_schema"
"""Not Alembic's default name, in case the database is shared."""

TRIES, LOCK_MS = 20, 3000
"""A migration locks whole tables, which older daemons write to meanwhile, in an order of their own.
It waits for a lock no longer than this, since they wait behind it, and then begins again."""
_DEADLOCK, _LOCK_TIMEOUT = "40P01", "55P03"
_TAKEN = ("42P07", "42710")


class _LargeIndex(NamedTuple):
    """An index on a table that may be large."""

    revision: str
    """Of the migration that wants it, and makes it where it is not there."""
    name: str
    on: str
    column: str
    """Of the table ``observations``; before there is such a column there is nothing to build."""


LARGE_INDEXES = (
    _LargeIndex(
        "0008",
        "ix_observations_study_corrects",
        "observations (study, corrects) WHERE corrects IS NOT NULL",
        "corrects",
    ),
)
TURN_S = 0.5
ENCODINGS = ("UTF8", "SQL_ASCII")
"""Of a PostgreSQL database that keeps all text: the second one takes bytes as they come."""

log = logging.getLogger(__name__)
_alembic = threading.Lock()
"""Alembic keeps its context in module globals."""


def upgrade_schema(database: Database) -> None:
    """Create or migrate what is older than this tunerd.

    Raises:
        MisconfiguredError: the schema is of a newer tunerd, or older and this user may not change
            it; or the database cannot keep every letter.
        StoreUnavailableError: the database cannot be reached.
    """
    with database.reading() as connection:
        if not database.is_sqlite:
            _check_encoding(connection, database)
        version = _version(connection)
        if version == HEAD:
            return
        if version is not None and version > HEAD:
            raise _newer(database, version)
        if not _may_migrate(connection, database):
            raise _not_current(database, version, "its owner has to run `tunerd store migrate`")
    if not database.is_sqlite and version is not None:
        _build_large_indexes(database)
    for left in reversed(range(TRIES)):
        try:
            with _alembic, database.writing() as connection:
                if not database.is_sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS}")
                database.lock(connection, "schema")
                _migrate(connection, database)
            return
        except StoreUnavailableError as error:
            if not left or not _is_contended(error):
                raise
        except sa.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) not in _TAKEN:
                raise
            raise MisconfiguredError(
                [
                    ValidationProblem(
                        "store.url",
                        f"{database.place} holds something else of a name that tunerd's tables "
                        f"have ({' '.join(str(error.orig).split())}); give tunerd a database, or "
                        "a schema, of its own",
                    )
                ]
            ) from error


def _check_encoding(connection: sa.Connection, database: Database) -> None:
    """One job of a user whose name the database cannot write would end every start."""
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding not in ENCODINGS:
        problem = (
            f"{database.place} has the encoding {encoding}, which lacks letters that jobs may "
            "have; create one with ENCODING 'UTF8' TEMPLATE template0 (`tunerd store export` and "
            "`tunerd store load` take what is there over)"
        )
        raise MisconfiguredError([ValidationProblem("store.url", problem)])


def _build_large_indexes(database: Database) -> None:
    """Build what the migrations to come would build while all who write wait. That takes no
    transaction and may take minutes; what an interrupted one left is built anew."""
    with database.explained(), database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # what is set and locked here ends with this connection
        connection.exec_driver_sql("SET lock_timeout = 0")
        connection.exec_driver_sql("SET statement_timeout = 0")
        # Whoever waited for a lock here would be waited for: building ends with all transactions.
        while not connection.exec_driver_sql(
            "SELECT pg_try_advisory_lock(hashtextextended('tunerd index ' || current_schema(), 0))"
        ).scalar_one():
            time.sleep(TURN_S)
        version = _version(connection)
        columns = {column["name"] for column in sa.inspect(connection).get_columns("observations")}
        for index in LARGE_INDEXES:
            if version is None or version >= index.revision or index.column not in columns:
                continue
            valid = connection.execute(
                sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"),
                {"name": index.name},
            ).scalar_one_or_none()
            if valid is False:
                connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {index.name}")
            if not valid:
                log.info(
                    "index %s is being built, which waits for transactions now open; "
                    "who writes need not wait",
                    index.name,
                )
                connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {index.name} ON {index.on}")


def _is_contended(error: StoreUnavailableError) -> bool:
    """Whether an older daemon that goes on working had the locks: nothing was changed."""
    cause = error.__cause__
    state = getattr(cause.orig, "sqlstate", None) if isinstance(cause, sa.exc.DBAPIError) else None
    return state in (_DEADLOCK, _LOCK_TIMEOUT)


def check_schema(database: Database) -> None:
    """Accept only the schema of this tunerd.

    Raises:
        MisconfiguredError: it is another one.
    """
    with database.reading() as connection:
        version = _version(connection)
    if version is not None and version > HEAD:
        raise _newer(database, version)
    if version != HEAD:
        raise _not_current(database, version, "`tunerd run` upgrades")


def _not_current(database: Database, version: str | None, remedy: str) -> MisconfiguredError:
    content = f"has schema {version}" if version else "holds nothing of tunerd"
    return MisconfiguredError(
        [ValidationProblem("store.url", f"{database.place} {content}, not {HEAD}; {remedy}")]
    )


def _may_migrate(connection: sa.Connection, database: Database) -> bool:
    """Whether this user may add tables, and columns to those that are there."""
    if database.is_sqlite:
        return True
    if not connection.exec_driver_sql(
        "SELECT has_schema_privilege(current_schema(), 'CREATE')"
    ).scalar_one():
        return False
    owner = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(:name)"
    owns = connection.execute(sa.text(owner), {"name": VERSION_TABLE}).scalar_one_or_none()
    return owns is not False


def _newer(database: Database, version: str) -> MisconfiguredError:
    return MisconfiguredError(
        [
            ValidationProblem(
                "store.url",
                f"{database.place} has schema {version}, made by a newer tunerd; "
                f"this one knows up to {HEAD}: install the newer tunerd again",
            )
        ]
    )


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    row = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").one_or_none()  # noqa: S608
    return None if row is None else str(row[0])


def _migrate(connection: sa.Connection, database: Database) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    # ConfigParser takes a single % for the beginning of a variable.
    here = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", here)
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    version = _version(connection)
    if version is not None and version not in known:
        raise _newer(database, version)
    command.upgrade(config, "head")
