"""The tuner process, seen from the parent.

Training and search would hold the interpreter lock of the parent for seconds, and a native library
can abort the process that it runs in; so they run in a process of their own. The two share the
store; what the child reports comes over its standard output, one JSON object a line. Its standard
input begins with the parent's settings, so that both go by the same although a file was edited
since; the child ends when that input does, so that a killed parent leaves none behind.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunerd.service.tuner_main import FILES_REPLACED
from tunerd.telemetry import Report, StageProgressed, StepCommitted, StepStarted, load_report
from tunerd.threads import THREADS

__all__ = ["TunerProcess"]

STOP_S = 3.5
"""How long a child may take to end its step: of the five seconds that the daemon has in all."""
LAST_WORDS_S = 1.0
"""How long to read on from a child that has ended; something it started may hold the pipe open."""
SILENT_S = 10.0
"""A child says every second that it is there; one that does not for so long is not well."""
STARTING_S = 20.0
"""More time for its first word: imports take long where others want the cores too."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STARVED = 0.02
"""Share of one processor from which on a child counts as at work: what hangs uses none."""
MOST_PATIENCE = 16
"""Times the deadline that a study gets at most after it was too slow; no step takes longer."""
MOST_STARVED = 8
"""Times what it is allowed that a step gets at most where it waits for a processor: one that hangs
beside a thread that works a little looks the same."""
ALONE_S = 600.0
"""How long a child searches for no other instance after one ended in such a search."""
FIRST_AWAY_S = 600.0
LONGEST_AWAY_S = 6 * 3600.0
"""How long a study is set aside that was only too slow, the first time and at most."""


class _BegunStep(NamedTuple):
    study: str
    at: float
    processor_s: float | None
    """Processor time that the child had used by then."""
    helping: bool
    """Whether it is a search for another instance."""


