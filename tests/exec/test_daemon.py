"""With a real daemon over a folder of streams: what is reported is learned, and followed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.exec.conftest import KEY, STUDY, Place
from tunerd.errors import TunerdError
from tunerd.store import open_store

Until = Callable[[Callable[[], object]], None]


LEVELS = "".join(
    line
    for line in STUDY.splitlines(keepends=True)
    if not line.startswith(("parameters.threads", "parameters.mode"))
).replace(', threads = 1, mode = "very small"', "")
"""Four configurations, of which the best is soon known."""


def learned(place: Place, count: int) -> bool:
    """Whether the daemon has learned so many jobs, and said what follows from them."""
    file = place.folder / "tunerd-data" / "tunerd.sqlite"
    time.sleep(0.05)  # opening the store takes a while itself
    try:
        with open_store(f"sqlite:///{file}", upgrade=False) as store:
            row = store.study("zip")
            return row is not None and row.learned_sequence >= count and not store.outbox_depths()
    except TunerdError:  # it is being made
        return False


def test_from_an_event_to_a_recommendation_to_the_next_run(place: Place, until: Until) -> None:
    (place.folder / "studies" / "zip.toml").write_text(LEVELS)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tunerd", "run"],
        cwd=place.folder,
        env=place.environment,
        stderr=subprocess.DEVNULL,
    )
    recommendations = place.stream / "tunerd.recommendations.jsonl"
    try:
        # Levels differ by what they say of themselves; the baseline's is 3.
        program = ("--metric", "wall_s=took ([0-9]+)", "--", "echo", "took {level}")
        kinds = set()
        for number in range(40):
            assert place.run(*program).returncode == 0
            event = place.events()[-1]
            kinds.add(event["labels"]["kind"])
            assert event["metrics"]["wall_s"] == event["config"]["level"]
            until(lambda ran=number + 1: learned(place, ran))  # type: ignore[misc]
            if event["labels"]["kind"] == "incumbent" and event["config"]["level"] == 1:
                break
        assert {"baseline", "incumbent"} <= kinds
        assert place.events()[-1]["config"]["level"] == 1
        for line in recommendations.read_text().splitlines():
            assert json.loads(line)["key"] == KEY
        # A repeat of all that was sent changes nothing.
        jobs = place.stream / "tunerd.jobs.jsonl"
        sent = len(place.events())
        with jobs.open("a") as file:
            file.write(jobs.read_text())
        asked = place.run("--ask", "10", "--", "true")
        assert asked.returncode == 0
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
    assert (place.stream / "tunerd.rejected.jsonl").read_text() == ""
    told = subprocess.run(
        [sys.executable, "-m", "tunerd", "status", "zip", "--json"],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        check=True,
    )
    (study,) = json.loads(told.stdout)["studies"]
    assert study["observations"] in (sent, sent + 1)  # the last may not have been read
