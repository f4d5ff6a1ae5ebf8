"""``tunerd tail``: a training that nobody can change is told from its log."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.servers import wait_until
from tests.trainers.conftest import TrainingPlace
from tests.trainers.test_logs import MEGATRON

pytestmark = pytest.mark.slow
END = "[after training is done] datetime: 2025-08-01 09:20:03\n"
OPTIONS = (
    "--study tiny --context gpu=none --config batch=4 --format megatron --tokens-per-sample 100"
)


def command(place: TrainingPlace, *more: str) -> list[str]:
    log = str(place.folder / "training.log")
    return [sys.executable, "-m", "tunerd", "tail", *OPTIONS.split(), *more, log]


def run(place: TrainingPlace, *more: str, code: int = 0) -> str:
    done = subprocess.run(
        command(place, *more),
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def write(place: TrainingPlace, text: str) -> None:
    with (place.folder / "training.log").open("a") as log:
        log.write(text)


def test_a_log_is_told_once(place: TrainingPlace) -> None:
    write(place, MEGATRON + END)
    said = run(place, "--job-id", "4711", "--gpus", "8")
    assert said.startswith("succeeded\n")
    event = place.event()
    assert (event["status"], event["job_id"], event["gpus"]) == ("succeeded", "4711", 8)
    assert event["config"] == {"batch": 4}
    per_second = 12_800 / 12.9781
    assert event["metrics"]["tokens_per_second"] == pytest.approx(per_second)
    assert event["metrics"]["tokens_per_second_per_gpu"] == pytest.approx(per_second / 8)
    assert event["labels"]["speed"] == "median of 3 lines"
    assert place.spool == []


def test_it_says_the_same_as_json(place: TrainingPlace) -> None:
    write(place, MEGATRON + "Traceback (most recent call last):\nMemoryError\n")
    found = json.loads(run(place, "--json"))
    assert found["status"] == "out_of_memory"
    assert found["metrics"] == place.event()["metrics"]


def test_somebody_may_know_better(place: TrainingPlace) -> None:
    write(place, MEGATRON)
    run(place, "--status", "preempted")
    assert place.event()["status"] == "preempted"


def test_success_without_a_speed_does_not_blame_the_configuration(place: TrainingPlace) -> None:
    write(place, END)
    assert "the log says nothing of tokens_per_second" in run(place)
    assert place.event()["status"] == "cancelled"


@pytest.mark.parametrize("end", ["log", "process", "signal"])
def test_it_follows_to_the_end(place: TrainingPlace, end: str) -> None:
    training = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lines = MEGATRON.splitlines(keepends=True)
    write(place, "".join(lines[:3]) + lines[3][:50])
    more = {"log": ["--follow"], "process": ["--pid", str(training.pid)], "signal": ["--follow"]}
    tail = subprocess.Popen(command(place, *more[end]), cwd=place.folder, env=place.environment)
    try:
        wait_until(lambda: len(place.spool) == 1, 60, "it has begun")
        wait_until(lambda: place.spool[0].read_text().count("\n") == 1, 60, "it follows")
        assert place.events() == []
        write(place, lines[3][50:] + "".join(lines[4:]))
        if end == "log":
            write(place, END)
        elif end == "process":
            training.communicate(b"\n")
        else:
            wait_until(lambda: _hears(tail.pid), 60, "it hears signals")
            tail.send_signal(signal.SIGTERM)
        assert tail.wait(60) == 0
    finally:
        tail.kill()
        tail.wait()
        training.kill()
        training.communicate()
    event = place.event()
    assert event["status"] == ("succeeded" if end == "log" else "cancelled")
    assert event["labels"]["speed"] == "median of 3 lines"


def _hears(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_mistakes_are_told_together_and_send_nothing(place: TrainingPlace) -> None:
    write(place, MEGATRON + END)
    said = run(place, "--config", "bach=4", "--config", "tp=2", code=2)
    assert "bach should be one of batch" in said
    assert "tp should be one of batch" in said
    assert place.events() == []
    assert place.spool == []


def test_without_a_stream_the_event_waits(place: TrainingPlace) -> None:
    write(place, MEGATRON + END)
    os.rename(place.stream, place.folder / "away")
    assert "waits in" in run(place)
    os.rename(place.folder / "away", place.stream)
    place.run()
    wait_until(lambda: place.spool == [], 30, "what waited is sent")
    assert {event["source"] for event in place.events()} == {"tunerd tail", "tunerd trainers"}
