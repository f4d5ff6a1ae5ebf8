"""A PyTorch loop in three lines: chosen for, timed, told, whatever becomes of it."""

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.needs import without
from tests.servers import wait_until
from tests.trainers.conftest import LOOP, TrainingPlace
from tunerd.core.observation import Observation, Status
from tunerd.events import read_job
from tunerd.events.half import JobHalf

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
ENDLESS = """
import time, tunerd.client, tunerd.trainers.teller
tunerd.trainers.teller.PROGRESS_FIRST_S = tunerd.trainers.teller.PROGRESS_LAST_S = 0.05
with tunerd.client.job("tiny", {"gpu": "none"}, config={"batch": 4}) as job:
    for step in range(1_000_000):
        time.sleep(0.001)
        job.step(tokens=100)
        if step == 100:
            print("runs", flush=True)
"""


def _moment(event: dict[str, Any], which: str) -> float:
    return datetime.fromisoformat(event[f"{which}_at"]).timestamp()


def test_a_training_is_told(place: TrainingPlace) -> None:
    assert place.run() == ""
    event = place.event()
    assert (event["status"], event["config"], event["context"]) == (
        "succeeded",
        {"batch": 4},
        {"gpu": "none"},
    )
    metrics = event["metrics"]
    assert 0 < metrics["steps_per_second"] < 1000
    assert metrics["tokens_per_second"] == pytest.approx(100 * metrics["steps_per_second"])
    assert event["labels"]["steps"] == 48  # twelve stretches of four
    assert event["labels"]["warmup_steps"] == 10
    assert event["labels"]["speed"].startswith("median of 12 stretches")
    # Half of the stretches took at least the median; how long the others took is the machine's.
    measured_s, run_s = event["measured_s"], _moment(event, "finished") - _moment(event, "started")
    assert 24 / metrics["steps_per_second"] <= measured_s * 1.0001 <= run_s + 0.002
    assert place.spool == []


def test_it_is_an_event_that_tunerd_accepts(place: TrainingPlace) -> None:
    place.run()
    line = (place.stream / "tunerd.jobs.jsonl").read_bytes().strip()
    seen = read_job(line, [], datetime.now(UTC))
    assert isinstance(seen, Observation)
    assert (seen.status, seen.study, seen.source) == (Status.SUCCEEDED, "tiny", "tunerd trainers")
    assert seen.measured_s is not None


def test_it_needs_no_library(place: TrainingPlace) -> None:
    """``pip install --no-deps tunerd`` in a training's image."""
    (place.folder / "tunerd").symlink_to(ROOT / "tunerd")
    program = "import sys; sys.path.insert(0, '.')\n" + LOOP
    program += "assert not {'numpy', 'click', 'pydantic', 'msgspec', 'kafka'} & set(sys.modules)\n"
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=place.folder,
        env=place.environment,
        check=True,
    )
    assert place.event()["status"] == "succeeded"


# -- the configuration ------------------------------------------------------------------------

CHOSEN = """
import json, tunerd.client
with tunerd.client.job("tiny", {"gpu": "none"}, defaults={"batch": 1, "other": 3}) as job:
    print(json.dumps(job.config))
    for step in range(5):
        job.step(tokens=1)
"""


def test_it_takes_what_is_recommended_and_says_so(place: TrainingPlace) -> None:
    place.advise()
    assert json.loads(place.run(CHOSEN)) == {"batch": 8, "other": 3}
    event = place.event()
    assert event["config"] == {"batch": 8, "other": 3}
    assert (event["recommendation_id"], event["labels"]["kind"]) == ("r-1", "incumbent")


def test_what_its_launcher_chose_is_not_chosen_again(place: TrainingPlace) -> None:
    place.advise()
    launched = {
        "TUNERD_CONFIG": '{"batch": 2}',
        "TUNERD_RECOMMENDATION_ID": "r-2",
        "TUNERD_CANDIDATE_ID": "c-2",
        "TUNERD_JOB_ID": "uid-of-the-job",
        "TUNERD_ATTEMPT": "3",
        "TUNERD_CLUSTER": "west",
    }
    assert json.loads(place.run(CHOSEN, environ=launched)) == {"batch": 2, "other": 3}
    event = place.event()
    assert event["config"] == {"batch": 2, "other": 3}
    assert (event["recommendation_id"], event["candidate_id"]) == ("r-2", "c-2")
    assert (event["job_id"], event["attempt"]) == ("uid-of-the-job", 3)


def test_halves_are_of_the_cluster_and_the_job_that_the_launcher_says(
    place: TrainingPlace,
) -> None:
    program = LOOP.replace('config={"batch": 4}', 'config={"batch": 4}, halves=True')
    place.run(program, environ={"TUNERD_JOB_ID": "uid-of-the-job", "TUNERD_CLUSTER": "west"})
    lines = (place.stream / "tunerd.jobs.jsonl").read_bytes().splitlines()
    halves = [read_job(line, [], datetime.now(UTC)) for line in lines]
    assert {one.key for one in halves if isinstance(one, JobHalf)} == {
        ("west", "uid-of-the-job", 1)
    }


