"""Real servers for tests and benchmarks, on loopback, without Docker and without root's help.

Each server is an object with ``start``, ``stop`` and ``kill``; all that it writes is in one
folder. A server whose binaries are not there raises :class:`MissingServerError` with a sentence
that a person can act on. Nothing here outlives the program that started it.
"""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["MissingServerError", "cache_folder", "end", "free_ports", "tied", "wait_until"]

STOP_TIMEOUT_S = 20.0


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


def end(process: subprocess.Popen[bytes], number: int) -> None:
    """End a server with this signal, or by force where that does not end it in time."""
    process.send_signal(number)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tied() -> list[str]:
    """Return what to put before a command so that it dies with the thread that started it.

    A test run that is itself killed then leaves no server behind (where there is ``setpriv``, so
    on Linux). It is not a ``preexec_fn``: those are deprecated in programs with threads.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
