"""The tuner process seen from the parent: replaced when it dies or takes too long."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.servers import wait_until
from tunerd.service.tuner_process import TunerProcess
from tunerd.telemetry import Report, StepCommitted, StepStarted, TunerReady

pytestmark = pytest.mark.slow

Lost = tuple[str, str, bool]


@dataclass
class Watched:
    """A child that follows a script, and what the parent heard of it."""

    script: Sequence[str]
    step_deadline_s: float = 30.0
    reports: list[Report] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tuner = TunerProcess(
            settings=json.dumps(self.script).encode(),
            step_deadline_s=self.step_deadline_s,
            max_crashes=3,
            clock=time.monotonic,
            on_report=self.reports.append,
            on_exit=lambda study, cause, why: self.lost.append((study, cause, bool(why))),
            on_return=self.returned.append,
            module="tests.service.tuner_child",
        )

    def until(self, true: Callable[[], bool]) -> None:
        """Supervise until something is true."""

        def supervised() -> bool:
            self.tuner.supervise()
            return true()

        wait_until(supervised, 30.0, "what the test waits for")


Watch = Callable[..., Watched]


@pytest.fixture
def watch() -> Iterator[Watch]:
    made: list[Watched] = []

    def start(*lines: str, step_deadline_s: float = 30.0) -> Watched:
        made.append(Watched(lines, step_deadline_s))
        return made[-1]

    yield start
    for one in made:
        one.tuner.stop()


def test_reports_come_through_and_other_output_is_passed_over(watch: Watch) -> None:
    child = watch("say rubbish", "ready", 'say {"type": "nonsense"}', "began toy", "wait")
    child.until(lambda: len(child.reports) == 2)
    assert child.reports == [TunerReady(), StepStarted(study="toy")]
    assert not child.lost


def test_a_child_that_cannot_be_started_is_tried_again(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    child = watch("ready", "wait")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", full)
        child.until(lambda: len(child.lost) == 2)
    assert child.lost == [("", "it could not be started: Too many open files", False)] * 2
    child.until(lambda: child.reports == [TunerReady()])


def test_a_child_that_was_killed_is_replaced(watch: Watch) -> None:
    child = watch("began toy", "stepped toy", "wait")
    child.until(lambda: len(child.reports) == 2)
    first = child.tuner.pid
    assert first is not None
    assert child.tuner.resident_bytes is not None
    assert child.tuner.resident_bytes > 10**6
    os.kill(first, signal.SIGKILL)
    child.until(lambda: len(child.reports) == 4)
    assert child.tuner.pid not in (None, first)
    assert child.lost == [("", "it was killed by signal 9", False)]


def test_who_dies_without_a_word_keeps_no_studies_from_others(watch: Watch) -> None:
    """Its leases are renewed only while it is well."""
    child = watch("say nothing", "crash", "wait")
    child.until(lambda: len(child.lost) == 1)
    assert not child.tuner.is_well()
    child.until(lambda: child.tuner.pid is not None)
    assert not child.tuner.is_well()
    spoke = watch("ready", "crash", "wait")
    spoke.until(lambda: len(spoke.lost) == 2)
    assert spoke.tuner.is_well()  # it is started again, and keeps them


def test_a_child_is_of_this_code_wherever_it_is_started(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a folder with another tunerd it would refuse, or understand nothing."""
    (tmp_path / "tunerd").mkdir()
    (tmp_path / "tunerd/__init__.py").write_text("raise SystemExit(4)\n")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    child = watch("ready", "wait")
    child.until(lambda: bool(child.reports or child.lost))
    assert (child.reports, child.lost) == ([TunerReady()], [])


def test_a_tuner_process_of_other_files_than_the_daemons_refuses(watch: Watch) -> None:
    child = watch("begins with its settings")
    child.tuner.module, child.tuner.arguments = TunerProcess.module, ["--code=otherwise"]
    child.until(lambda: len(child.lost) == 2)
    assert {cause.partition(",")[0] for _, cause, _ in child.lost} == {
        "tunerd's files were replaced since this daemon started"
    }
    assert not child.tuner.is_well()


def test_who_ends_in_a_search_for_another_instance_helps_nobody_for_a_while(watch: Watch) -> None:
    """And no study is to blame: it may be this instance's tomorrow."""
    child = watch("helping theirs", "crash --alone", "stepped own", "wait")
    child.until(lambda: StepCommitted(study="own", sequence=1) in child.reports)
    cause = "it was killed by signal 6 while it searched for another instance"
    assert child.lost == [("", cause, False)]
    assert not child.tuner._crashes


