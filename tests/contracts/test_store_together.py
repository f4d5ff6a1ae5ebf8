"""What every store promises when several threads and processes use it, and some are killed."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.contracts.store_data import NOW, STUDY, add_study, message, observation, recommended
from tunerd.errors import AlreadyRunningError, LostPartitionError, StoreUnavailableError
from tunerd.store import RecommendationRow, Store, open_store, study_lease
from tunerd.streams.base import StreamPosition


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(number) as pool:
        for done in [pool.submit(work, one) for one in range(number)]:
            done.result(timeout=60)


class TestTwoWriters:
    def test_sequences_have_no_gap(self, store: Store) -> None:
        add_study(store)

        def write(writer: int) -> None:
            for batch in range(10):
                with store.transaction() as tx:
                    names = [f"{writer}/{batch}/{one}" for one in range(5)]
                    # The other writer's events as well, as after a rebalance.
                    names += [f"{1 - writer}/{batch}/{one}" for one in range(5)]
                    tx.add_observations(STUDY, [observation(name) for name in names], NOW)

        _in_threads(2, write)
        read = store.observations(STUDY)
        assert [one.sequence for one in read] == list(range(1, 101))
        assert len({one.event_id for one in read}) == 100

    @pytest.mark.slow
    def test_a_reader_never_sees_a_later_sequence_before_an_earlier_one(self, store: Store) -> None:
        add_study(store)
        done = threading.Event()

        def write(writer: int) -> None:
            for batch in range(25):
                with store.transaction() as tx:
                    tx.add_observations(STUDY, [observation(f"{writer}/{batch}")], NOW)

        def read() -> list[int]:
            seen: list[int] = []
            while True:
                last = done.is_set()
                after = seen[-1] if seen else 0
                seen += [one.sequence for one in store.observations(STUDY, after=after)]
                if last:
                    return seen

        with ThreadPoolExecutor(1) as pool:
            reader = pool.submit(read)
            try:
                _in_threads(2, write)
            finally:
                done.set()
            assert reader.result(timeout=60) == list(range(1, 51))

    def test_only_one_reader_goes_on_from_a_position(self, store: Store) -> None:
        start = StreamPosition("c", "jobs", "0", 0, "")
        with store.transaction() as tx:
            tx.expect_position(None, start)
        barrier = threading.Barrier(4)
        won: list[int] = []

        def move(reader: int) -> None:
            barrier.wait(timeout=30)
            try:
                with store.transaction() as tx:
                    tx.expect_position(start, StreamPosition("c", "jobs", "0", 10 + reader, "f"))
            except LostPartitionError:
                return
            won.append(reader)

        _in_threads(4, move)
        assert len(won) == 1
        assert store.positions() == [StreamPosition("c", "jobs", "0", 10 + won[0], "f")]

    def test_a_lease_goes_to_one(self, store: Store) -> None:
        barrier = threading.Barrier(4)
        epochs: list[int | None] = []

        def take(owner: int) -> None:
            barrier.wait(timeout=30)
            epochs.append(store.take_lease("publish", str(owner), 60))

        _in_threads(4, take)
        assert sorted(epoch or 0 for epoch in epochs) == [0, 0, 0, 1]

    def test_a_fenced_transaction_holds_the_lease_until_it_ends(self, store: Store) -> None:
        add_study(store)
        lease = study_lease(STUDY)
        epoch = store.take_lease(lease, "a", -1)
        assert epoch is not None
        taken = threading.Event()

        def take_over() -> None:
            assert store.take_lease(lease, "b", 60) == epoch + 1
            taken.set()

        with ThreadPoolExecutor(1) as pool:
            with store.transaction() as tx:
                tx.fence(STUDY, epoch)
                other = pool.submit(take_over)
                assert not taken.wait(0.2)
                tx.enqueue(message())
            other.result(timeout=60)
        assert len(store.unsent(10)) == 1

    def test_revisions_of_two_writers_do_not_collide(self, store: Store) -> None:
        add_study(store)
        assert store.take_lease(study_lease(STUDY), "a", 60) == 1

        def recommend(_: int) -> None:
            for _ in range(5):
                with store.transaction() as tx:
                    tx.fence(STUDY, 1)
                    revision = tx.next_revision(STUDY, "k")
                    tx.enqueue(recommended("k", revision))
                    tx.save_recommendation(_row("k", revision))

        _in_threads(2, recommend)
        assert [one.revision for one in store.unsent(100)] == [10]

    def test_publishing_the_same_study_at_once(self, store: Store) -> None:
        barrier = threading.Barrier(3)

        def publish(instance: int) -> None:
            barrier.wait(timeout=30)
            store.publish_generation("s", "h1", "one", str(instance), NOW)

        _in_threads(3, publish)
        assert store.generation("s", 1) == store.generation("s")
        assert store.generation("s", 2) is None


def _row(key: str, revision: int) -> RecommendationRow:
    return RecommendationRow(
        study=STUDY,
        context_key=key,
        revision=revision,
        recommendation_id="r",
        state="active",
        value="{}",
        issued_at=NOW,
        valid_until=NOW,
    )


WRITER = """
import sys
from tests.contracts.store_data import NOW, STUDY, message, observation
from tunerd.store import open_store
from tunerd.streams.base import StreamPosition

