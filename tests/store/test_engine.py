"""Databases that cannot be used, and what an operator is told about them."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.contracts.store_data import NOW, STUDY, add_study, message, observation
from tests.servers import free_ports
from tests.servers.postgres import PostgresServer
from tests.servers.wire import Wire
from tunerd.errors import MisconfiguredError, StoreUnavailableError
from tunerd.store import Store, engine, open_store, postgres
from tunerd.store.engine import Database


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nonsense", "is not a database URL"),
        ("sqlite://", "would forget everything"),
        ("sqlite:///:memory:", "would forget everything"),
        ("mysql://host/db", "mysql is not supported"),
        ("postgresql://host:port/db", "is not a database URL"),
    ],
)
def test_a_url_that_names_no_usable_database(url: str, problem: str) -> None:
    with pytest.raises(MisconfiguredError, match=f"store.url: {problem}.*should be sqlite:///"):
        open_store(url)


def test_a_server_that_is_not_there() -> None:
    (port,) = free_ports(1)
    with pytest.raises(StoreUnavailableError) as refusal:
        open_store(f"postgresql://tunerd@127.0.0.1:{port}/tunerd", "hunter2")
    text = str(refusal.value)
    assert text.startswith(f"127.0.0.1:{port}/tunerd: ")
    assert "refused" in text
    assert "\n" not in text
    error: BaseException | None = refusal.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__


def test_a_database_that_is_not_there(postgres_url: str) -> None:
    with pytest.raises(StoreUnavailableError, match='"nowhere" does not exist'):
        open_store(postgres_url.rpartition("/")[0] + "/nowhere")


def test_a_user_who_may_not_create_tables(postgres_url: str) -> None:
    admin = sa.create_engine(postgres_url)
    role = "guest_" + postgres_url[-8:]
    with admin.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    head, _, tail = postgres_url.partition("//")
    try:
        with pytest.raises(MisconfiguredError, match="its owner has to run `tunerd store migrate`"):
            open_store(f"{head}//{role}@{tail.partition('@')[2]}")
    finally:
        with admin.begin() as connection:
            connection.exec_driver_sql(f"DROP ROLE {role}")
        admin.dispose()


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_text("something else " * 100)
    with pytest.raises(StoreUnavailableError, match=f"{file}: the file is not a SQLite database"):
        open_store(f"sqlite:///{file}")


def test_a_folder_in_place_of_the_file(file: Path) -> None:
    file.mkdir()
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        open_store(f"sqlite:///{file}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_owner_of_the_folder(file: Path) -> None:
    """``tunerd recover`` as root, before the daemon starts as its own user."""
    os.chown(file.parent, 12_345, 12_346)
    with open_store(f"sqlite:///{file}") as store, store.guard(NOW):
        add_study(store)
        made = sorted(file.parent.iterdir())
        assert [path.name.removeprefix(file.name) for path in made] == ["", "-shm", "-wal", ".lock"]
        assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12_345, 12_346)}


def test_a_full_disk_takes_the_whole_transaction_back(file: Path) -> None:
    with open_store(f"sqlite:///{file}") as store:
        add_study(store)
    # A bound on the pages of the file stands in for a full disk: SQLite says the same.
    database = Database(f"sqlite:///{file}")
    sa.event.listen(
        database.engine, "connect", lambda connection, _: connection.execute(_PAGES).close()
    )
    with Store(database) as store:
        big = {"nodes": "x" * 50_000}
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            _fill(store, big)
        assert store.observations(STUDY) == []
        assert store.unsent(10) == []
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation()], NOW)
        assert len(store.observations(STUDY)) == 1


_PAGES = "PRAGMA max_page_count = 60"


def _fill(store: Store, extra: dict[str, str], jobs: int = 10) -> None:
    with store.transaction() as tx:
        tx.enqueue(message())
        batch = [observation(str(number), extra=extra) for number in range(jobs)]
        tx.add_observations(STUDY, batch, NOW)


def test_a_server_whose_disk_is_full_is_one_line(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(postgres_url) as store:
        add_study(store)
        full = "RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = '53100'"
        with store.transaction() as tx:
            tx._connection.exec_driver_sql(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql "
                f"AS $$ BEGIN {full}; END $$"
            )
            tx._connection.exec_driver_sql(
                "CREATE TRIGGER full_disk BEFORE INSERT ON observations "
                "FOR EACH ROW EXECUTE FUNCTION full_disk()"
            )
        with pytest.raises(StoreUnavailableError, match="No space left"):
            _fill(store, {}, jobs=300)
        assert store.unsent(10) == []
    assert caplog.records == []


def test_another_process_that_keeps_the_file_locked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_S", 0.1)
    with open_store(f"sqlite:///{file}") as store:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="locked for too long"):
            add_study(store)
        assert store.studies() == []  # Readers do not wait for writers.
        other.close()
        add_study(store)


def test_another_thread_that_does_not_end(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_S", 0.1)
    with open_store(f"sqlite:///{file}") as store:
        errors: list[BaseException] = []

        def write() -> None:
            try:
                add_study(store)
            except StoreUnavailableError as error:
                errors.append(error)

        with store.transaction():
            thread = threading.Thread(target=write)
            thread.start()
            thread.join()
        assert "another thread" in str(errors[0])


def test_a_transaction_inside_a_transaction(file: Path) -> None:
    with open_store(f"sqlite:///{file}") as store:
        with store.transaction(), pytest.raises(RuntimeError, match="inside a transaction"):
            add_study(store)
        add_study(store)


def test_a_commit_survives_a_power_cut(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    with database.reading() as connection:
        for pragma, value in (("synchronous", 2), ("journal_mode", "wal"), ("foreign_keys", 1)):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one() == value
    database.close()


def test_a_server_that_goes_and_comes_back(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with open_store(postgres_url) as store:
        add_study(store)
        guard = store.guard(NOW)
        postgres_server.stop()
        with pytest.raises(StoreUnavailableError):
            store.studies()
        with pytest.raises(StoreUnavailableError):
            guard.check()
        postgres_server.start()
        assert [row.name for row in store.studies()] == [STUDY]
        guard.check()
        guard.release()


def test_a_server_that_falls_silent(
    wire: Wire, wired_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SILENT_S", 0.2)
    with open_store(wired_url) as store:
        with store.transaction() as tx:
            tx._connection.exec_driver_sql("SELECT pg_sleep(0.6)")  # slow is not silent
        wire.cut()
        with pytest.raises(StoreUnavailableError, match="refused"):
            store.studies()
        wire.mend()
        assert store.studies() == []


def test_a_connection_that_breaks_in_the_middle(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        add_study(store)
        with pytest.raises(StoreUnavailableError, match="terminat"):
            _write_and_break(store, postgres_url)
        assert store.observations(STUDY) == []
        assert store.unsent(10) == []


def _write_and_break(store: Store, url: str) -> None:
    killer = sa.create_engine(url)
    with store.transaction() as tx:
        tx.add_observations(STUDY, [observation()], NOW)
        with killer.begin() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'tunerd' AND datname = current_database() "
                "AND state = 'idle in transaction'"
            )
        killer.dispose()
        tx.enqueue(message())