@pytest.mark.parametrize("said", ["", "{", "[]", "3"])
def test_a_configuration_that_is_none_is_not_its_launchers(place: TrainingPlace, said: str) -> None:
    assert json.loads(place.run(CHOSEN, environ={"TUNERD_CONFIG": said})) == {
        "batch": 1,
        "other": 3,
    }


def test_without_a_recommendation_its_defaults_stay(place: TrainingPlace) -> None:
    assert json.loads(place.run(CHOSEN)) == {"batch": 1, "other": 3}
    assert place.event()["labels"]["kind"] == "defaults"


def test_ranks_that_it_starts_get_the_same_and_are_not_told(place: TrainingPlace) -> None:
    place.advise()
    inner = CHOSEN.replace("tunerd.client.job", "__import__('tunerd.client').client.job")
    outer = f"""
    import subprocess, sys, tunerd.client
    with tunerd.client.job("tiny", {{"gpu": "none"}}, defaults={{"batch": 1}}) as job:
        job.config["batch"] = 8
        subprocess.run([sys.executable, "-c", {inner!r}], check=True)
        for step in range(5):
            job.step(tokens=1)
    """
    assert json.loads(place.run(outer)) == {"batch": 8}
    assert len(place.events()) == 1


@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_only_the_first_rank_tells(place: TrainingPlace, name: str) -> None:
    place.run(environ={name: "1"})
    assert place.events() == []
    place.run(environ={name: "0"})
    assert place.event()["status"] == "succeeded"
    assert place.spool == []


def test_under_exec_it_is_exec_that_tells(place: TrainingPlace) -> None:
    place.advise()
    exec_ = [sys.executable, "-m", "tunerd", "exec", "--study", "tiny", "--context", "gpu=none"]
    out = place.run(CHOSEN.replace("range(5)", "range(50)"), prefix=[*exec_, "--"])
    assert json.loads(out) == {"batch": 8, "other": 3}
    event = place.event()
    assert (event["source"], event["config"]) == ("tunerd exec", {"batch": 8})
    assert event["metrics"]["tokens_per_second"] > 0


# -- how it ends ------------------------------------------------------------------------------


def ends(how: str, steps: int = 60) -> str:
    return LOOP.replace("range(60)", f"range({steps})") + f"    {how}\n"


@pytest.mark.parametrize(
    ("how", "code", "status"),
    [
        ("raise ValueError('it is wrong')", 1, "failed"),
        ("import torch; raise torch.OutOfMemoryError('Tried to allocate')", 1, "out_of_memory"),
        ("raise RuntimeError('HIP out of memory')", 1, "out_of_memory"),
        ("raise MemoryError", 1, "out_of_memory"),
        ("raise ValueError from RuntimeError('CUDA error: out of memory')", 1, "out_of_memory"),
        ("raise ExceptionGroup('ranks', [ValueError(), MemoryError()])", 1, "out_of_memory"),
        ("raise ValueError('an OutOfMemoryError is what this is not')", 1, "failed"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "cancelled"),
        ("raise SystemExit(3)", 3, "failed"),
        ("raise SystemExit(0)", 0, "succeeded"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "preempted"),
    ],
)  # fmt: skip
def test_what_ended_it(place: TrainingPlace, how: str, code: int, status: str) -> None:
    """The training ends as it would without tunerd."""
    if "torch" in how and find_spec("torch") is None:
        without("torch", "`make peers`, or pip install -e '.[trainers]'")
    said = place.run(ends(how), code=code)
    assert "tunerd:" not in said
    event = place.event()
    assert event["status"] == status
    assert event["metrics"]["tokens_per_second"] > 0  # what was measured counts all the same
    assert ("cause" in event["labels"]) is (status != "succeeded")


def test_who_breaks_off_in_the_warm_up_has_no_speed(place: TrainingPlace) -> None:
    place.run(ends("raise MemoryError", steps=15), code=1)
    event = place.event()
    assert (event["status"], event["metrics"]) == ("out_of_memory", {})


def test_success_without_a_speed_does_not_blame_the_configuration(place: TrainingPlace) -> None:
    said = place.run(LOOP.replace("range(60)", "range(1)"))
    assert place.event()["status"] == "cancelled"
    assert "fewer than two steps" in said


def test_success_without_the_studys_metric_does_not_either(place: TrainingPlace) -> None:
    said = place.run(LOOP.replace("tokens=", "samples="))
    assert place.event()["status"] == "cancelled"
    assert "there is no tokens_per_second" in said


