"""The migrations lead to the tables, once, whoever comes first; a newer schema is left alone."""

import ast
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import tunerd.store.migrations
from tests.servers import wait_until
from tests.store.released import restore
from tunerd.errors import MisconfiguredError, StoreUnavailableError
from tunerd.store import open_store, schema
from tunerd.store.engine import Database
from tunerd.store.schema import HEAD, LARGE_INDEXES, VERSION_TABLE
from tunerd.store.tables import metadata


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database that nobody has opened yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/folder/store.sqlite"
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(tunerd.store.migrations.__path__[0])))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_migrations_since_instances_only_add() -> None:
    """An older tunerd goes on beside a newer one: what it writes must stay allowed."""
    versions = Path(tunerd.store.migrations.__path__[0]) / "versions"
    later = [file for file in versions.glob("0*.py") if file.name >= "0005"]
    assert len(later) >= 2
    assert {file.name: what for file in later if (what := _harmful(file.read_text()))} == {}


@pytest.mark.parametrize(
    "statement",
    [
        'op.drop_column("jobs", "x")',
        'op.alter_column("jobs", "x", nullable=False)',
        'op.add_column("jobs", sa.Column("x", sa.Text(), nullable=False))',
        'op.create_index("ix", "jobs", ["x"], unique=True)',
        'op.execute("DROP TABLE jobs")',
        'op.add_column("jobs", sa.Column("x", sa.Text(), sa.ForeignKey("t.y")))',
    ],
)
def test_what_would_harm_an_older_tunerd_is_recognised(statement: str) -> None:
    assert _harmful(statement)
    assert not _harmful('op.add_column("jobs", sa.Column("x", sa.Text()))')


def _harmful(text: str) -> list[str]:
    """Statements of a migration that do more than add what an older tunerd need not know."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    used = [call for call in calls if ast.unparse(call.func).startswith("op.")]
    return [ast.unparse(call) for call in used if not _only_adds(call)]


def _only_adds(call: ast.Call) -> bool:
    name, text = ast.unparse(call.func), ast.unparse(call)
    if name == "op.add_column":
        may_be_left_out = "nullable=False" not in text or "server_default=" in text
        return may_be_left_out and not any(
            word in text for word in ("ForeignKey", "unique=", "primary_key=", "CheckConstraint")
        )
    return name == "op.create_table" or (name == "op.create_index" and "unique" not in text)


def test_the_migrations_lead_to_the_tables(new_url: str) -> None:
    open_store(new_url).close()
    engine = sa.create_engine(new_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        inspector = sa.inspect(connection)
        # Autogenerate does not look at what makes an index partial.
        indexes = {index["name"]: index for index in inspector.get_indexes("outbox")}
        for name in ("ix_outbox_waiting", "ix_outbox_waiting_key", "ix_outbox_settled"):
            options = indexes[name]["dialect_options"]
            assert "settled_at IS" in str(options[f"{connection.dialect.name}_where"])
    engine.dispose()


@pytest.mark.slow
def test_several_processes_open_a_new_store_at_once(new_url: str) -> None:
    opener = "import sys; from tunerd.store import open_store; open_store(sys.argv[1]).close()"
    running = [subprocess.Popen([sys.executable, "-c", opener, new_url]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    with open_store(new_url, upgrade=False) as store:
        assert store.studies() == []


def test_a_newer_schema_is_refused_and_left_alone(new_url: str) -> None:
    open_store(new_url).close()
    _set_version(new_url, "9999")
    for upgrade in (True, False):
        with pytest.raises(MisconfiguredError, match="schema 9999, made by a newer tunerd"):
            open_store(new_url, upgrade=upgrade)
    _set_version(new_url, HEAD)
    open_store(new_url).close()


def test_who_only_looks_makes_nothing(new_url: str) -> None:
    expected = "does not exist" if new_url.startswith("sqlite") else "holds nothing of tunerd"
    with pytest.raises(MisconfiguredError, match=expected):
        open_store(new_url, upgrade=False)
    if new_url.startswith("sqlite"):
        assert not Path(new_url.removeprefix("sqlite:///")).parent.exists()


@pytest.mark.slow
def test_opening_an_up_to_date_store_does_not_import_alembic(new_url: str) -> None:
    open_store(new_url).close()
    program = """
