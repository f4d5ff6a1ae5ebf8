"""An older and a newer tunerd on one PostgreSQL and one Kafka, while jobs come in."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tunerd
from benchmarks.chaos import STUDIES as ALL
from benchmarks.chaos import Fleet, judge, settle
from benchmarks.feed import Feeder, traffic
from benchmarks.kit import Daemon
from tests.servers import wait_until
from tunerd.store.schema import HEAD

EVENTS = 240
STUDIES = ALL[:2]
LATER = "9999"
MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{LATER}", "{HEAD}"
branch_labels = depends_on = None


def upgrade() -> None:
    op.create_table("later", sa.Column("id", sa.BigInteger(), primary_key=True))
    op.add_column("observations", sa.Column("later", sa.Text()))
    for table in ("leases", "instances", "outbox", "positions", "recommendations"):
        op.add_column(table, sa.Column("later", sa.Text(), nullable=False, server_default="x"))
"""


@pytest.fixture
def newer_code(tmp_path: Path) -> Path:
    """A tunerd as the next version may be: a migration later."""
    code = tmp_path / "newer"
    shutil.copytree(Path(tunerd.__file__).parent, code / "tunerd")
    store = code / "tunerd/store"
    (store / "migrations/versions/9999_later.py").write_text(MIGRATION)
    text = (store / "schema.py").read_text()
    assert f'HEAD = "{HEAD}"' in text
    (store / "schema.py").write_text(text.replace(f'HEAD = "{HEAD}"', f'HEAD = "{LATER}"'))
    return code


@pytest.fixture
def fleet(tmp_path: Path, kafka_bootstrap: str, postgres_url: str, unique: str) -> Iterator[Fleet]:
    made = Fleet.make(tmp_path, 2, kafka_bootstrap, postgres_url, unique, STUDIES)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.slow
@pytest.mark.timeout(400)  # half a minute; more where others want the cores too
def test_two_versions_lose_and_double_nothing(
    fleet: Fleet, newer_code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = fleet.instances
    sent = traffic(EVENTS, np.random.default_rng(51), STUDIES)
    feeder = Feeder(fleet.bootstrap, older.daemon.jobs, sent.records, 15.0)
    older.begin()
    assert fleet.wait_until_spread(1)
    feeder.start()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(newer_code))
        patch.setenv("PYTHONSAFEPATH", "1")
        url = older.daemon.store_url
        stranger = Daemon(tmp_path / "stranger", {}, fleet.bootstrap, "stranger", url)
        assert stranger.spawn().wait(120) == 2  # whoever may not have the store changes nothing
        assert version(fleet) == HEAD
        newer.begin()
    assert fleet.wait_until_spread(2)
    assert version(fleet) == LATER

    tuner = older.daemon.tuner_pid
    older.kill_tuner()  # it starts again, on a schema that it does not know
    wait_until(lambda: older.daemon.tuner_pid not in (None, tuner), 60, "a new tuner process")
    assert fleet.wait_until_spread(2)
    feeder.finish()
    assert settle(fleet.sql, len(sent.events), 90)
    assert {what: count for what, count in judge(fleet, sent).items() if count} == {}

    older.daemon.stop()
    assert older.daemon.spawn().wait(120) == 2
    assert (
        f"schema {LATER}, made by a newer tunerd"
        in (older.daemon.folder / "daemon.log").read_text()
    )


def version(fleet: Fleet) -> str:
    ((schema,),) = fleet.sql.rows("SELECT version_num FROM tunerd_schema")
    return str(schema)