def test_a_handler_of_ones_own_for_sigterm_decides(place: TrainingPlace) -> None:
    program = """
    import os, signal, sys, tunerd.client
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    with tunerd.client.job("tiny", {"gpu": "none"}, config={}) as job:
        for step in range(60):
            job.step(tokens=1)
        os.kill(os.getpid(), signal.SIGTERM)
    """
    place.run(program, code=7)
    assert place.event()["status"] == "preempted"


def test_without_with_the_exception_of_the_program_tells(place: TrainingPlace) -> None:
    program = LOOP.replace("with ", "job = ").replace(" as job:", "\nif True:")
    place.run(program + "    raise MemoryError('CUDA out of memory')\n", code=1)
    assert place.event()["status"] == "out_of_memory"
    place.run(program)
    assert place.events()[1]["status"] == "cancelled"
    place.run(program + "    job.end()\n")
    assert place.events()[2]["status"] == "succeeded"


# -- who is killed, and what is away -------------------------------------------------------------


def begun(place: TrainingPlace, program: str = ENDLESS) -> "subprocess.Popen[str]":
    running = place.start(program)
    assert running.stdout is not None
    assert running.stdout.readline() == "runs\n"
    return running


def measured(place: TrainingPlace) -> bool:
    return any('"progress"' in file.read_text() for file in place.spool)


def test_the_next_start_tells_of_one_that_was_killed(place: TrainingPlace) -> None:
    running = begun(place)
    wait_until(lambda: measured(place), 30, "the spool has a speed")
    running.kill()
    running.communicate()
    assert place.events() == []
    place.run()
    wait_until(lambda: place.spool == [], 30, "what waited is sent")
    killed, own = sorted(place.events(), key=lambda event: str(event["started_at"]))
    assert (killed["status"], killed["config"]) == ("cancelled", {"batch": 4})
    assert killed["labels"]["cause"] == "tunerd trainers was killed"
    assert killed["metrics"]["tokens_per_second"] > 0
    assert killed["labels"]["steps"] > 0
    assert own["status"] == "succeeded"


def test_exec_tells_of_it_too(place: TrainingPlace) -> None:
    running = begun(place)
    wait_until(lambda: measured(place), 30, "the spool has a speed")
    running.kill()
    running.communicate()
    exec_ = [sys.executable, "-m", "tunerd", "exec", "--study", "tiny", "--context", "gpu=none"]
    place.run("pass", prefix=[*exec_, "--"])
    assert {event["source"] for event in place.events()} == {"tunerd exec", "tunerd trainers"}
    assert place.spool == []


