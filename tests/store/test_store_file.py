"""The file of a SQLite store: where it lies, who may read it, and what is said when it is gone."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts.store_data import NOW, STUDY, add_study
from tunerd.errors import StoreUnavailableError
from tunerd.settings import load_settings
from tunerd.store import Store, open_store

AWKWARD = (
    "proj%2Fmain",
    "a?b",
    "a?c",
    "a#b",
    "a b",
    "größe",
    "file:x",
    "a&mode=ro",
    "100%",
    "x=1;y",
)


@pytest.mark.slow
def test_a_store_lies_in_the_folder_that_is_named(tmp_path: Path) -> None:
    for name in AWKWARD:
        (tmp_path / name).mkdir()
        (tmp_path / name / "tunerd.toml").write_text(f'data_dir = "{name} data"\n')
        url = load_settings(tmp_path / name / "tunerd.toml", {}).store.url
        with open_store(url) as store:
            add_study(store, name := f"s{len(name)}")
            assert [row.name for row in store.studies()] == [name]
    made = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.sqlite"))
    assert made == sorted(f"{name}/{name} data/tunerd.sqlite" for name in AWKWARD)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(AWKWARD)


@pytest.mark.parametrize("shared", [False, True])
def test_a_store_is_for_its_owner_or_for_the_group_of_a_shared_folder(
    tmp_path: Path, shared: bool
) -> None:
    folder = tmp_path / "data"
    if shared:
        folder.mkdir()
        folder.chmod(0o2770)
    old = os.umask(0o022)
    try:
        with open_store(f"sqlite:///{folder}/x.sqlite") as store, store.guard(NOW):
            add_study(store)
            modes = {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
    finally:
        os.umask(old)
    assert modes == {0o660 if shared else 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == (0o2770 if shared else 0o700)


def _delete(folder: Path) -> None:
    (folder / "x.sqlite").unlink()


def _replace(folder: Path) -> None:
    shutil.copy(folder / "x.sqlite", folder / "copy")
    (folder / "copy").replace(folder / "x.sqlite")


def _rename_the_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def _another_folder(folder: Path) -> None:
    _rename_the_folder(folder)
    folder.mkdir()
    with open_store(f"sqlite:///{folder}/x.sqlite") as other:
        add_study(other)


def _empty(folder: Path) -> None:
    os.truncate(folder / "x.sqlite", 0)


def _delete_the_log(folder: Path) -> None:
    (folder / "x.sqlite-wal").unlink()


def _delete_the_index(folder: Path) -> None:
    (folder / "x.sqlite-shm").unlink()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_delete, "is gone.*put it back.*restore a backup"),
        (_replace, "was replaced.*stop tunerd"),
        (_rename_the_folder, "is gone.*its folder renamed.*put it back"),
        (_another_folder, "was replaced.*stop tunerd"),
        (_empty, "is gone.*emptied.*restore a backup"),
        (_delete_the_log, "wal is gone.*latest commits.*stop tunerd, which writes them"),
        (_delete_the_index, "shm is gone.*stop tunerd"),
    ],
)
def test_a_store_that_is_gone_takes_and_gives_nothing(
    tmp_path: Path, harm: Callable[[Path], None], told: str
) -> None:
    folder = tmp_path / "data"
    with open_store(f"sqlite:///{folder}/x.sqlite") as store, store.guard(NOW) as guard:
        add_study(store)
        guard.check()
        harm(folder)
        for use in (guard.check, store.studies, lambda: add_study(store, "late")):
            with pytest.raises(StoreUnavailableError, match=told):
                use()


def test_a_commit_while_the_file_goes_is_not_acknowledged(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/data/x.sqlite") as store:
        add_study(store)

        def learn() -> None:
            with store.transaction() as tx:
                tx.mark_learned(STUDY, 0)
                _rename_the_folder(tmp_path / "data")

        with pytest.raises(StoreUnavailableError, match="is gone"):
            learn()


def test_a_folder_that_comes_back_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with open_store(f"sqlite:///{folder}/x.sqlite") as store, store.guard(NOW) as guard:
        _rename_the_folder(folder)
        with pytest.raises(StoreUnavailableError):
            guard.check()
        folder.with_name("elsewhere").rename(folder)
        guard.check()
        add_study(store)
        assert len(store.studies()) == 1


def test_what_a_deleted_log_held_is_written_by_the_stop(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.sqlite"
    with open_store(url) as store:
        add_study(store)
        _delete_the_log(tmp_path)
    with open_store(url) as store:
        assert _names(store) == [STUDY]


def test_other_processes_that_come_and_go_take_nothing_away(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.sqlite"
    with open_store(url) as store, store.guard(NOW) as guard:
        for number in range(3):
            with open_store(url, upgrade=False) as other:
                add_study(other, f"other-{number}")
            guard.check()
        assert len(_names(store)) == 3


def _names(store: Store) -> list[str]:
    return [row.name for row in store.studies()]
