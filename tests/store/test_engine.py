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
from tunerd.store import Store, engine, open_store, open_store_unchecked, postgres
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


def test_a_role_with_settings_of_its_own(postgres_url: str) -> None:
    """Dates, text and encodings come as this program reads them, whatever the administrator set."""
    admin = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    name = sa.make_url(postgres_url).database
    with admin.connect() as connection:
        for setting in (
            "datestyle = 'SQL, DMY'",
            "timezone = 'Asia/Kathmandu'",
            "client_encoding = 'LATIN1'",
            "standard_conforming_strings = off",
            "bytea_output = 'escape'",
            "default_transaction_isolation = 'serializable'",
        ):
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET {setting}")
    admin.dispose()
    with open_store(postgres_url) as store:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation(user="O'Neill \\ 漢字")], NOW)
            tx.enqueue(message())
        (row,) = store.observations(STUDY)
        assert row.user == "O'Neill \\ 漢字"
        assert row.finished_at == observation().finished_at
        assert store.unsent(1)[0].value == message().value


def test_a_database_whose_encoding_lacks_letters_is_refused(postgres_url: str) -> None:
    admin = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    place, _, name = postgres_url.rpartition("/")
    made = "CREATE DATABASE {} ENCODING '{}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    try:
        with admin.connect() as connection:
            for encoding in ("LATIN1", "SQL_ASCII"):
                connection.exec_driver_sql(made.format(f"{name}_{encoding}", encoding))
        with pytest.raises(MisconfiguredError, match=r"has the encoding LATIN1.*'UTF8'"):
            open_store(f"{place}/{name}_latin1")
        with open_store(f"{place}/{name}_sql_ascii") as store:
            add_study(store)
            with store.transaction() as tx:
                tx.add_observations(STUDY, [observation(user="漢字")], NOW)
            assert store.observations(STUDY)[0].user == "漢字"
    finally:
        with admin.connect() as connection:
            for encoding in ("LATIN1", "SQL_ASCII"):
                connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}_{encoding} (FORCE)")
        admin.dispose()


def test_a_store_that_is_being_restored_is_away(postgres_url: str) -> None:
    """`pg_restore --clean` drops the tables first; whoever ended now would make empty ones."""
    admin = sa.create_engine(postgres_url)
    with open_store(postgres_url) as store:
        with admin.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE studies RENAME TO studies_")
        with pytest.raises(StoreUnavailableError, match="is a backup being restored"):
            store.studies()
        with admin.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE studies_ RENAME TO studies")
        assert store.studies() == []
    admin.dispose()


def test_a_database_that_holds_something_else_of_our_names(postgres_url: str) -> None:
    admin = sa.create_engine(postgres_url)
    with admin.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE studies (pupils integer)")
    admin.dispose()
    with pytest.raises(MisconfiguredError, match=r'"studies" already exists.*of its own'):
        open_store(postgres_url)


def test_a_search_path_without_a_schema_is_no_other_daemon(postgres_url: str) -> None:
    url = f"{postgres_url}?options=-csearch_path%3Dnowhere"
    with (
        open_store_unchecked(url) as store,
        pytest.raises(MisconfiguredError, match=r"no schema of this user's search_path exists"),
    ):
        store.share("one", NOW)


def test_tune_and_publish_take_what_waits_in_the_same_order(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        add_study(store)
        later, earlier = (
            message(context_key=f"{STUDY}|n={n}", key=b"%d" % n, study=STUDY) for n in (2, 1)
        )
        with store.transaction() as tx:
            tx.enqueue(later)
            tx.enqueue(earlier)
        ids = [one.id for one in store.unsent(10)]
        publish = threading.Thread(target=store.mark_sent, args=(ids, NOW))
        with store.transaction() as tx:
            tx.enqueue(earlier)
            publish.start()
            publish.join(0.5)  # it waits for this transaction
            tx.enqueue(later)
        publish.join(10)
        assert len(store.unsent(10)) == 2


def test_a_table_that_another_session_keeps_locked_and_a_server_that_takes_no_changes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_S", 1)
    admin = sa.create_engine(postgres_url)
    with open_store(postgres_url) as store:
        with admin.begin() as connection:
            connection.exec_driver_sql("LOCK TABLE studies IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailableError, match=r"FROM studies.*pg_stat_activity"):
                store.studies()
        url = f"{postgres_url}?options=-c%20default_transaction_read_only%3Don"
        with (
            open_store(url, upgrade=False) as replica,
            pytest.raises(StoreUnavailableError, match=r"read-only transaction; is it a replica"),
        ):
            add_study(replica)
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
