"""The program as a child of this one: signals, terminal, output and end pass through.

The child stays in this process group, and has the same terminal and the same standard input. What
the terminal sends (Ctrl-C, Ctrl-Z) reaches both, so it is not passed on; what somebody sends to
this process alone is. The kernel says which is which.

Output that somebody wants to read comes through a pipe, or through a terminal of its own where it
would have gone to one. Everything else the child inherits.
"""

import fcntl
import os
import pty
import selectors
import signal
import stat
import struct
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["CannotRunError", "ChildExit", "OutputListener", "run_child"]

PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
CHUNK = 1 << 16
LINGER_S = 0.2
"""How long output is read after the program's end, while a process that it left behind holds it."""
MOST_LEFT = 1 << 20
"""Bytes that a pipe holds at most, unless root changed that."""
STOPS_WITHIN_S = 0.5
"""How long the program is given to stop by Ctrl-Z before this process stops."""
FROM_A_PROCESS = 0
"""``si_code`` of a signal that somebody sent; those of the kernel's own are larger."""


class CannotRunError(Exception):
    """There is no such program, or it cannot be run."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        """What a shell returns then: 127 not found, 126 cannot be run."""


class OutputListener(Protocol):
    """Who reads along."""

    def hear(self, data: bytes, /) -> None:
        """Some bytes of output, as they came."""


@dataclass
class ChildExit:
    """How it went."""

    code: int = 0
    """The exit code; 0 where a signal ended it."""
    signal: int | None = None
    """The signal that ended it."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    """Resident memory of the largest process among the child and those that it waited for."""
    received: list[int] = field(default_factory=list)
    """Signals that came while it ran, passed on or from the terminal, in order."""
    timed_out: bool = False
    stopped: bool = False
    """Whether it stood still in between, as after Ctrl-Z: then its time says nothing."""


def run_child(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    started: Callable[[int], None],
    *,
    stdout: OutputListener | None = None,
    stderr: OutputListener | None = None,
    timeout_s: float | None = None,
    kill_after_s: float = 10.0,
) -> ChildExit:
    """Run a program to its end.

    ``started`` is called with its process id. A listener gets what the program writes there, after
    it was passed on. Must be called in the main thread.

    Raises:
        CannotRunError: nothing was started.
    """
    return _ChildProcess(arguments, environment, stdout, stderr).run(
        started, timeout_s, kill_after_s
    )


@dataclass
class _OutputRoute:
    """From the child's output to ours."""

    source: int
    """What we read."""
    target: int
    """What we write to: 1 or 2."""
    given: int
    """What the child gets; closed once it has it."""
    listener: OutputListener | None
    terminal: bool


