"""A backup of the store is restored: schedulers must not miss what is said from then on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.integration.daemons import PATIENCE_S, Daemon, events
from tunerd.cli import run
from tunerd.store import open_store


@pytest.fixture(params=["jsonl", "kafka"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    kafka = request.param == "kafka"
    bootstrap = request.getfixturevalue("kafka_bootstrap") if kafka else None
    made = Daemon(tmp_path, bootstrap, name="recover")
    yield made
    made.end()


def revisions(daemon: Daemon) -> dict[str, int]:
    with daemon.store() as store:
        return {row.context_key: row.revision for row in store.recommendations("toy")}


def test_a_restored_store_goes_on_above_what_was_published(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    recover = ["recover", "--settings", str(daemon.file)]
    data, backup = daemon.folder / "data", daemon.folder / "backup"
    daemon.start()
    daemon.send(events(12))
    daemon.learned(12)
    assert daemon.stop()[0] == 0
    shutil.copytree(data, backup, ignore=shutil.ignore_patterns("stream"))
    early = revisions(daemon)
    daemon.start()
    daemon.send(events(40, first=13))
    daemon.learned(52)
    assert run(recover) == 2  # a daemon runs
    assert "in use by another tunerd" in capsys.readouterr().err
    assert daemon.stop()[0] == 0
    late = revisions(daemon)
    assert any(late[key] > early.get(key, 0) for key in late)

    for file in data.glob("tunerd.sqlite*"):
        file.unlink()
    shutil.copytree(backup, data, dirs_exist_ok=True)
    assert revisions(daemon) == early
    code, told = daemon.run()  # whoever forgets it is told, instead of saying what nobody heeds
    assert (code, "`tunerd recover` takes them up" in told) == (2, True)
    assert run([*recover, "--dry-run"]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert revisions(daemon) == early
    assert run(recover) == 0
    assert "were taken up" in capsys.readouterr().out
    assert revisions(daemon) == late
    assert run(recover) == 0
    assert capsys.readouterr().out.startswith("0 of ")

    daemon.start()  # reads what came since the backup again, and goes on above
    daemon.learned(52)
    daemon.send(events(20, first=53))
    daemon.learned(72)
    after = revisions(daemon)
    assert all(after[key] >= late[key] for key in late)
    assert daemon.study().last_sequence == 72
    assert daemon.stop()[0] == 0


def lose(url: str, *statements: str) -> None:
    """Change the store as somebody else."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("how", ["failover", "restore"])
def test_a_store_that_goes_back_under_a_daemon_is_noticed(
    tmp_path: Path, request: pytest.FixtureRequest, how: str
) -> None:
    """By the connection that broke, or by the positions in the stream."""
    url = f"sqlite:///{tmp_path}/store.sqlite"
    if how == "failover":
        url = request.getfixturevalue("postgres_url")
    daemon = Daemon(tmp_path, settings=f'[store]\nurl = "{url}"')
    try:
        daemon.start()
        assert daemon.process is not None
        daemon.send(events(40))
        with open_store(url) as store:
            daemon.until(
                lambda: bool(store.recommendations("toy")) and not store.outbox_depths(), "advice"
            )
        before = "UPDATE recommendations SET revision = revision - 1"
        if how == "failover":
            lose(
                url,
                before,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND datname = current_database() AND application_name = 'tunerd'",
            )
        else:
            lose(url, before, "UPDATE positions SET next_offset = 0, fingerprint = ''")
            daemon.send(events(1, first=41))
        assert daemon.process.wait(PATIENCE_S) == 1
        (line,) = daemon.lines("the store lost what it knew")
        assert "`tunerd recover` takes them up" in line["problem"]
        assert daemon.run()[0] == 2
    finally:
        daemon.end()