store = open_store(sys.argv[1])
print("ready", flush=True)
while True:
    places = store.restore_positions("c", "jobs", ["0"])
    old = places.get("0")
    start = 0 if old is None else old.offset
    with store.transaction() as tx:
        batch = [observation(str(start + one)) for one in range(7)]
        tx.add_observations(STUDY, batch, NOW)
        tx.enqueue(*(message(f"m{start + one}") for one in range(7)))
        tx.expect_position(old, StreamPosition("c", "jobs", "0", start + 7, "f"))
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_half_done(store: Store, store_url: str) -> None:
    add_study(store)
    dice = random.Random(7)
    for _ in range(5):
        before = store.positions()
        with _running(WRITER, store_url):
            _until(lambda before=before: store.positions() != before)  # type: ignore[misc]
            time.sleep(dice.uniform(0, 0.05))
        # A killed PostgreSQL client's transaction ends when the server notices; wait for it.
        with store.transaction() as tx:
            study = tx.study(STUDY)
            assert study is not None
            tx.add_observations(STUDY, [], NOW)
        (position,) = store.positions()
        count = position.offset
        read = store.observations(STUDY, limit=10**6)
        assert [one.sequence for one in read] == list(range(1, count + 1))
        assert [one.event_id for one in read] == [str(one) for one in range(count)]
        sent = store.unsent(10**6)
        assert [one.message_id for one in sent] == [f"m{one}" for one in range(count)]


class TestGuard:
    def test_a_second_daemon_is_told_of_the_first(self, store: Store, store_url: str) -> None:
        with store.guard(NOW) as guard:
            guard.check()
            with open_store(store_url) as other, pytest.raises(AlreadyRunningError) as refusal:
                other.guard(NOW)
            assert f"process {os.getpid()} on " in str(refusal.value)
            assert "2026-11-20" in str(refusal.value)
        store.guard(NOW).release()

    @pytest.mark.slow
    def test_a_killed_daemon_is_in_nobodys_way(self, store: Store, store_url: str) -> None:
        with (
            _running(HOLDER, store_url) as pid,
            pytest.raises(AlreadyRunningError, match=f"process {pid} "),
        ):
            store.guard(NOW)

        def free() -> bool:
            try:
                store.guard(NOW).release()
            except (AlreadyRunningError, StoreUnavailableError):
                return False
            return True

        _until(free)


HOLDER = """
import sys, time
from tests.contracts.store_data import NOW
from tunerd.store import open_store

guard = open_store(sys.argv[1]).guard(NOW)
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def _running(program: str, store_url: str) -> Iterator[int]:
    """A Python program on the store; killed at the end of the block, as by ``kill -9``."""
    command = [sys.executable, "-c", program, store_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


def _until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
