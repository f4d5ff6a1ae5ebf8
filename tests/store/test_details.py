"""What the databases hold underneath: damaged checkpoints, plans that stay fast, lock files."""

import json
import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.contracts.store_data import NOW, STUDY, add_study, message
from tunerd.errors import AlreadyRunningError, StoreUnavailableError
from tunerd.store import CorruptCheckpointError, Store, folder_guard, open_store
from tunerd.store.tables import outbox


def test_a_damaged_checkpoint_is_not_given_out(store: Store, store_url: str) -> None:
    add_study(store)
    with store.transaction() as tx:
        name = tx.save_checkpoint(STUDY, b"a model", NOW)
    engine = sa.create_engine(store_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE checkpoints SET blob = :b"), {"b": b"a mo"})
    engine.dispose()
    with pytest.raises(CorruptCheckpointError, match=name):
        store.checkpoint(STUDY, name)


def test_reading_the_outbox_does_not_touch_what_was_sent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    with open_store(url) as store:
        with store.transaction() as tx:
            tx.enqueue(message())
        engine = sa.create_engine(url)
        waiting = outbox.c.settled_at.is_(None)
        by_key = (outbox.c.study == "s", outbox.c.context_id == "k")
        statements = {
            "ix_outbox_waiting": sa.select(outbox.c.id).where(waiting).order_by(outbox.c.id),
            "ix_outbox_waiting_key": sa.update(outbox).where(waiting, *by_key).values(outcome=""),
        }
        with engine.connect() as connection:
            for index, statement in statements.items():
                text = str(statement.compile(engine, compile_kwargs={"literal_binds": True}))
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
                assert any(f"{index} " in f"{row[-1]} " for row in plan), plan
        engine.dispose()


def test_a_claimed_folder_names_its_holder(tmp_path: Path) -> None:
    with folder_guard(tmp_path, NOW) as guard:
        guard.check()
        holder = json.loads((tmp_path / ".tunerd.lock").read_text())
        assert (holder["pid"], holder["since"]) == (os.getpid(), NOW.isoformat())
        with pytest.raises(AlreadyRunningError, match=f"folder {tmp_path} .* {os.getpid()} on"):
            folder_guard(tmp_path, NOW)
        guard.release()
        guard.release()
        folder_guard(tmp_path, NOW).release()


@pytest.mark.slow
def test_a_lock_file_whose_holder_was_cut_off_while_writing(tmp_path: Path) -> None:
    with folder_guard(tmp_path, NOW):
        (tmp_path / ".tunerd.lock").write_text('{"pid": 1')
        with pytest.raises(AlreadyRunningError, match="process unknown"):
            folder_guard(tmp_path, NOW)


def test_a_folder_that_cannot_be_claimed(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="No such file or directory"):
        folder_guard(tmp_path / "missing", NOW)
