"""Answers that take seconds: a command of tunerd's own, run aside, its JSON kept for a while.

A model is loaded and asked by ``tunerd explain`` and ``tunerd recommend`` in a process of their
own: a native library may abort it, it takes a core for seconds, and its memory is given back.
"""

import json
import logging
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass
from typing import Any

__all__ = ["AsideAnswer", "AsideAnswers", "BusyError"]

log = logging.getLogger(__name__)

LONGEST_S = 60.0
KEPT_S = 300.0
"""How long an answer counts; then it is asked anew."""
KEPT = 64
MOST_WAITING = 8
"""Questions that wait or run; more are refused."""
FIRST_WAIT_S = 0.15
"""How long a page waits for an answer before it says that there is none yet."""


class BusyError(Exception):
    """Raised when too much is asked at once. Try again."""


@dataclass(frozen=True, slots=True)
class AsideAnswer:
    """What a command said."""

    value: Any = None
    """Its JSON; None where it failed."""
    problem: str = ""
    """What was wrong, for a person."""


class AsideAnswers:
    """Runs one command after the other."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """``arguments`` go with every command: which settings."""
        self._arguments = tuple(arguments)
        self._answers: OrderedDict[tuple[str, ...], tuple[float, Future[AsideAnswer]]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="aside")
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, *command: str) -> AsideAnswer | None:
        """The answer of a command; None while it runs: ask again.

        Raises:
            BusyError: too much is asked at once.
        """
        with self._lock:
            asked = self._answers.get(command)
            if asked is None or (asked[1].done() and time.monotonic() - asked[0] > KEPT_S):
                waiting = sum(not future.done() for _, future in self._answers.values())
                if waiting >= MOST_WAITING or self._closed:
                    raise BusyError
                asked = (time.monotonic(), self._pool.submit(self._run, command))
                self._answers[command] = asked
            self._answers.move_to_end(command)
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        try:
            return asked[1].result(FIRST_WAIT_S)
        except StillRunning:
            return None

    def close(self) -> None:
        """End what runs."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def _run(self, command: Sequence[str]) -> AsideAnswer:
        name, *rest = command
        line = [sys.executable, "-m", "tunerd", name, *self._arguments, "--json", *rest]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._process = process
        try:
            out, err = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return AsideAnswer(problem=f"no answer within {LONGEST_S:g} s")
        try:
            return AsideAnswer(json.loads(out))
        except ValueError:
            text = err.decode(errors="replace").strip()
        lines = [line for line in text.splitlines() if not line.startswith(("Usage:", "Try "))]
        problem = "\n".join(lines).removeprefix("tunerd: ").removeprefix("Error: ").strip()
        log.debug("tunerd %s: %s", " ".join(command), problem)
        return AsideAnswer(problem=problem or f"`tunerd {name}` ended with {process.returncode}")
