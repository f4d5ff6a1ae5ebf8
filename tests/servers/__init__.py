"""Real servers for tests and benchmarks, on loopback, without Docker and without root's help.

Each server is an object with ``start``, ``stop`` and ``kill``; all that it writes is in one
folder. A server whose binaries are not there raises :class:`MissingServerError` with a sentence
that a person can act on. Nothing here outlives the program that started it.
"""

import contextlib
import ctypes
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["MissingServerError", "cache_folder", "die_with_parent", "free_ports", "wait_until"]

PR_SET_PDEATHSIG = 1


class MissingServerError(Exception):
    """Raised when a server cannot run here. The text says what to install."""


def cache_folder() -> Path:
    """Return the folder outside the checkout that downloads are kept in, made if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "tunerd-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on now.

    They lie below the range that the kernel takes outgoing connections from: a client that keeps
    trying a port of that range, while its server is down, in time connects to itself, and the
    server can never come back.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = random.SystemRandom().randrange(15_000, 32_000)
            trial = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                trial.bind(("127.0.0.1", port))
                found.append(port)
    return found


def wait_until(ready: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until ``ready`` is true. Raises TimeoutError that names ``what``."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {timeout_s:g} s")
        time.sleep(0.02)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends (Linux only).

    Runs between fork and exec. A test run that is itself killed leaves no server behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