class _ChildProcess:
    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdout: OutputListener | None,
        stderr: OutputListener | None,
    ) -> None:
        self.arguments, self.environment = list(arguments), environment
        self.routes: list[_OutputRoute] = []
        self.actions: list[tuple[int, int, int]] = []
        self._lay(stdout, stderr)
        self.lock = threading.Lock()
        self.over = False
        self.stopped = threading.Event()
        self.ended = ChildExit()
        self.wake_reader, self.wake_writer = os.pipe()

    # -- output ---------------------------------------------------------------------------

    def _lay(self, stdout: OutputListener | None, stderr: OutputListener | None) -> None:
        """Put a pipe or a terminal between; one for both where both go to the same place, so that
        their order stays."""
        if _is_open(1) and _is_open(2) and _same_file(1, 2) and (stdout or stderr):
            route = self._route(1, stdout or stderr)
            self.actions += [(os.POSIX_SPAWN_DUP2, route.given, fd) for fd in (1, 2)]
            return
        for number, listener in ((1, stdout), (2, stderr)):
            if listener is not None and _is_open(number):
                route = self._route(number, listener)
                self.actions.append((os.POSIX_SPAWN_DUP2, route.given, number))

    def _route(self, number: int, listener: OutputListener | None) -> _OutputRoute:
        if terminal := os.isatty(number):
            source, given = pty.openpty()
            with suppress(termios.error, OSError):
                tty.setraw(given)  # the real terminal does what terminals do to output
            _copy_size(number, source)
        else:
            source, given = os.pipe()
        route = _OutputRoute(source, number, given, listener, terminal)
        self.routes.append(route)
        return route

    def _pass_on(self, route: _OutputRoute, selector: selectors.BaseSelector) -> bool:
        """Move one piece; False when there is none."""
        try:
            data = os.read(route.source, CHUNK)
        except OSError:  # of a terminal whose last user has gone
            data = b""
        if data:
            try:
                _write(route.target, data)
            except OSError:  # nobody reads any more: the program finds out as it would by itself
                data = b""
        if not data:
            selector.unregister(route.source)
            os.close(route.source)
            self.routes.remove(route)
            return False
        if route.listener is not None:
            route.listener.hear(data)
        return True

    # -- signals --------------------------------------------------------------------------

    def _watch_signals(self, wanted: set[signal.Signals]) -> None:
        while True:
            info = signal.sigwaitinfo(wanted)
            number = info.si_signo
            if number == signal.SIGTSTP:
                self._stop_too(passed_on=info.si_code <= FROM_A_PROCESS)
                continue
            if number == signal.SIGWINCH:
                for route in self.routes:
                    if route.terminal:
                        _copy_size(route.target, route.source)
            with self.lock:
                if self.over:
                    continue
                if number != signal.SIGWINCH and number not in self.ignored:
                    self.ended.received.append(number)
                if info.si_code <= FROM_A_PROCESS or number == signal.SIGWINCH:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(self.pid, number)

    def _stop_too(self, *, passed_on: bool) -> None:
        """Stop as the program does, but after it: a shell goes on once this process has stopped,
        and what is typed there must not be read by a program that is about to stop."""
        if signal.SIGTSTP in self.ignored:
            return
        with self.lock:
            if passed_on and not self.over:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(self.pid, signal.SIGTSTP)
        self.stopped.wait(STOPS_WITHIN_S)  # it may as well ignore this
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})

    def _watch_end(self) -> None:
        between = os.WSTOPPED | os.WCONTINUED
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_PID, self.pid, os.WEXITED | between | os.WNOWAIT):
                if ended.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                    break
                self.ended.stopped = True
                if ended.si_code == os.CLD_STOPPED:
                    self.stopped.set()
                else:
                    self.stopped.clear()
                os.waitid(os.P_PID, self.pid, between | os.WNOHANG)  # heard; wait for the next
        self.end_s = time.monotonic()
        with self.lock:
            self.over = True  # from here on the number may become another process
        os.write(self.wake_writer, b".")

    # -- the course of it -----------------------------------------------------------------

    def run(
        self, started: Callable[[int], None], timeout_s: float | None, kill_after_s: float
    ) -> ChildExit:
        # What is blocked arrives here even where it is ignored, as by nohup and in the background
        # of a script. The program ignores it too, unless it wants to know: then it is passed on.
        handled = {*PASSED_ON, signal.SIGTSTP}
        self.ignored = {number for number in handled if signal.getsignal(number) == signal.SIG_IGN}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        begin = time.monotonic()
        try:
            self.pid = os.posix_spawnp(
                self.arguments[0],
                self.arguments,
                dict(self.environment),
                file_actions=self.actions,
                setsigmask=before,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            missing = isinstance(error, FileNotFoundError)
            why = f"{self.arguments[0]}: {error.strerror}"
            raise CannotRunError(why, 127 if missing else 126) from None
        for given in {route.given for route in self.routes}:
            os.close(given)
        for watch, arguments in ((self._watch_signals, (handled,)), (self._watch_end, ())):
            threading.Thread(target=watch, args=arguments, daemon=True).start()
        started(self.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(self.wake_reader, selectors.EVENT_READ)
            for route in self.routes:
                selector.register(route.source, selectors.EVENT_READ, route)
            deadline = None if timeout_s is None else begin + timeout_s
            self._until_the_end(selector, deadline, kill_after_s)
            self._linger(selector)
        return self._result(begin)

    def _until_the_end(
        self, selector: selectors.BaseSelector, deadline: float | None, kill_after_s: float
    ) -> None:
        while True:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = selector.select(wait)
            for key, _ in ready:
                if key.data is not None:
                    self._pass_on(key.data, selector)
            if any(key.data is None for key, _ in ready):
                return
            if deadline is not None and time.monotonic() >= deadline:
                last = self.ended.timed_out
                self._kill(signal.SIGKILL if last else signal.SIGTERM)
                self.ended.timed_out = True
                deadline = None if last else time.monotonic() + kill_after_s

    def _kill(self, number: signal.Signals) -> None:
        with self.lock:
            if not self.over:
                os.kill(self.pid, number)

    def _linger(self, selector: selectors.BaseSelector) -> None:
        """Read what is left. A process that the program left behind may hold the output for ever,
        and go on writing: what a pipe can hold is read however slow our reader is, no more."""
        selector.unregister(self.wake_reader)
        until, left = time.monotonic() + LINGER_S, MOST_LEFT // CHUNK
        while (
            self.routes and left and (ready := selector.select(max(0.0, until - time.monotonic())))
        ):
            for key, _ in ready:
                self._pass_on(key.data, selector)
            left -= time.monotonic() > until

    def _result(self, begin: float) -> ChildExit:
        _, status, usage = os.wait4(self.pid, 0)
        ended = self.ended
        if os.WIFSIGNALED(status):
            ended.signal = os.WTERMSIG(status)
        else:
            ended.code = os.WEXITSTATUS(status)
        ended.wall_s = self.end_s - begin
        ended.cpu_s = usage.ru_utime + usage.ru_stime
        ended.peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return ended


def _write(target: int, data: bytes) -> None:
    """Write all of it, also where whoever shares the descriptor made it not wait."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            with selectors.DefaultSelector() as selector:
                selector.register(target, selectors.EVENT_WRITE)
                selector.select()


def _copy_size(source: int, target: int) -> None:
    """The size of one terminal for another."""
    with suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, struct.pack("4H", 0, 0, 0, 0))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def _is_open(number: int) -> bool:
    """Whether the program will have this descriptor."""
    try:
        return os.get_inheritable(number)
    except OSError:
        return False


def _same_file(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    if stat.S_ISCHR(first.st_mode) and first.st_rdev != second.st_rdev:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