def test_workers_that_were_forked_neither_end_it_nor_hold_its_lock(place: TrainingPlace) -> None:
    program = """
    import os, signal, sys, time, tunerd.client
    with tunerd.client.job("tiny", {"gpu": "none"}, config={}) as job:
        while not job._teller._entry:
            time.sleep(0.001)
        leaves = os.fork()
        if not leaves:
            sys.exit(0)  # unwinds the `with` of a process that is not the training
        stays = os.fork()
        if not stays:
            time.sleep(60)
        print(stays, os.waitpid(leaves, 0)[1], flush=True)
        time.sleep(60)
    """
    running = place.start(program)
    assert running.stdout is not None
    child, left = map(int, running.stdout.readline().split())
    assert left == 0
    assert place.events() == []
    running.kill()
    running.wait()
    try:
        place.run()  # the worker lives on
        wait_until(lambda: len(place.events()) == 2, 30, "what waited is sent")
    finally:
        os.kill(child, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{child}").exists(), 30, "SIGTERM ends the worker")
    running.communicate()


def test_without_a_stream_it_waits_in_the_spool(place: TrainingPlace) -> None:
    away = place.stream.rename(place.folder / "away")
    said = place.run()
    assert said.count("tunerd:") == 1
    assert "waits in" in said
    assert len(place.spool) == 1
    away.rename(place.stream)
    place.run()
    wait_until(lambda: place.spool == [], 30, "what waited is sent")
    assert [event["status"] for event in place.events()] == ["succeeded"] * 2


def test_a_full_disk_fails_nothing(place: TrainingPlace) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    said = place.run(full + LOOP + "print('done')\n")
    assert "done" in said
    assert place.events() == []


def test_a_state_folder_that_cannot_be_written_loses_no_event(place: TrainingPlace) -> None:
    (place.folder / "state").write_text("in the way")
    said = place.run()
    assert "an event that cannot be sent is lost" in said
    assert place.event()["status"] == "succeeded"


def test_a_broker_that_never_answers_holds_up_only_the_end(place: TrainingPlace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        program = LOOP.replace("config=", f"kafka='127.0.0.1:{port}', config=")
        program = (
            f"import time; began = time.monotonic()\n{program}print(time.monotonic() - began)\n"
        )
        said = place.run(program)
    assert float(said.splitlines()[0]) < 8
    assert len(place.spool) == 1
    assert '"event"' in place.spool[0].read_text()


def test_a_wrong_call_is_told_at_once_and_fails_nothing(place: TrainingPlace) -> None:
    said = place.run(LOOP.replace('{"gpu": "none"}', '{"gpu": object()}'))
    assert "cannot send <object object" in said
    assert place.events() == []


# -- halves -----------------------------------------------------------------------------------

HALVES = LOOP.replace("config=", "halves=True, config=")
IN_SLURM = {"SLURM_JOB_ID": "99", "SLURM_ARRAY_JOB_ID": "71", "SLURM_ARRAY_TASK_ID": "3"}
IN_SLURM |= {"SLURM_CLUSTER_NAME": "a", "SLURM_RESTART_COUNT": "1"}


def halves(place: TrainingPlace) -> set[str]:
    lines = (place.stream / "tunerd.jobs.jsonl").read_bytes().splitlines()
    found = [read_job(line, [], datetime.now(UTC)) for line in lines]
    assert all(isinstance(half, JobHalf) and half.key == ("a", "71_3", 2) for half in found)
    return {half.type for half in found if isinstance(half, JobHalf)}


def test_of_a_job_whose_end_the_scheduler_tells_it_tells_two_halves(place: TrainingPlace) -> None:
    place.run(HALVES, environ=IN_SLURM)
    assert halves(place) == {"started", "reported"}
    by_type = {event["type"]: event for event in place.events()}
    assert by_type["started"]["config"] == {"batch": 4}
    assert by_type["reported"]["metrics"]["tokens_per_second"] > 0
    assert (by_type["reported"]["steps"], by_type["reported"]["study"]) == (48, "tiny")


def test_the_next_start_tells_the_speed_of_one_that_was_killed(place: TrainingPlace) -> None:
    running = place.start(ENDLESS.replace("config=", "halves=True, config="), environ=IN_SLURM)
    wait_until(lambda: measured(place), 30, "the spool has a speed")
    running.kill()
    running.communicate()
    place.run(HALVES, environ=IN_SLURM)
    wait_until(lambda: place.spool == [], 30, "what waited is sent")
    assert [event["type"] for event in place.events()].count("reported") == 2
    assert halves(place) == {"started", "reported"}


# -- faults of ours ---------------------------------------------------------------------------

PLACES = [
    "tunerd.trainers.speed.StepTimer.step",
    "tunerd.trainers.speed.StepTimer.measure",
    "tunerd.trainers.speed.StepTimer.pause",
    "tunerd.trainers.job.find_destination",
    "tunerd.trainers.job.read_study_file",
    "tunerd.trainers.job.job_id_of",
    "tunerd.trainers.job.job_event",
    "tunerd.trainers.job.outcome_of",
    "tunerd.trainers.job.EventTeller.start",
    "tunerd.trainers.job.EventTeller._open",
    "tunerd.trainers.job.EventTeller._wait",
    "tunerd.trainers.job.EventTeller.tell",
    "tunerd.trainers.job.EventSpool",
    "tunerd.trainers.job._rank",
    "tunerd.trainers.job._measured",
    "tunerd.trainers.destination.EventDestination.reporter",
    "tunerd.trainers.destination.EventDestination.recommendations",
    "tunerd.spool.EventSpool.new",
    "tunerd.spool.EventSpool.send",
    "tunerd.spool.SpoolEntry.write_begin",
    "tunerd.spool.SpoolEntry.write_event",
    "tunerd.spool.SpoolEntry.remove",
    "tunerd.client.JobReporter.send",
]
FAULTY = """
import pkgutil, threading, time, tunerd.client, tunerd.trainers.job
def fault(*_, **__):
    raise RuntimeError("a fault of tunerd's")
if {place!r}:
    owner, _, name = {place!r}.rpartition(".")
    setattr(pkgutil.resolve_name(owner), name, fault)
longest = 0.0
with tunerd.client.job("tiny", {{"gpu": "none"}}, defaults={{"batch": 4}}) as job:
    for step in range(60):
        began = time.perf_counter()
        job.step(tokens=100)
        longest = max(longest, time.perf_counter() - began)
        with job.paused():
            job.log(loss=1.0)
print("trained", job.config["batch"], longest < 0.5)
"""


@pytest.mark.parametrize("fault", PLACES)
def test_no_fault_of_ours_reaches_the_training(place: TrainingPlace, fault: str) -> None:
    fault = fault.replace("job._measured", "job.TrainingJob._measured")
    said = place.run(FAULTY.format(place=fault))
    assert "trained 4 True\n" in said
    assert "Traceback" not in said
    assert said.count("tunerd:") <= 2
