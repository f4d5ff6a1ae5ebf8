"""Metrics tell the truth also of what stands still, and of what was known before a start."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons import Daemon, events
from tunerd.metrics import definitions as d


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made = Daemon(tmp_path_factory.mktemp("daemon"))
    made.start()
    made.send(events(20))
    made.learned(20)
    yield made
    made.end()


def stopped(pid: int) -> bool:
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


def test_an_idle_stage_makes_progress_and_a_stopped_one_does_not(daemon: Daemon) -> None:
    def progress() -> float:
        return daemon.metric(d.PROGRESS, stage="tune") or 0

    now = time.time()
    daemon.until(lambda: progress() > now, "the idle tuner says that it is there")
    daemon.until(lambda: (daemon.metric(d.TUNER_SIZE) or 0) > 10**6, "its memory is measured")
    tuner = daemon.tuner_pid
    assert tuner is not None
    os.kill(tuner, signal.SIGSTOP)
    try:
        daemon.until(lambda: stopped(tuner), "it stands still")
        time.sleep(0.1)  # what it had written before is on its way through the pipe
        before = progress()
        daemon.send(events(15, first=101))
        # The parent tells of jobs that wait, since the tuner cannot.
        unlearned = "the backlog is told"
        daemon.until(lambda: daemon.metric(d.UNLEARNED, study="toy") == 15, unlearned)
        assert progress() == before
        assert (daemon.metric(d.LAST_OBSERVATION, study="toy") or 0) > now
    finally:
        os.kill(tuner, signal.SIGCONT)
    daemon.until(lambda: daemon.metric(d.UNLEARNED, study="toy") == 0, "it learns what waited")


def test_what_was_known_is_told_again_after_a_start(daemon: Daemon) -> None:
    before = daemon.study().learned_sequence
    daemon.send(events(40, first=21))  # the first ones had no model to predict them
    daemon.learned(before + 40)

    def told() -> list[float | None]:
        judged = (d.KENDALL, d.MAPE, d.WINDOW, d.SEQUENCE, d.ACTIVE)
        running = daemon.metric(d.RECOMMENDED, study="toy", state="running")
        return [*(daemon.metric(one, study="toy") for one in judged), running]

    daemon.until(lambda: None not in told(), "everything is told")
    known = told()
    assert daemon.stop()[0] == 0
    daemon.start()
    daemon.until(lambda: told() == known, "the same is told without a new job")
