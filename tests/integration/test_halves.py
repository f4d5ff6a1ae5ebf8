"""Halves of jobs through a real daemon that is killed meanwhile: each attempt is joined once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons import Daemon
from tests.split_jobs import SplitJobs, compare, split_jobs
from tunerd.core.observation import Observation
from tunerd.metrics import definitions as d
from tunerd.store import Store, WaitingAttempt, open_store

JOBS = 60
KILLS = 2


@pytest.fixture
def made() -> SplitJobs:
    return split_jobs(JOBS)


@pytest.fixture
def on_files(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.end()


@pytest.fixture
def on_servers(
    tmp_path: Path, kafka_bootstrap: str, postgres_url: str, unique: str
) -> Iterator[Daemon]:
    store = f'[store]\nurl = "{postgres_url}"'
    daemon = Daemon(tmp_path, kafka_bootstrap, unique, settings=store)
    yield daemon
    daemon.end()


def joined(daemon: Daemon, made: SplitJobs, url: str) -> None:
    """Send everything while the daemon is killed and started again."""
    each = -(-len(made.events) // (KILLS + 1))
    for number in range(KILLS + 1):
        daemon.start()
        daemon.send(made.events[number * each : (number + 1) * each])
        if number < KILLS:
            with open_store(url, upgrade=False) as store:
                least = len(made.joined) * number // (KILLS + 1) + 1
                daemon.until(lambda: seen(store) >= least, "some are joined")  # noqa: B023
            assert daemon.process is not None
            daemon.process.kill()
            daemon.process.wait()
    with open_store(url, upgrade=False) as store:
        daemon.until(lambda: not compare(made, *told(store)), "all are joined")
        assert not store.outbox_depths().get("rejected")
    daemon.until(
        lambda: daemon.metric(d.ATTEMPTS_WAITING) == len(made.waiting), "metrics say who waits"
    )
    # Whoever was told twice is known: what is sent once more changes nothing.
    daemon.send(made.events)
    daemon.until(
        lambda: (daemon.metric(d.RECORDS, outcome="duplicate") or 0) >= len(made.events), "repeats"
    )
    with open_store(url, upgrade=False) as store:
        assert not compare(made, *told(store))


def seen(store: Store) -> int:
    return store.progress()[0].last_sequence


def told(store: Store) -> tuple[list[Observation], list[WaitingAttempt]]:
    return store.observations("toy", limit=10_000), store.waiting_attempts(limit=10_000)


def test_on_files_and_sqlite(on_files: Daemon, made: SplitJobs) -> None:
    assert made.joined
    assert made.waiting
    joined(on_files, made, f"sqlite:///{on_files.folder}/data/tunerd.sqlite")


def test_on_kafka_and_postgresql(on_servers: Daemon, made: SplitJobs, postgres_url: str) -> None:
    joined(on_servers, made, postgres_url)
