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

import msgspec

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


@dataclass
class TunerProcess:
    """Keeps one tuner process running; :meth:`supervise` is called a few times a second."""

    settings: bytes
    """What a child reads first: one line, see :func:`tunerd.settings.dump_settings`."""
    step_deadline_s: float
    max_crashes: int
    """So many ends in a row, without a step that was finished, and the study is set aside."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    on_report: Callable[[Report], None]
    """Called for every line, in a thread of its own."""
    on_exit: Callable[[str, str, bool], None]
    """Called when the child ended without being asked to, or could not be started: with the study
    that it worked on (or an empty text), the cause, and whether that study is set aside from now
    on."""
    set_aside: dict[str, str] = field(default_factory=dict)
    """Studies that ended it too often and are left alone until the daemon starts again, and why."""
    arguments: Sequence[str] = ()
    """More of them for the child."""
    module: str = "tunerd.service.tuner_main"
    """What the child runs."""
    _process: "subprocess.Popen[bytes] | None" = None
    _listener: threading.Thread | None = None
    _began: tuple[str, float] | None = None
    _crashes: Counter[str] = field(default_factory=Counter)
    _slow: set[str] = field(default_factory=set)
    """Studies whose last end was that a step took too long."""
    _pause_s: float = FIRST_PAUSE_S
    _start_at: float = 0.0
    _overdue: bool = False
    _heard_at: float = float("-inf")
    _stop_by: float | None = None

    def supervise(self) -> None:
        """Start, watch the deadline of, and replace the child."""
        process, now = self._process, self.clock()
        if process is None:
            if now >= self._start_at:
                try:
                    self._start()
                except OSError as error:  # no memory or no descriptors left, for the moment
                    self._pause(now)
                    self.on_exit("", f"it could not be started: {error.strerror}", False)
            return
        began = self._began
        if began is not None and now - began[1] > self.step_deadline_s and process.poll() is None:
            self._overdue = True
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
        if process.stdin is not None:
            process.stdin.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child while there is one."""
        return None if self._process is None else self._process.pid

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

    def _start(self) -> None:
        command = [sys.executable, "-m", self.module, *self.arguments]
        for study, why in sorted(self.set_aside.items()):
            command += ["--set-aside", study, f"--because={why}"]
        # What was saved may be what ends it; a step that takes too long is not helped by that.
        almost = max(1, self.max_crashes - 1)
        anew = (study for study, count in self._crashes.items() if count == almost)
        command += [f"--anew={study}" for study in anew if study not in self._slow]
        environment = os.environ | THREADS  # they must be there before the libraries are
        self._began = None
        self._overdue = False
        self._heard_at = self.clock() + STARTING_S
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and is replaced
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
                self._heard_at = self.clock()
                if isinstance(report, StepStarted):
                    self._began = (report.study, self.clock())
                elif isinstance(report, StageProgressed | StepCommitted):
                    self._began = None
                    self._pause_s = FIRST_PAUSE_S
                    if isinstance(report, StepCommitted):
                        self._crashes.pop(report.study, None)
                self.on_report(report)

    def _replace(self, status: int, now: float) -> None:
        if self._listener is not None:
            self._listener.join(LAST_WORDS_S)  # which study was it?
        study = self._began[0] if self._began else ""
        cause = (
            f"its step took more than {self.step_deadline_s:g} s (tune.step_deadline_s)"
            if self._overdue
            else (
                f"it was killed by signal {-status}" if status < 0 else f"it exited with {status}"
            )
        )
        if study:
            self._crashes[study] += 1
            (self._slow.add if self._overdue else self._slow.discard)(study)
        too_often = bool(study) and self._crashes[study] >= self.max_crashes
        if too_often:
            self.set_aside[study] = f"{cause}, {self._crashes[study]} times in a row"
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
        self._pause(now)
        self.on_exit(study, cause, too_often)

    def _pause(self, now: float) -> None:
        self._start_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
