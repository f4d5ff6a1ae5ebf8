import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.side_by_side import side_by_side


def work(task: int) -> int:
    if task == 13:
        os.kill(os.getpid(), signal.SIGABRT)  # as a native library does
    if task == 99:
        raise ValueError("no")
    return task * task


def test_results_come_with_their_tasks() -> None:
    assert dict(side_by_side(work, [3, 1, 2], 2)) == {1: 1, 2: 4, 3: 9}


def test_a_process_that_dies_takes_no_other_task_with_it() -> None:
    found = dict(side_by_side(work, [1, 13, 2, 3, 4, 5], 2))
    assert found == {1: 1, 2: 4, 3: 9, 4: 16, 5: 25, 13: None}


def test_an_error_is_the_callers() -> None:
    with pytest.raises(ValueError, match="no"):
        list(side_by_side(work, [99], 1))


def test_processes_end_when_who_asked_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from benchmarks.side_by_side import side_by_side\n"
        "from tests.benchmarks.test_side_by_side import sleep\n"
        "list(side_by_side(sleep, [sys.argv[1]], 1))\n"
    )
    file = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", program, str(file)])
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child = int(file.read_text())
    parent.kill()
    parent.wait()
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.05)


def sleep(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    time.sleep(300)