import sys
from tunerd.store import open_store, schema
from tunerd.store.engine import Database
open_store(sys.argv[1]).close()
assert not any(name.split(".")[0] == "alembic" for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program, new_url], check=True)


@pytest.mark.slow
def test_a_deadlock_with_an_older_daemon_is_tried_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other holds what the migration wants, and wants what the migration holds."""
    engine = sa.create_engine(postgres_url)
    tries = []

    def migrate(connection: sa.Connection, _database: Database) -> None:
        tries.append(1)
        connection.exec_driver_sql("LOCK TABLE first IN ACCESS EXCLUSIVE MODE")
        if len(tries) == 1:
            other.exec_driver_sql("LOCK TABLE second IN ACCESS SHARE MODE")
            waits.start()
        connection.exec_driver_sql("LOCK TABLE second IN ACCESS EXCLUSIVE MODE")

    def work() -> None:
        other.exec_driver_sql("SET LOCAL deadlock_timeout = '1min'")  # the migration has to yield
        other.exec_driver_sql("LOCK TABLE first IN ACCESS SHARE MODE")
        other.commit()

    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE first (id int)")
        connection.exec_driver_sql("CREATE TABLE second (id int)")
    monkeypatch.setattr(schema, "_migrate", migrate)
    waits = threading.Thread(target=work)
    database = Database(postgres_url)
    with engine.connect() as other:
        schema.upgrade_schema(database)
        waits.join()
    assert len(tries) == 2
    database.close()
    engine.dispose()


def waits_for(engine: sa.Engine, statement: str) -> int | None:
    """Process of the session that waits in a statement for others to end their transactions."""
    query = "SELECT pid FROM pg_stat_activity WHERE query LIKE :text AND wait_event_type = 'Lock'"
    with engine.connect() as connection:
        asked = connection.execute(sa.text(query), {"text": f"{statement}%"})
        pid: int | None = asked.scalar_one_or_none()
        return pid


def is_valid(engine: sa.Engine, index: str) -> bool | None:
    """Whether an index can be used; None where there is none."""
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"
    with engine.connect() as connection:
        answer: bool | None = connection.execute(sa.text(query), {"name": index}).scalar()
        return answer


@pytest.mark.slow
def test_who_writes_need_not_wait_until_an_index_of_a_large_table_is_built(
    postgres_url: str,
) -> None:
    """An older daemon goes on writing; a build that was broken off is begun anew."""
    restore("0007", postgres_url)
    engine, name = sa.create_engine(postgres_url), LARGE_INDEXES[0].name
    write = sa.text("UPDATE observations SET attempt = attempt WHERE sequence = :n")
    failed: list[Exception] = []

    def upgrade() -> None:
        database = Database(postgres_url)
        try:
            schema.upgrade_schema(database)
        except StoreUnavailableError as error:
            failed.append(error)
        finally:
            database.close()

    for end in ("broken off", "built"):
        newer = threading.Thread(target=upgrade)
        with engine.connect() as older:
            older.execute(write, {"n": 1})  # a transaction that takes a while
            newer.start()
            wait_until(lambda: waits_for(engine, "% INDEX CONCURRENTLY") is not None, 30, "a build")
            with engine.begin() as writer:
                writer.exec_driver_sql("SET LOCAL lock_timeout = 2000")
                writer.execute(write, {"n": 2})
            if end == "broken off":
                with engine.connect() as operator:
                    pid = waits_for(engine, "% INDEX CONCURRENTLY")
                    operator.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
                newer.join(30)
                assert is_valid(engine, name) is False
            older.commit()
        newer.join(30)
        assert not newer.is_alive()
    assert len(failed) == 1
    assert is_valid(engine, name)
    with open_store(postgres_url, upgrade=False) as store:
        assert store.replaced_jobs("toy", [1]) == {}
    engine.dispose()


def _set_version(url: str, version: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))  # noqa: S608
    engine.dispose()
