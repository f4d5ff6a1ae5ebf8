"""Today's daemon on the store of every released schema; an older daemon on a newer store."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from tests.integration.daemons import Daemon, events
from tests.store.released import SCHEMAS, restore, stored_ledger
from tunerd.cli import cli
from tunerd.store import Store, open_store
from tunerd.store.schema import VERSION_TABLE

JOBS, MORE = 60, 24
CASES = [*((s, "sqlite") for s in SCHEMAS), *((s, "postgresql") for s in (SCHEMAS[0], SCHEMAS[-1]))]
"""``tests/store`` migrates each of them on PostgreSQL, too."""


@pytest.fixture(params=CASES, ids="-".join)
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Daemon]]:
    """A schema, the URL of its store, and a daemon of today that was not started yet."""
    schema, kind = request.param
    url = f"sqlite:///{tmp_path}/data/tunerd.sqlite"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_url")
    restore(schema, url)
    # What was kept is of November 2026, however late this runs.
    settings = f'[store]\nurl = "{url}"\n[tune]\nkeep_predictions_days = 36500'
    daemon = Daemon(tmp_path, studies={"toy": _study(url)}, settings=settings)
    yield schema, url, daemon
    daemon.end()


@pytest.mark.slow
def test_a_study_goes_on(upgraded: tuple[str, str, Daemon]) -> None:
    schema, url, daemon = upgraded
    daemon.start()
    with open_store(url, upgrade=False) as store:
        jobs = store.observations("toy", limit=JOBS)
        (command,) = store.commands("toy", pending=False)
        before = {row.context_key: row.revision for row in store.recommendations("toy")}
        _same_ledger(daemon, store, stored_ledger(schema))
        daemon.send(events(MORE, first=200))
        daemon.until(lambda: _learned(store) == JOBS + MORE, "the new jobs are learned")
        daemon.until(lambda: _all_newer(store, before), "every context has a newer revision")
        daemon.until(lambda: not store.outbox_depths(), "all is sent")
        assert store.observations("toy", limit=JOBS) == jobs
        assert len(store.observations("toy", limit=1000)) == JOBS + MORE
        assert store.commands("toy", pending=False) == [command]
    newest = {line["key"]: line["value"] for line in daemon.recommended()}
    offered = [candidate for value in newest.values() for candidate in value["candidates"]]
    assert offered
    if command.command == "forbid":  # and it still holds
        assert not [one for one in offered if one["config"]["y"] == "a"]


def _study(url: str) -> str:
    """Its file as the daemon of that time had it."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        text = connection.exec_driver_sql("SELECT text FROM generations").scalar_one()
    engine.dispose()
    return str(text)


def _learned(store: Store) -> int:
    row = store.study("toy")
    return 0 if row is None else row.learned_sequence


def _all_newer(store: Store, before: Mapping[str, int]) -> bool:
    now = {row.context_key: row.revision for row in store.recommendations("toy")}
    return all(now[key] > revision for key, revision in before.items())


def _same_ledger(daemon: Daemon, store: Store, before: dict[str, Any] | None) -> None:
    """What jobs did with recommendations, and what that was worth, as the older version said."""
    settings = ["--settings", str(daemon.file)]
    command = ["ledger", "toy", "--since", "2026-01-01", "--json", *settings]
    daemon.until(lambda: CliRunner().invoke(cli, command).exit_code == 0, "there is a ledger")
    total = json.loads(CliRunner().invoke(cli, command).stdout)["total"]
    if before is None:  # of that time there were no predictions, or nobody summed them up
        assert total["jobs"] in (0, JOBS)
    else:
        assert total == before["total"]
    assert len(store.predictions("toy")) == total["jobs"]


@pytest.mark.slow
def test_an_older_daemon_refuses_a_newer_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/data/tunerd.sqlite"
    restore(SCHEMAS[-1], url)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608
    engine.dispose()
    code, output = Daemon(tmp_path).run()
    (line,) = output.splitlines()
    assert code == 2
    assert "has schema 9999, made by a newer tunerd" in json.loads(line)["problem"]