def test_a_step_over_its_deadline_is_ended_and_its_study_is_named(watch: Watch) -> None:
    child = watch("began slow", "wait", step_deadline_s=0.2)
    child.until(lambda: bool(child.lost))
    assert child.lost == [("slow", "its step took more than 0.2 s (tune.step_deadline_s)", False)]


def test_a_step_that_waits_for_a_processor_is_given_the_time_it_needs(watch: Watch) -> None:
    """As on a machine that others keep busy: it takes long, and uses little."""
    child = watch("began slow", "labour 15 0.05", "stepped slow", "wait", step_deadline_s=0.4)
    child.until(lambda: any(isinstance(report, StepCommitted) for report in child.reports))
    assert not child.lost


def test_a_step_that_uses_up_its_time_gets_twice_as_much_at_the_next_try(watch: Watch) -> None:
    child = watch("began slow", "labour 50 0", "stepped slow", "wait", step_deadline_s=0.2)
    child.until(lambda: any(isinstance(report, StepCommitted) for report in child.reports))
    causes = [cause for _, cause, _ in child.lost]
    assert causes[0] == "its step took more than 0.2 s (tune.step_deadline_s)"
    assert causes[1:] in (
        ["its step took more than 0.4 s (2 times tune.step_deadline_s)"],
        [],  # the clocks of a busy machine
    )
    assert child.tuner._allowed_s("slow") == 0.2  # what hangs after it has no more than others


def test_a_step_that_works_a_little_does_not_go_on_for_ever(watch: Watch) -> None:
    """As one that hangs beside a thread that does something now and then."""
    child = watch("began slow", "labour 12 0.2", "stepped slow", "wait", step_deadline_s=0.2)
    child.until(lambda: bool(child.lost) or len(child.reports) > 1)
    assert child.lost == [("slow", "its step took more than 0.2 s (tune.step_deadline_s)", False)]


