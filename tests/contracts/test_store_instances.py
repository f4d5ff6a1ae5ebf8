"""What every store promises to several instances: rows, heartbeats, leases with a load."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contracts.store_data import NOW, STUDY, add_study
from tunerd.errors import AlreadyRunningError, FencedOutError, StoreUnavailableError
from tunerd.store import PUBLISH_LEASE, InstanceRow, Store, open_store, study_lease

A = InstanceRow(
    name="a",
    owner="a/1",
    installation="{}",
    host="host-a",
    pid=1,
    version="1",
    stages=["tune"],
    started_at=NOW,
    heartbeat_at=NOW,
)
B = replace(A, name="b", owner="b/1", host="host-b")


def join(store: Store, *rows: InstanceRow) -> None:
    for row in rows:
        with store.transaction() as tx:
            tx.join_instance(row)


def holders(store: Store) -> dict[str, str | None]:
    return {lease.name: lease.owner for lease in store.leases()}


class TestInstances:
    def test_they_come_say_what_they_read_and_go(self, store: Store) -> None:
        join(store, B, A)
        with store.transaction() as tx:
            assert tx.beat("a", "a/1", ["0", "2"], 17)
            tx.note_tuner("a", "a/1", searches_as="21-x")
        first, second = store.instances()
        assert (first.name, first.host, first.partitions, first.lag) == (
            "a",
            "host-a",
            ["0", "2"],
            17,
        )
        assert (first.searches_as, second.searches_as) == ("21-x", None)
        assert (second.name, second.partitions, second.tuner_silent_s) == ("b", [], None)
        # By the database's clock, whatever this machine's is.
        assert first.tuner_silent_s is not None
        assert 0 <= first.tuner_silent_s < 60
        assert 0 <= first.silent_s < 60
        with store.transaction() as tx:
            tx.note_tuner("a", "a/1", there=False)
            tx.leave_instance("b", "b/1")
        left = [(row.name, row.tuner_at, row.searches_as) for row in store.instances()]
        assert left == [("a", None, None)]

    def test_another_process_of_the_name_gets_what_the_former_held(self, store: Store) -> None:
        join(store, A, B)
        for lease, owner in (("study/x", "a/1"), ("publish", "a/1"), ("study/y", "b/1")):
            assert store.take_lease(lease, owner, 600) == 1
        join(store, replace(A, owner="a/2"))
        assert holders(store) == {"publish": None, "study/x": None, "study/y": "b/1"}
        assert store.take_lease("study/x", "a/2", 600) == 2
        with store.transaction() as tx:  # the former one wakes up
            assert not tx.beat("a", "a/1", [], None)
            tx.leave_instance("a", "a/1")
        assert [row.owner for row in store.instances()] == ["a/2", "b/1"]

    def test_leaving_releases_everything_at_once(self, store: Store) -> None:
        join(store, A)
        store.take_lease(PUBLISH_LEASE, "a/1", 600)
        store.take_lease("study/x", "a/1", 600)
        with store.transaction() as tx:
            tx.leave_instance("a", "a/1")
        assert set(holders(store).values()) == {None}
        assert store.take_lease(PUBLISH_LEASE, "b/1", 600) == 2


class TestLeasesOfAnOwner:
    @pytest.mark.slow
    def test_those_of_studies_are_renewed_together(self, store: Store) -> None:
        store.take_lease("study/x", "a/1", 1)
        store.take_lease("study/y", "b/1", 1)
        store.take_lease(PUBLISH_LEASE, "a/1", 1)
        before = {lease.name: lease.expires_at for lease in store.leases()}
        with store.transaction() as tx:
            tx.renew_study_leases("a/1", 600)
        after = {lease.name: lease.expires_at for lease in store.leases()}
        longer = {name for name in after if after[name] > before[name] + timedelta(seconds=60)}
        assert longer == {"study/x"}

    def test_taking_ones_own_again_fences_what_went_before(self, store: Store) -> None:
        add_study(store)
        name = study_lease(STUDY)
        assert store.take_lease(name, "a/1", 600) == 1
        with store.transaction() as tx:
            assert tx.retake_lease(name, "a/1", 600) == 2
        with pytest.raises(FencedOutError), store.transaction() as tx:
            tx.fence(STUDY, 1)
        with store.transaction() as tx:
            assert tx.retake_lease(name, "b/1", 600) is None
            tx.fence(STUDY, 2)

    def test_a_fence_of_any_lease(self, store: Store) -> None:
        epoch = store.take_lease(PUBLISH_LEASE, "a/1", -1)
        assert epoch == 1
        with store.transaction() as tx:
            tx.fence_lease(PUBLISH_LEASE, "a/1", 1)  # it has expired, and nobody else wants it
        assert store.take_lease(PUBLISH_LEASE, "b/1", 600) == 2
        for owner, epoch in (("a/1", 1), ("b/1", 1), ("a/1", 2)):
            with pytest.raises(FencedOutError), store.transaction() as tx:
                tx.fence_lease(PUBLISH_LEASE, owner, epoch)

    def test_what_was_spent_makes_a_load_that_goes_with_the_lease(self, store: Store) -> None:
        store.take_lease("study/x", "a/1", 600)
        for _ in range(2):
            with store.transaction() as tx:
                assert tx.renew_lease("study/x", "a/1", 1, 600, spent_s=30)
        store.release_lease("study/x", "a/1", 1)
        store.take_lease("study/x", "b/1", 600)
        (lease,) = store.leases()
        assert lease.alive
        assert 0.1 < lease.load <= 0.2  # a minute of five, less what has decayed meanwhile


class TestSharing:
    def test_sqlite_is_for_one(self, store: Store, store_url: str) -> None:
        assert store.is_shareable == store_url.startswith("postgresql")

    def test_several_share_it_and_nobody_has_it_alone_meanwhile(
        self, store: Store, store_url: str
    ) -> None:
        if not store.is_shareable:
            pytest.skip("SQLite is for one")
        join(store, A)
        with open_store(store_url) as other:
            with store.share("a", NOW) as first, other.share("b", NOW) as second:
                assert not first.check()
                assert not second.check()
                assert store.held()
                with pytest.raises(AlreadyRunningError, match="process 1 on host-a"):
                    other.guard(NOW)
                with pytest.raises(AlreadyRunningError, match="instance a of store"):
                    other.share("a", NOW)
            assert not store.held()
            with other.guard(NOW), pytest.raises(AlreadyRunningError):
                store.share("a", NOW)
            with store.share("a", NOW):
                pass

    def test_one_that_is_paused_in_a_transaction_keeps_nobody_waiting_for_long(
        self, store: Store, store_url: str
    ) -> None:
        if not store.is_shareable:
            pytest.skip("SQLite is for one")
        assert store.take_lease("study/x", "a/1", -1) == 1
        with open_store(store_url) as paused:
            paused.limit_pauses(2)

            taken: list[int | None] = []

            def pause() -> None:
                with paused.transaction() as tx:
                    tx.renew_lease("study/x", "a/1", 1, 600)
                    with store.transaction() as other:  # it does not wait while it cannot have it
                        taken.append(other.take_lease("study/x", "b/1", 60, wait=False))
                    taken.append(store.take_lease("study/x", "b/1", 60))
                    tx.fence_lease("study/x", "a/1", 1)

            with pytest.raises(StoreUnavailableError):
                pause()
            assert taken == [None, 2]
        (lease,) = store.leases()
        assert (lease.owner, lease.epoch) == ("b/1", 2)
