"""How a program ended, in the words of the job event, and why.

In this order: a pattern of the user's, the timeout, what the kernel counted as killed for memory, a
signal that somebody sent, what the program said about memory, its signal or exit code.
"""

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time

from tunerd.client import STATUSES
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.exec.child import ChildExit
from tunerd.exec.output import BytesPattern

__all__ = [
    "NODE_FAILURE",
    "OUT_OF_MEMORY",
    "CausePatterns",
    "FailureCause",
    "OomCounter",
    "parse_causes",
    "stopped_by",
]

OUT_OF_MEMORY = (
    r"CUDA out of memory",
    r"CUDA error: out of memory",
    r"CUDA_ERROR_OUT_OF_MEMORY",
    r"cudaErrorMemoryAllocation",
    r"OutOfMemoryError",  # torch's and Java's
    r"HIP out of memory",
    r"RESOURCE_EXHAUSTED: Out of memory",
    r"^MemoryError\b",
    r"std::bad_alloc",
    r"Cannot allocate memory",
)
NODE_FAILURE = (
    r"uncorrectable ECC error",
    r"GPU has fallen off the bus",
    r"CUDA error: unspecified launch failure",
)
_KILLED = 128 + signal.SIGKILL
"""What a shell returns whose child was killed."""
_ASKED_TO_STOP = {
    signal.SIGTERM: "preempted",
    signal.SIGHUP: "cancelled",
    signal.SIGINT: "cancelled",
    signal.SIGQUIT: "cancelled",
}
SLURM_END = "SLURM_JOB_END_TIME"
NEAR_THE_END_S = 60.0
"""Slurm asks a job to stop so long before its time limit, or later."""


@dataclass(frozen=True)
class FailureCause:
    """A status of the job event, and a reason for a person."""

    status: str
    reason: str


class CausePatterns:
    """Patterns of causes that look at the output."""

    def __init__(self, given: Sequence[tuple[str, str]]) -> None:
        """``given`` are (status, regex) of the user's. Raises re.error."""
        self.own: list[FailureCause] = []
        self.known: list[FailureCause] = []
        self.own_patterns = [_noting(self.own, status, regex) for status, regex in given]
        self.known_patterns = [
            _noting(self.known, "out_of_memory", "|".join(OUT_OF_MEMORY)),
            _noting(self.known, "node_failure", "|".join(NODE_FAILURE)),
        ]

    @property
    def patterns(self) -> list[BytesPattern]:
        """All of them."""
        return [*self.own_patterns, *self.known_patterns]

    def of(
        self, ended: ChildExit, killed_for_memory: bool, environ: Mapping[str, str]
    ) -> FailureCause:
        """How the program ended."""
        if self.own:
            return self.own[0]
        if ended.timed_out:
            return FailureCause("timeout", "ran longer than --timeout")
        killed = ended.signal == signal.SIGKILL or ended.code == _KILLED
        if killed and killed_for_memory:
            return FailureCause(
                "out_of_memory", "the kernel killed it: its control group has no memory left"
            )
        for number in ended.received:
            if number in _ASKED_TO_STOP:
                return stopped_by(number, environ)
        if ended.signal is None and ended.code == 0:
            return FailureCause("succeeded", "")
        if self.known:
            return self.known[0]
        if ended.signal is not None:
            return FailureCause("failed", f"ended by {_name(ended.signal)}")
        return FailureCause("failed", f"exit code {ended.code}")


def parse_causes(texts: Sequence[str]) -> CausePatterns:
    """What ``--cause STATUS=REGEX`` said. Raises MisconfiguredError with every mistake."""
    problems = []
    given = []
    for text in texts:
        status, equals, regex = text.partition("=")
        if not equals or status not in STATUSES:
            message = f"{text}: should be STATUS=REGEX, with a status of {', '.join(STATUSES)}"
            problems.append(ValidationProblem("--cause", message))
            continue
        try:
            re.compile(regex.encode(), re.ASCII)
        except re.error as error:
            problems.append(ValidationProblem("--cause", f"{text}: {error}"))
        else:
            given.append((status, regex))
    if problems:
        raise MisconfiguredError(problems)
    return CausePatterns(given)


def _noting(causes: list[FailureCause], status: str, regex: str) -> BytesPattern:
    """A pattern whose first match is a cause."""

    def found(match: re.Match[bytes]) -> None:
        if not any(cause.status == status for cause in causes):
            causes.append(
                FailureCause(status, f"it said: {match[0][:100].decode('utf-8', 'replace')}")
            )

    return BytesPattern(regex, found)


def stopped_by(number: int, environ: Mapping[str, str]) -> FailureCause:
    """What a signal means that asked a program to stop."""
    reason = f"{_name(number)} came while it ran"
    end = environ.get(SLURM_END, "")
    if number == signal.SIGTERM and end.isdecimal() and time() > int(end) - NEAR_THE_END_S:
        return FailureCause("timeout", f"{reason}, at the end of its time in Slurm")
    return FailureCause(_ASKED_TO_STOP[signal.Signals(number)], reason)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OomCounter:
    """How often the kernel killed for memory in this process's control group, version 1 or 2."""

    def __init__(self) -> None:
        self._file = _oom_file()
        self.before = self._count()

    def rose(self) -> bool:
        """Whether it did since. A neighbour in the same group may have been the one."""
        now = self._count()
        return now is not None and self.before is not None and now > self.before

    def _count(self) -> int | None:
        if self._file is None:
            return None
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdecimal():
                return int(value)
        return None


def _oom_file() -> Path | None:
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    last_file = None
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            file = Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        if os.access(file, os.R_OK):
            last_file = file
    return last_file