def test_a_study_that_is_only_too_slow_comes_back(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunerd.service.tuner_process.FIRST_AWAY_S", 0.5)
    monkeypatch.setattr("tunerd.service.tuner_process.MOST_PATIENCE", 4)
    child = watch("began slow", "labour 10000 0", step_deadline_s=0.1)
    child.tuner._pause_s = 0.0
    child.until(lambda: bool(child.lost) and child.lost[-1][2])
    assert [lost[::2] for lost in child.lost] == [("slow", False), ("slow", False), ("slow", True)]
    assert "; it is tried again after " in child.tuner.set_aside["slow"]
    heard = len(child.reports)
    child.until(lambda: bool(child.returned))
    assert child.returned == ["slow"]
    assert child.tuner.set_aside == {}
    # The child begins with it. One crash is one, whatever was before; and when it takes too long
    # again it is away for twice as long.
    child.until(lambda: StepStarted(study="slow") in child.reports[heard:])
    assert child.tuner.pid is not None
    os.kill(child.tuner.pid, signal.SIGKILL)
    child.until(lambda: len(child.lost) == 4)
    assert not child.lost[-1][2]
    child.tuner._pause_s = 0.0
    child.until(lambda: len(child.lost) == 6)
    assert child.lost[-1] == (
        "slow",
        "its step took more than 0.4 s (4 times tune.step_deadline_s)",
        True,
    )
    assert "3 times in a row" in child.tuner.set_aside["slow"]
    assert child.tuner._away_s["slow"] == 2.0
    child.until(lambda: len(child.returned) == 2)


def test_a_study_that_hangs_stays_away(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses no processor, so that more time would not help it."""
    monkeypatch.setattr("tunerd.service.tuner_process.FIRST_AWAY_S", 0.0)
    child = watch("began stuck", "wait", step_deadline_s=0.8)
    child.tuner._pause_s = 0.0
    child.until(lambda: "stuck" in child.tuner.set_aside)
    cause = "its step took more than 0.8 s (tune.step_deadline_s)"
    assert child.lost == [("stuck", cause, False)] * 2 + [("stuck", cause, True)]
    assert child.tuner.set_aside == {"stuck": f"{cause}, 3 times in a row"}
    for _ in range(5):
        child.tuner.supervise()
    assert child.returned == []


def _end(child: Watched) -> None:
    """Kill it, and let nobody know yet."""
    pid = child.tuner.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_study_comes_back_although_the_child_has_just_died(watch: Watch) -> None:
    child = watch("ready", "wait")
    child.until(lambda: bool(child.reports))
    child.tuner.set_aside["slow"] = "it took too long"
    child.tuner._back_at["slow"] = 0.0
    _end(child)
    child.until(lambda: len(child.reports) == 2)
    assert child.returned == ["slow"]
    assert child.lost == [("", "it was killed by signal 9", False)]


@pytest.mark.parametrize("then", [TunerProcess.stop, TunerProcess.supervise])
def test_what_a_dead_child_did_not_read_ends_nothing(
    watch: Watch, then: Callable[[TunerProcess], None]
) -> None:
    child = watch("ready", "wait")
    child.until(lambda: bool(child.reports))
    _end(child)
    child.tuner._back_at["slow"] = 0.0
    child.tuner._take_back("slow")  # it died in this moment
    then(child.tuner)
    assert child.tuner.pid is None


def test_a_child_that_ends_before_it_has_read_its_settings_is_replaced(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = subprocess.Popen

    def slowly(*arguments: Any, **more: Any) -> "subprocess.Popen[bytes]":
        process = popen(*arguments, **more)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return process

    child = watch()
    child.tuner.module = "tests.service.no_such_module"
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", slowly)
        child.until(lambda: len(child.lost) == 2)
    assert child.lost == [("", "it exited with 1", False)] * 2


def test_its_process_may_be_replaced_while_another_thread_asks_for_it(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = watch("ready", "wait")
    child.until(lambda: bool(child.reports))
    process = child.tuner._process
    assert process is not None
    reads = iter([process, None])
    with monkeypatch.context() as patched:
        patched.setattr(TunerProcess, "_process", property(lambda _: next(reads)))
        assert child.tuner.pid == process.pid


def test_a_study_that_crashes_stays_away(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunerd.service.tuner_process.FIRST_AWAY_S", 0.0)
    child = watch("began bad", "crash bad", "wait")
    child.tuner._pause_s = 0.0
    child.until(lambda: "bad" in child.tuner.set_aside)
    for _ in range(5):
        child.tuner.supervise()
    assert "bad" in child.tuner.set_aside
    assert child.returned == []


def test_the_tuner_process_takes_up_what_its_parent_names() -> None:
    """Its first line and the next may come at once, or in pieces."""
    program = """
import sys, threading, time
from tunerd.service.tuner_main import _first_line, _follow_parent
line, rest = _first_line()
aside = {"a": "slow", "b": "slow", "c": "broken"}
threading.Thread(target=_follow_parent, args=(rest, aside), daemon=True).start()
while len(aside) > 1:
    time.sleep(0.01)
print(line.decode(), *aside, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for part in (b"{}\na\nb", b"\n"):
            child.stdin.write(part)
            child.stdin.flush()
        assert child.stdout.readline() == b"{} c\n"
        child.stdin.close()
        assert child.wait(10) == 0


def test_an_idle_child_has_no_deadline(watch: Watch) -> None:
    child = watch("began toy", "progressed", "sleep 0.8", "ready", "wait", step_deadline_s=0.2)
    child.until(lambda: TunerReady() in child.reports)
    assert not child.lost


def test_a_study_that_ends_it_three_times_is_set_aside_and_the_others_go_on(watch: Watch) -> None:
    child = watch("began good", "stepped good", "began bad", "crash bad", "wait")
    child.tuner._pause_s = 0.0
    child.until(lambda: "bad" in child.tuner.set_aside)
    assert [lost[::2] for lost in child.lost] == [("bad", False), ("bad", False), ("bad", True)]
    heard = len(child.reports)
    child.until(lambda: len(child.reports) == heard + 2)
    assert len(child.lost) == 3


def test_crashes_with_a_finished_step_between_them_do_not_add_up(watch: Watch) -> None:
    child = watch("began toy", "stepped toy", "began toy", "crash")
    child.until(lambda: len(child.lost) == 4)
    assert child.tuner.set_aside == {}


def test_it_is_asked_to_stop_and_then_made_to(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunerd.service.tuner_process.STOP_S", 0.3)
    willing, deaf = watch("ready", "wait"), watch("deaf", "ready", "sleep 60")
    pids = []
    for child in (willing, deaf):
        child.until(lambda child=child: bool(child.reports))  # type: ignore[misc]
        pids.append(child.tuner.pid)
        child.tuner.ask_to_stop()
    began = time.monotonic()
    for child in (willing, deaf):
        child.tuner.stop()
        child.tuner.stop()
    assert time.monotonic() - began < 5
    for pid in pids:
        assert pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            pytest.fail("it is still there")


def test_a_child_ends_with_its_parent(watch: Watch) -> None:
    child = watch("ready", "wait")
    child.until(lambda: bool(child.reports))
    process = child.tuner._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as it is when the parent was killed
    assert process.wait(10) == 0
