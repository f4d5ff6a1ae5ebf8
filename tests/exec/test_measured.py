"""What a program's output, its file and the kernel say: metrics, and causes of failure."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.exec.conftest import Place
from tunerd.exec.output import BytesPattern, LineSplitter, SampledValues

Until = Callable[[Callable[[], object]], None]


def test_the_clock_and_the_kernel_measure(place: Place) -> None:
    program = (
        "import time; x = bytearray(200 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(0.3)"
    )
    place.run("--", sys.executable, "-c", program)
    metrics = place.event()["metrics"]
    assert 0.3 < metrics["wall_s"] < 20
    assert 0 < metrics["cpu_s"] < 5
    assert 200 < metrics["peak_memory_mib"] < 300
    assert math.isclose(metrics["peak_memory_gib"] * 1024, metrics["peak_memory_mib"], rel_tol=1e-3)


PRINTS = (
    "for i in 1 2 3 4 100; do echo step throughput: $i tok/s; done; printf 'loss=0.5 loss=0.25'"
)


COUNTS = {
    "": 3,
    ":mean": 22,
    ":min": 1,
    ":max": 100,
    ":first": 1,
    ":last": 100,
    ":sum": 110,
    ":p0": 1,
    ":p25": 2,
    ":p100": 100,
}
"""How one of many matches is chosen, and which that is."""


def test_one_of_many_matches_counts(place: Place) -> None:
    metrics = (f"speed_{i}{how}=throughput: ([0-9.]+)" for i, how in enumerate(COUNTS))
    options = (word for metric in metrics for word in ("--metric", metric))
    place.run(*options, "--", "sh", "-c", PRINTS)
    told = place.event()["metrics"]
    assert {how: told[f"speed_{i}"] for i, how in enumerate(COUNTS)} == COUNTS


def test_both_outputs_count_and_the_last_line_without_its_end(place: Place) -> None:
    script = f"{PRINTS}; echo 'mem 1,234.5 MB' >&2"
    options = ("--metric", r"loss:last=loss=(\S+)", "--metric", "mem=mem ([0-9,.]+)")
    place.run(*options, "--", "sh", "-c", script)
    metrics = place.event()["metrics"]
    assert (metrics["loss"], metrics["mem"]) == (0.25, 1234.5)


def test_what_is_no_number_is_missing(place: Place) -> None:
    place.run("--metric", "x=x(.*)", "--", "printf", "xnan\nxinf\nx\nxabc\nx1e999\n")
    assert "x" not in place.event()["metrics"]


def test_a_file_of_json_lines_counts(place: Place) -> None:
    lines = ['{"a": 1, "b": 5}', "no", "[1]", '{"a": 3, "b": true, "c": "4", "": 1}', '{"a": 2']
    script = 'printf \'%s\\n\' "$@" >>"$TUNERD_METRICS"'
    place.run("--metric", "b:last", "--", "sh", "-c", script, "sh", *lines, '{"a": 2, "n": NaN}')
    metrics = place.event()["metrics"]
    assert {name: metrics.get(name) for name in "abcn"} == {"a": 2, "b": 5, "c": None, "n": None}


def test_of_a_failed_program_printed_metrics_count_and_its_time_does_not(place: Place) -> None:
    place.run("--metric", "x=x=([0-9]+)", "--", "sh", "-c", "echo x=5; exit 1")
    event = place.event()
    assert event["status"] == "failed"
    assert event["metrics"]["x"] == 5
    assert "wall_s" not in event["metrics"]


def test_the_time_of_a_program_that_stood_still_is_not_told(place: Place, until: Until) -> None:
    ready = place.folder / "ready"
    running = place.start(
        "--", "sh", "-c", f"echo $$ >{ready}.part; mv {ready}.part {ready}; sleep 1"
    )
    until(ready.exists)
    pid = int(ready.read_text())
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    os.kill(pid, signal.SIGCONT)
    assert running.wait(30) == 0
    event = place.event()
    assert (event["status"], "wall_s" in event["metrics"]) == ("succeeded", False)


# -- hostile output -------------------------------------------------------------------------------


def test_an_endless_line_takes_no_memory(place: Place) -> None:
    """300 MB without a newline, then a line that counts; the wrapper may have 250 MB."""
    place.run("--", "true")  # the study is read
    script = "ulimit -v unlimited; head -c 300000000 /dev/zero; printf '\\nx=7\\n'"
    line = place.line("--metric", "x=x=([0-9]+)", "--", "sh", "-c", script)
    subprocess.run(
        ["sh", "-c", 'ulimit -S -v 250000; exec "$@"', "sh", *line],
        cwd=place.folder,
        env=place.environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    assert place.events()[1]["metrics"]["x"] == 7


def test_binary_output_does_no_harm(place: Place) -> None:
    script = "head -c 20000000 /dev/urandom; printf '\\nx=7\\n'"
    done = place.run("--metric", "x=^x=([0-9]+)$", "--", "sh", "-c", script)
    assert (done.returncode, place.event()["metrics"]["x"]) == (0, 7)


def test_a_line_that_keeps_a_pattern_busy_is_told_and_stops_nothing(place: Place) -> None:
    script = f"echo {'a' * 60}b; echo x=7; exit 3"
    begin = time.monotonic()
    done = place.run(
        *("--metric", "y=((?:a+)+)$", "--metric", "x=x=([0-9]+)", "--", "sh", "-c", script)
    )
    assert time.monotonic() - begin < 20
    assert done.returncode == 3
    assert b"'((?:a+)+)$' took too long on a line and was set aside" in done.stderr
    assert place.event()["metrics"]["x"] == 7


def test_lines_are_found_however_they_come() -> None:
    found: list[bytes] = []
    pattern = BytesPattern("=([0-9]+)!", lambda match: found.append(match[1]))
    for size in (1, 2, 3, 7, 1000):
        found.clear()
        lines = LineSplitter([pattern])
        data = b"a=12!\nb=3!\rc=4!=5!\n\nd=" + b"6" * 20_000 + b"!\n=7!"
        for start in range(0, len(data), size):
            lines.hear(data[start : start + size])
        lines.end()
        assert found == [b"12", b"3", b"4", b"5", b"7"], size


def test_of_very_many_numbers_evenly_spaced_ones_are_kept() -> None:
    numbers = SampledValues()
    for number in range(1_000_000):
        numbers.add(number)
    assert len(numbers) == 1_000_000
    assert len(numbers.values) <= 1 << 18
    assert abs(sorted(numbers.values)[len(numbers.values) // 2] - 500_000) < 10_000
    assert numbers.last == 999_999


# -- causes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        ("CUDA error: out of memory", "out_of_memory"),
        ("java.lang.OutOfMemoryError: Java heap space", "out_of_memory"),
        ("MemoryError", "out_of_memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        ("CUDA error: uncorrectable ECC error encountered", "node_failure"),
        ("handled MemoryError, went on", "failed"),
        ("ValueError", "failed"),
    ],
)
def test_what_a_program_says_tells_causes_apart(place: Place, says: str, status: str) -> None:
    place.run("--", "sh", "-c", f'echo "{says}" >&2; exit 1')
    assert place.event()["status"] == status


def test_a_program_that_came_through_is_believed(place: Place) -> None:
    place.run("--", "sh", "-c", "echo CUDA out of memory, trying a smaller batch >&2")
    assert place.event()["status"] == "succeeded"


def test_a_pattern_of_yours_counts_whatever_the_exit_code(place: Place) -> None:
    place.run("--cause", "node_failure=link .* down", "--", "echo", "link 3 is down")
    event = place.event()
    assert event["status"] == "node_failure"
    assert "link 3 is down" in event["labels"]["cause"]
    assert "wall_s" not in event["metrics"]


def test_who_takes_too_long_is_ended_and_told(place: Place) -> None:
    done = place.run("--timeout", "0.5", "--", "sleep", "60")
    assert done.returncode == -signal.SIGTERM
    assert place.event()["status"] == "timeout"


def test_who_does_not_end_is_killed(place: Place) -> None:
    script = 'trap "" TERM; while :; do sleep 0.1; done'
    done = place.run("--timeout", "0.3", "--kill-after", "0.3", "--", "sh", "-c", script)
    assert done.returncode == -signal.SIGKILL
    assert place.event()["status"] == "timeout"


def test_at_the_end_of_its_time_in_slurm_it_is_a_timeout(place: Place, until: Until) -> None:
    for end, status in ((time.time() + 3600, "preempted"), (time.time() + 20, "timeout")):
        ready = place.folder / f"ready-{status}"
        running = place.start(
            *("--", "sh", "-c", f"touch {ready}; exec sleep 60"),
            env={"SLURM_JOB_END_TIME": str(int(end))},
        )
        until(ready.exists)
        running.terminate()
        assert running.wait(30) == -signal.SIGTERM
        assert place.events()[-1]["status"] == status


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, version 1 or 2; entered by writing to cgroup.procs."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"tunerd-test-{uuid4().hex[:8]}"
        try:
            group.mkdir()
            (group / limit).write_text(str(100 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                group.rmdir()
                return
            except OSError:
                time.sleep(0.05)
        return
    pytest.skip("this machine lets nobody make a control group with a memory limit")


@pytest.mark.parametrize("shell", [False, True])
def test_out_of_memory_in_a_control_group_is_told_as_such(
    place: Place, small_group: Path, shell: bool
) -> None:
    """Also where the kernel killed a process of the program's, and a shell returned 137."""
    eats = "x = bytearray(); [x.extend(b'1' * (1 << 20)) for _ in range(500)]"
    line = place.line("--", sys.executable, "-c", eats)
    if shell:
        line = place.line("--", "sh", "-c", f'{sys.executable} -c "{eats}"; exit $?')
    enter = f'echo $$ >{small_group}/cgroup.procs && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", enter, "sh", *line],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == (137 if shell else -signal.SIGKILL), done.stderr
    event = place.event()
    assert event["status"] == "out_of_memory"
    assert "the kernel killed it" in event["labels"]["cause"]
