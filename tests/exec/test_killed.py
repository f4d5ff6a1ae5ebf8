"""Whoever is killed: no event is lost, none is told twice, and none says success wrongly."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.exec.conftest import Place

Until = Callable[[Callable[[], object]], None]
SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def begun(place: Place, program: str = SLEEPS) -> tuple["subprocess.Popen[bytes]", int]:
    """A wrapper whose program runs, and the program's process id."""
    running = place.start(
        "--", sys.executable, "-c", program, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    return running, int(running.stdout.readline())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def close(running: "subprocess.Popen[bytes]") -> None:
    running.wait(30)
    for stream in (running.stdout, running.stderr):
        if stream is not None:
            stream.close()


def test_the_child_is_killed(place: Place) -> None:
    running, pid = begun(place)
    os.kill(pid, signal.SIGKILL)
    close(running)
    assert running.returncode == -signal.SIGKILL
    assert place.event()["status"] == "failed"
    assert place.spool == []


def test_the_wrapper_is_killed_and_the_child_goes_on(place: Place, until: Until) -> None:
    running, pid = begun(place)
    running.kill()
    close(running)
    assert not gone(pid)
    assert len(place.spool) == 1
    place.run("--", "true")
    assert [one["status"] for one in place.events()] == ["succeeded"]  # the other is not over
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    place.run("--", "true")
    place.run("--", "true")
    first, *others = sorted(place.events(), key=lambda one: str(one["started_at"]))
    assert (first["status"], first["metrics"]) == ("cancelled", {})
    assert first["labels"]["cause"] == "tunerd exec was killed"
    assert first["config"] == others[0]["config"]
    assert [one["status"] for one in others] == ["succeeded"] * 3
    assert place.spool == []


def test_both_are_killed(place: Place, until: Until) -> None:
    running, pid = begun(place)
    for one in (running.pid, pid):
        os.kill(one, signal.SIGKILL)
    close(running)
    until(lambda: gone(pid))
    assert place.events() == []
    for _ in range(3):
        place.run("--", "true")
    assert sorted(one["status"] for one in place.events()) == ["cancelled", *["succeeded"] * 3]


def test_killed_at_any_moment_each_job_is_told_once(place: Place) -> None:
    """The daemon drops a repeat by its id and content, so those are what counts."""
    for delay in range(12):
        running = place.start("--", "true")
        time.sleep(0.03 * delay)
        running.kill()
        running.wait(30)
    place.run("--", "true")
    events = place.events()
    assert place.spool == []
    texts: dict[str, set[str]] = {}
    for line in (place.stream / "tunerd.jobs.jsonl").read_text().splitlines():
        event = next(one for one in events if one["event_id"] in line)
        texts.setdefault(event["event_id"], set()).add(line)
    assert all(len(same) == 1 for same in texts.values())
    assert {one["status"] for one in events} <= {"succeeded", "cancelled"}


def test_after_a_restart_of_the_machine_it_is_the_nodes_failure(place: Place, until: Until) -> None:
    running, pid = begun(place)
    running.kill()
    close(running)
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    (file,) = place.spool
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    file.write_text(file.read_text().replace(boot, "another"))
    place.run("--", "true")
    assert [one["status"] for one in place.events()] == ["node_failure", "succeeded"]


def test_what_could_not_be_sent_is_sent_by_the_next_start(place: Place) -> None:
    place.stream.rmdir()
    done = place.run("--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    assert b"waits in" in done.stderr
    assert len(place.spool) == 1
    place.stream.mkdir()
    assert place.run("--", "true").returncode == 0
    assert [one["labels"]["exit_code"] for one in place.events()] == [4, 0]
    assert place.spool == []


@pytest.mark.parametrize("text", ["", "{", '{"begin": ', "\x00\xff\n", "[1]\n", '{"begin": 3}\n'])
def test_a_damaged_file_is_taken_away_and_stops_nothing(place: Place, text: str) -> None:
    running, pid = begun(place)
    running.kill()
    close(running)
    os.kill(pid, signal.SIGKILL)
    (file,) = place.spool
    file.write_text(text)
    done = place.run("--", "true")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [one["status"] for one in place.events()] == ["succeeded"]


def test_where_nothing_can_be_kept_the_program_runs_all_the_same(place: Place) -> None:
    state = place.folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    state.write_text("no folder")
    done = place.run("--", "sh", "-c", "exit 6")
    assert done.returncode == 6
    assert place.event()["status"] == "failed"
