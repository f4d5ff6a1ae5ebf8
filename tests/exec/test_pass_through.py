"""A program does not notice that somebody runs it: exit codes, signals, input, terminal, output."""

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.exec.conftest import Place

Until = Callable[[Callable[[], object]], None]
DEFAULTS = ("env", "--default-signal=INT,QUIT,HUP")
"""Whoever runs these tests in the background, or with nohup, has them ignored."""


@pytest.mark.parametrize("code", [0, 1, 2, 125, 255])
def test_the_exit_code_is_the_programs(place: Place, code: int) -> None:
    done = place.run("--", "sh", "-c", f"exit {code}")
    assert done.returncode == code
    assert place.event()["status"] == ("failed" if code else "succeeded")
    assert place.spool == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_who_dies_of_a_signal_is_told_so(place: Place, number: signal.Signals) -> None:
    done = place.run("--", "sh", "-c", f"kill -{number.value} $$")
    assert done.returncode == -number
    event = place.event()
    assert (event["status"], event["labels"]["cause"]) == ("failed", f"ended by {number.name}")
    assert "wall_s" not in event["metrics"]


@pytest.mark.parametrize(
    ("program", "code"), [("no-such-program-anywhere", 127), ("./studies/zip.toml", 126)]
)
def test_what_cannot_be_run_is_no_job(place: Place, program: str, code: int) -> None:
    done = place.run("--", program)
    assert (done.returncode, program in done.stderr.decode()) == (code, True)
    assert not place.events()
    assert not place.spool


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2],
)
def test_signals_pass_through_once(place: Place, number: signal.Signals) -> None:
    program = (
        "import signal, sys, time\n"
        "got = []\n"
        f"signal.signal({number.value}, lambda n, _: got.append(n))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print(got, flush=True)\n"
        "sys.exit(7)\n"
    )
    running = subprocess.Popen(
        [*DEFAULTS, *place.line("--", sys.executable, "-c", program)],
        cwd=place.folder,
        env=place.environment,
        stdout=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(number)
    assert running.communicate(timeout=30)[0] == b"[%d]\n" % number
    assert running.returncode == 7
    stops = {signal.SIGTERM: "preempted"} | dict.fromkeys((1, 2, 3), "cancelled")
    assert place.event()["status"] == stops.get(number, "failed")


def test_what_was_ignored_stays_ignored(place: Place) -> None:
    """As nohup wants it."""
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *place.line("--", "sh", "-c", "kill -HUP $$")],
        cwd=place.folder,
        env=place.environment,
        check=False,
    )
    assert done.returncode == 0
    assert place.event()["status"] == "succeeded"


@pytest.mark.parametrize("ignored", [True, False])
def test_who_wants_to_know_of_what_was_ignored_is_told(place: Place, ignored: bool) -> None:
    """As a program that handles SIGINT in the background of a script, where it is ignored."""
    program = (
        "import signal, time\n"
        "got = []\n"
        "signal.signal(2, lambda n, _: got.append(n))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
    )
    trap = 'trap "" INT; exec "$@"' if ignored else 'exec "$@"'
    running = subprocess.Popen(
        [*DEFAULTS, "sh", "-c", trap, "sh", *place.line("--", sys.executable, "-c", program)],
        cwd=place.folder,
        env=place.environment,
        stdout=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 0
    assert place.event()["status"] == ("succeeded" if ignored else "cancelled")


def test_a_closed_pipe_ends_the_program_and_not_the_report(place: Place) -> None:
    line = " ".join(f"'{part}'" for part in place.line("--metric", "x=no (1)", "--", "yes"))
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"y\n"
    assert done.returncode == 128 + signal.SIGPIPE
    assert place.event()["status"] == "failed"


def test_standard_input_passes_through(place: Place) -> None:
    data = os.urandom(300_000)
    done = place.run("--", "cat", input=data)
    assert done.stdout == data


@pytest.mark.parametrize("options", [(), ("--metric", "x=(1)"), ("--cause", "failed=never")])
def test_output_passes_through_byte_for_byte(place: Place, options: tuple[str, ...]) -> None:
    program = "cat studies/blob; cat studies/blob >&2"
    blob = os.urandom(500_000) + b"\r\n" * 1000 + b"x" * 500_000
    (place.folder / "studies" / "blob").write_bytes(blob)
    done = place.run(*options, "--", "sh", "-c", program)
    assert done.stdout == blob
    assert done.stderr == blob


def test_the_order_of_two_outputs_in_one_file_stays(place: Place) -> None:
    program = "for i in $(seq 300); do echo out $i; echo err $i >&2; done"
    log = place.folder / "log"
    with log.open("wb") as file:
        place.start("--", "sh", "-c", program, stdout=file, stderr=file).wait(30)
    wanted = [f"{name} {i}" for i in range(1, 301) for name in ("out", "err")]
    assert log.read_text().splitlines() == wanted


def test_a_daemon_that_the_program_leaves_behind_is_not_waited_for(place: Place) -> None:
    begin = time.monotonic()
    done = place.run("--metric", "x=(1)", "--", "sh", "-c", "sleep 20 & echo here")
    assert done.stdout == b"here\n"
    assert time.monotonic() - begin < 10


def test_what_was_closed_stays_closed(place: Place) -> None:
    program = (
        "import os\nfor n in (0, 1):\n try: os.fstat(n)\n"
        " except OSError: print(n, file=open('closed', 'a'))"
    )
    line = [*place.line("--", sys.executable, "-c", program)]
    subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *line],
        cwd=place.folder,
        env=place.environment,
        check=True,
    )
    assert (place.folder / "closed").read_text() == "0\n1\n"
    assert place.event()["status"] == "succeeded"