@dataclass
class TunerProcess:
    """Keeps one tuner process running; :meth:`supervise` is called a few times a second."""

    settings: bytes
    """What a child reads first: one line, see :func:`tunerd.settings.dump_settings`."""
    step_deadline_s: float
    """What a step that gets no further may take. Where other programs keep the processors busy,
    only the child's own processor time counts, within bounds. A study that was too slow gets twice
    as much next time, until a step of it is finished."""
    max_crashes: int
    """So many ends in a row, without a step that was finished, and the study is set aside."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    on_report: Callable[[Report], None]
    """Called for every line, in a thread of its own."""
    on_exit: Callable[[str, str, str], None]
    """Called when the child ended without being asked to, or could not be started: with the study
    that it worked on (or an empty text), the cause, and why that study is set aside from now on
    (or an empty text)."""
    on_return: Callable[[str], None]
    """Called when a study that was set aside is tried again."""
    set_aside: dict[str, str] = field(default_factory=dict)
    """Studies that ended it too often and are left alone, and why: until the daemon starts again,
    or for a while where they were at work and only too slow."""
    arguments: Sequence[str] = ()
    """More of them for the child."""
    module: str = "tunerd.service.tuner_main"
    """What the child runs."""
    _process: "subprocess.Popen[bytes] | None" = None
    _listener: threading.Thread | None = None
    _began: _BegunStep | None = None
    _alone_until: float = float("-inf")
    """Until when it searches for no other instance."""
    _crashes: Counter[str] = field(default_factory=Counter)
    _slow: set[str] = field(default_factory=set)
    """Studies whose last end was that a step took too long."""
    _patience: dict[str, int] = field(default_factory=dict)
    """Times the deadline that a study gets; 1 where it is not here."""
    _away_s: dict[str, float] = field(default_factory=dict)
    """How long a study is set aside when it is too slow once more."""
    _back_at: dict[str, float] = field(default_factory=dict)
    """When a study that was too slow is tried again."""
    _pause_s: float = FIRST_PAUSE_S
    _start_at: float = 0.0
    _overdue_s: float | None = None
    """The time that was not enough for a step."""
    _was_at_work: bool = False
    """Whether the child used a processor in that step: one that hangs does not."""
    _heard_at: float = float("-inf")
    _spoke: bool = True
    """Whether the last child said anything. After one that did not none is well before it does:
    it would keep studies from other instances that can tune them."""
    _stop_by: float | None = None

    def supervise(self) -> None:
        """Start, watch the deadline of, and replace the child."""
        process, now = self._process, self.clock()
        if process is None or process.poll() is None:  # else its successor's arguments say it
            for study in [study for study, at in self._back_at.items() if now >= at]:
                self._take_back(study)
        if process is None:
            if now >= self._start_at:
                try:
                    self._start()
                except OSError as error:  # no memory or no descriptors left, for the moment
                    self._pause(now)
                    self.on_exit("", f"it could not be started: {error.strerror}", "")
            return
        began = self._began
        if began is not None and process.poll() is None and self._is_overdue(began, now):
            process.kill()
            process.wait()
        if process.poll() is not None:
            self._replace(process.returncode, now)

    def ask_to_stop(self) -> None:
        """Let the child end after its step; :meth:`stop` waits for that."""
        if self._process is not None and self._stop_by is None:
            self._stop_by = self.clock() + STOP_S
            self._process.terminate()

    def stop(self) -> None:
        """End the child after its step, or at once if that takes too long. Nothing is lost."""
        self.ask_to_stop()
        process, self._process = self._process, None
        if process is None:
            return
        assert self._stop_by is not None
        try:
            process.wait(max(0.0, self._stop_by - self.clock()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _close_input(process)

    @property
    def pid(self) -> int | None:
        """Process id of the child while there is one."""
        process = self._process  # another thread may replace it meanwhile
        return None if process is None else process.pid

    def is_well(self) -> bool:
        """Whether the child is in a step, within its deadline, or has said something lately, or has
        just been started. A child that hangs between two steps is not."""
        in_step = self._process is not None and self._began is not None
        return in_step or self.clock() - self._heard_at < SILENT_S

    @property
    def resident_bytes(self) -> int | None:
        """Memory of the child; None when there is none, or the system does not say."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return None

    @property
    def _processor_s(self) -> float | None:
        """Processor time that the child has used; None when there is none, or the system does not
        say."""
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return None

    def _allowed_s(self, study: str) -> float:
        return self.step_deadline_s * self._patience.get(study, 1)

    def _is_overdue(self, began: _BegunStep, now: float) -> bool:
        """Whether a step gets no further, or takes too long; notes which. One that waits for a
        processor which others use is given the time that it needs, within bounds."""
        spent_s, allowed_s = now - began.at, self._allowed_s(began.study)
        if spent_s <= allowed_s:
            return False
        used_s, most_s = 0.0, min(MOST_STARVED * allowed_s, MOST_PATIENCE * self.step_deadline_s)
        if (processor_s := self._processor_s) is not None and began.processor_s is not None:
            used_s = processor_s - began.processor_s
        is_at_work = used_s >= STARVED * spent_s
        if is_at_work and used_s < allowed_s and spent_s <= most_s:
            return False
        self._overdue_s, self._was_at_work = allowed_s, is_at_work
        return True

    def _take_back(self, study: str) -> None:
        """Let the child try a study again; one that is starting hears of it, too."""
        del self._back_at[study]
        self.set_aside.pop(study, None)
        self._crashes.pop(study, None)
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended, and its successor tries it anyway
                self._process.stdin.write(study.encode() + b"\n")
                self._process.stdin.flush()
        self.on_return(study)

    def _start(self) -> None:
        command = [sys.executable, *_safe_path(), "-m", self.module, *self.arguments]
        for study, why in sorted(self.set_aside.items()):
            command += ["--set-aside", study, f"--because={why}"]
        # What was saved may be what ends it; a step that takes too long is not helped by that.
        almost = max(1, self.max_crashes - 1)
        anew = (study for study, count in self._crashes.items() if count == almost)
        command += [f"--anew={study}" for study in anew if study not in self._slow]
        if (alone_s := self._alone_until - self.clock()) > 0:
            command += ["--alone", f"{alone_s:.0f}"]
        environment = os.environ | THREADS  # they must be there before the libraries are
        self._began = None
        self._overdue_s, self._was_at_work = None, False
        self._heard_at = self.clock() + STARTING_S if self._spoke else float("-inf")
        self._spoke = False
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already, and is replaced
            self._process.stdin.write(self.settings + b"\n")
            self._process.stdin.flush()
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    report = load_report(line)
                except msgspec.DecodeError:
                    continue  # half a line of a child that was killed
                if process is not self._process:
                    continue  # the last words of one that was replaced
                self._heard_at, self._spoke = self.clock(), True
                if isinstance(report, StepStarted):
                    self._began = _BegunStep(
                        report.study, self.clock(), self._processor_s, report.helping
                    )
                elif isinstance(report, StageProgressed | StepCommitted):
                    self._began = None
                    self._pause_s = FIRST_PAUSE_S
                    if isinstance(report, StepCommitted):
                        self._crashes.pop(report.study, None)
                        self._away_s.pop(report.study, None)
                        self._patience.pop(report.study, None)
                self.on_report(report)

    def _replace(self, status: int, now: float) -> None:
        if self._listener is not None:
            self._listener.join(LAST_WORDS_S)  # which study was it?
        helping = self._began is not None and self._began.helping
        study = self._began.study if self._began and not helping else ""
        if not self._spoke:
            self._heard_at = float("-inf")
        cause = self._cause(status, study)
        if helping:  # no fault of a study of this instance
            self._alone_until = now + ALONE_S
            cause += " while it searched for another instance"
        why = ""
        if study:
            self._crashes[study] += 1
            if self._overdue_s is None:
                self._slow.discard(study)
            else:
                self._slow.add(study)
            if self._was_at_work:
                self._patience[study] = min(2 * self._patience.get(study, 1), MOST_PATIENCE)
            if self._crashes[study] >= self.max_crashes:
                why = self._put_aside(study, cause, now)
        process, self._process = self._process, None
        if process is not None:
            _close_input(process)
        self._pause(now)
        self.on_exit(study, cause, why)

    def _cause(self, status: int, study: str) -> str:
        if status == FILES_REPLACED:
            return (
                "tunerd's files were replaced since this daemon started, and the two would not "
                "understand each other; restart the daemon"
            )
        if self._overdue_s is None:
            return (
                f"it was killed by signal {-status}" if status < 0 else f"it exited with {status}"
            )
        times = self._patience.get(study, 1)
        setting = "tune.step_deadline_s" if times == 1 else f"{times} times tune.step_deadline_s"
        return f"its step took more than {self._overdue_s:g} s ({setting})"

    def _put_aside(self, study: str, cause: str, now: float) -> str:
        """Leave a study alone: for a while where it was at work and only too slow, which a busy
        machine may be the reason of, and else until the next start. Returns why."""
        why = f"{cause}, {self._crashes[study]} times in a row"
        if self._was_at_work:
            away_s = self._away_s.get(study, FIRST_AWAY_S)
            self._away_s[study] = min(2 * away_s, LONGEST_AWAY_S)
            self._back_at[study] = now + away_s
            why += f"; it is tried again after {away_s / 60:g} minutes"
        self.set_aside[study] = why
        return why

    def _pause(self, now: float) -> None:
        self._start_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


def _safe_path() -> list[str]:
    """What keeps a child from the modules of the folder that it is started in, where its parent
    does without them too: that may be a clone of another tunerd."""
    return [] if {"", os.getcwd()} & set(sys.path) else ["-P"]


def _close_input(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # what it did not read before it ended
            process.stdin.close()
