"""A daemon as one of several: who may join, and who was replaced while it was silent."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.test_store_instances import A as ROW
from tunerd.errors import AlreadyRunningError, MisconfiguredError
from tunerd.service.membership import Membership
from tunerd.settings import Settings, load_settings
from tunerd.store import PUBLISH_LEASE, open_store, study_lease


def settings(folder: Path, url: str, name: str = "t", more: str = "") -> Settings:
    (folder / "studies").mkdir(parents=True, exist_ok=True)
    file = folder / "tunerd.toml"
    file.write_text(
        f'name = "{name}"\ndata_dir = "data"\nstudies = "studies"\n[store]\nurl = "{url}"\n'
        '[stream]\nkind = "kafka"\n[stream.kafka]\nbootstrap_servers = "127.0.0.1:1"\n' + more
    )
    return load_settings(file, {})


def test_they_join_and_know_of_each_other(tmp_path: Path, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        first = Membership.join(settings(tmp_path / "a", postgres_url), ["tune"], store)
        second = Membership.join(settings(tmp_path / "b", postgres_url), ["tune"], store)
        assert (first.alone, second.alone) == (True, False)
        store.take_lease(study_lease("s"), first.owner, 60)
        store.take_lease(PUBLISH_LEASE, second.owner, 60)
        first.beat()
        assert first.studies == {"s"}
        assert [row.name for row in first.others] == [second.name]
        second.leave()
        first.beat()
        assert first.others == []
        assert store.take_lease(PUBLISH_LEASE, first.owner, 60) == 2


@pytest.mark.parametrize(
    ("name", "more", "told"),
    [
        ("u", "", "its name is 't' and not 'u'"),
        ("t", '[topics]\njobs = "others"\n', r"it has other topics \(jobs\)"),
    ],
)
def test_a_stranger_is_refused(
    tmp_path: Path, postgres_url: str, name: str, more: str, told: str
) -> None:
    with open_store(postgres_url) as store:
        Membership.join(settings(tmp_path / "a", postgres_url), ["tune"], store)
        stranger = settings(tmp_path / "b", postgres_url, name, more)
        with pytest.raises(MisconfiguredError, match=told):
            Membership.join(stranger, ["tune"], store)
        assert len(store.instances()) == 1


def test_of_two_strangers_that_come_at_once_one_is_refused(
    tmp_path: Path, postgres_url: str
) -> None:
    stranger = settings(tmp_path / "b", postgres_url, "u")
    with open_store(postgres_url) as store, ThreadPoolExecutor(1) as pool:
        with store.transaction() as tx:
            tx.join_one_by_one()
            second = pool.submit(Membership.join, stranger, ["tune"], store)
            with pytest.raises(TimeoutError):
                second.result(0.5)  # it waits until the first is there
            tx.join_instance(replace(ROW, installation='{"name": "t", "topics": {}}'))
        with pytest.raises(MisconfiguredError, match="its name is 't' and not 'u'"):
            second.result(30)


def test_one_whose_place_was_taken_while_it_was_silent_takes_nothing_back(
    tmp_path: Path, postgres_url: str
) -> None:
    same = settings(tmp_path / "a", postgres_url)
    with open_store(postgres_url) as store:
        silent = Membership.join(same, ["tune"], store)
        store.take_lease(study_lease("s"), silent.owner, 60)
        again = Membership.join(same, ["tune"], store)
        assert store.take_lease(study_lease("s"), again.owner, 60) == 2
        with pytest.raises(AlreadyRunningError, match="another process runs as instance"):
            silent.beat()
        silent.leave()
        again.beat()
        assert again.studies == {"s"}


def test_one_whose_row_is_gone_enters_again(tmp_path: Path, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        one = Membership.join(settings(tmp_path / "a", postgres_url), ["tune"], store)
        with store.transaction() as tx:
            tx.leave_instance(one.name, one.owner)
        one.beat()
        assert [row.owner for row in store.instances()] == [one.owner]


def test_leases_run_out_where_the_tuner_process_hangs(tmp_path: Path, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        one = Membership.join(settings(tmp_path / "a", postgres_url), ["tune"], store)
        for well in (False, True):
            one.tuner_is_well = lambda well=well: well  # type: ignore[misc]
            store.take_lease(study_lease("s"), one.owner, -1)
            one.beat()
            assert bool(one.studies) == well