def test_where_outputs_are_closed_nothing_goes_astray(place: Place) -> None:
    """No file of the wrapper's own takes the place of a closed output."""
    line = place.line("--metric", "x=(1)", "--", "sh", "-c", "echo 1; echo 1 >&2; exit 0")
    subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *line],
        cwd=place.folder,
        env=place.environment,
        check=True,
    )
    event = place.event()
    assert (event["status"], "x" in event["metrics"]) == ("succeeded", False)
    assert not place.spool


def test_the_environment_is_the_callers(place: Place) -> None:
    """And no threads are set for numpy, which tunerd does for itself."""
    plain = {k: v for k, v in place.environment.items() if not k.startswith(("OMP", "OPENBLAS"))}
    done = subprocess.run(
        place.line("--", "env"), cwd=place.folder, env=plain, capture_output=True, check=True
    )
    names = {line.partition("=")[0] for line in done.stdout.decode().splitlines() if "=" in line}
    added = names - set(plain)
    assert {name for name in added if not name.startswith("TUNERD_")} <= {"_", "PWD", "LC_CTYPE"}


def test_a_program_may_be_tunerd_itself(place: Place) -> None:
    """What a program is told in its environment is no misspelt setting."""
    inner = place.line("--", "sh", "-c", "echo inner")
    done = place.run("--", *inner)
    assert (done.returncode, done.stdout) == (0, b"inner\n"), done.stderr
    assert len(place.events()) == 2


# -- at a terminal --------------------------------------------------------------------------------


class Terminal:
    """A person at a terminal."""

    def __init__(self, place: Place, *line: str) -> None:
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.chdir(place.folder)
            environment = place.environment | {"TERM": "dumb", "PS1": "$ "}
            os.execvpe("env", [*DEFAULTS, *line], environment)  # noqa: S606
        self.seen = b""

    def read_until(self, what: bytes) -> None:
        deadline = time.monotonic() + 30
        while what not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.end], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.end, 65536)
                except OSError:
                    break
        assert what in self.seen, self.seen

    def prompt(self) -> None:
        """Wait until a shell reads: what is typed before that may be lost."""
        while not self.seen.endswith(b"$ "):
            self.read_more()
        self.seen = b""

    def read_more(self) -> None:
        assert select.select([self.end], [], [], 30)[0], self.seen
        self.seen += os.read(self.end, 65536)

    def type(self, text: bytes) -> None:
        os.write(self.end, text)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.end)
        return os.waitstatus_to_exitcode(status)


ASKED = (("--metric", "x=(1)"), ())


@pytest.mark.parametrize("options", ASKED)
def test_a_program_at_a_terminal_sees_one(place: Place, options: tuple[str, ...]) -> None:
    program = (
        "import os, sys; print([os.isatty(n) for n in (0, 1, 2)], os.get_terminal_size().columns);"
        "print('name?', flush=True); print('hello', input())"
    )
    terminal = Terminal(place, *place.line(*options, "--", sys.executable, "-c", program))
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal.end, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    terminal.read_until(b"name?")
    assert b"[True, True, True]" in terminal.seen
    terminal.type(b"anna\n")
    terminal.read_until(b"hello anna\r\n")
    assert terminal.wait() == 0


@pytest.mark.parametrize("options", ASKED)
def test_control_c_reaches_the_program_once(place: Place, options: tuple[str, ...]) -> None:
    program = (
        "import signal, sys, time\n"
        "got = []\n"
        "signal.signal(2, lambda n, _: got.append(n))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print('got', got, flush=True)\n"
        "sys.exit(9)\n"
    )
    terminal = Terminal(place, *place.line(*options, "--", sys.executable, "-c", program))
    terminal.read_until(b"ready")
    terminal.type(b"\x03")
    terminal.read_until(b"got [2]\r\n")
    assert terminal.wait() == 9
    assert place.event()["status"] == "cancelled"


@pytest.mark.parametrize("options", ASKED)
def test_control_z_stops_the_program_and_fg_goes_on(place: Place, options: tuple[str, ...]) -> None:
    shell = Terminal(place, "bash", "--norc", "--noprofile", "-i")
    shell.prompt()
    program = "echo up; read x; echo got-$x; exit 5"
    line = shlex.join(place.line(*options, "--", "sh", "-c", program))
    shell.type(f"{line}\n".encode())
    shell.read_until(b"up\r\n")
    shell.type(b"\x1a")
    shell.read_until(b"Stopped")
    shell.prompt()
    shell.type(b"echo the shell $((40 + 2))\n")
    shell.read_until(b"the shell 42\r\n")
    shell.prompt()
    shell.type(b"fg\n")
    shell.read_until(b"exit 5")  # what goes on
    shell.type(b"hello\n")
    shell.read_until(b"got-hello\r\n")
    shell.prompt()
    shell.type(b"echo code $?; exit\n")
    shell.read_until(b"code 5")
    shell.wait()
    assert place.event()["status"] == "failed"
