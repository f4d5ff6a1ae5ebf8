"""A daemon of one's own, for who has none: a folder, and a keeper that runs it while it is used.

The folder is an installation like any other (settings, studies, stream, store), in the user's
folder of state. The keeper is a small process: it starts ``tunerd run``, tells it of studies that
changed, and ends it once nobody has used it for a while. Events that come meanwhile wait in the
stream.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.exec.plan import in_another_process, write_whole
from tunerd.spool import state_folder

__all__ = ["local_folder", "prepare", "stop", "used"]

SETTINGS = """\
# Made by `tunerd exec --local`, for one user on one machine: no network, no HTTP.
name = "local"
data_dir = "data"
studies = "studies"

[http]
enabled = false
"""
IDLE_S = 600.0
LOOK_EVERY_S = 0.5
STOP_WITHIN_S = 30.0
MOST_LOG_BYTES = 10 << 20


def local_folder(environ: Mapping[str, str]) -> Path:
    """Where a user's own daemon keeps what it has."""
    return state_folder(environ) / "local"


def prepare(study: str, environ: Mapping[str, str]) -> tuple[Path, str]:
    """Make the folder when missing, with the study in it, and see that a daemon runs.

    ``study`` is the name of a study there, or a file, which is copied there when it changed.
    Returns the settings file and the study's name.

    Raises:
        MisconfiguredError: the study's file cannot be read.
        OSError: the folder cannot be written.
    """
    folder = local_folder(environ)
    for part in (folder, folder / "studies", folder / "data" / "stream"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = folder / "tunerd.toml"
    if not settings.exists():
        write_whole(settings, SETTINGS)
    name = _take_over(study, folder / "studies")
    start(folder)
    return settings, name


@contextmanager
def used(folder: Path) -> Iterator[None]:
    """Keep the daemon for as long as this lasts, and a while longer."""
    with (folder / "used").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with suppress(OSError):
                os.utime(folder / "used")


def start(folder: Path, idle_s: float = IDLE_S) -> None:
    """Start a keeper unless one runs. It is nobody's child and outlives who started it."""
    with suppress(OSError):
        (folder / "used").touch()
    with (folder / "keeper").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TUNERD_")}
    with (folder / "daemon.log").open("ab") as log:
        if log.tell() > MOST_LOG_BYTES:
            log.truncate(0)
        # A process between, which ends at once: who is killed later leaves no zombie behind.
        line = [sys.executable, "-m", "tunerd.exec.local", str(folder), str(idle_s)]
        subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-S", "-c", _BETWEEN, *line],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=ours,
            check=False,
            start_new_session=True,
        )


def stop(folder: Path) -> None:
    """End the daemon of a folder, if one runs; returns at once."""
    with suppress(OSError, ValueError), (folder / "keeper").open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # the keeper holds it: it runs
            os.kill(int(file.read()), signal.SIGTERM)


_BETWEEN = "import os, sys\nif os.fork() == 0: os.execv(sys.argv[1], sys.argv[1:])"


def _take_over(study: str, studies: Path) -> str:
    """The study's name; its file is copied into the folder when it is another."""
    given = Path(study)
    if given.suffix != ".toml":
        return study
    try:
        text = given.read_text()
        name = tomllib.loads(text).get("name")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise MisconfiguredError([ValidationProblem(str(given), why)]) from None
    if not isinstance(name, str) or not name.replace("-", "").isalnum():
        raise MisconfiguredError([ValidationProblem(f"{given}: name", "is missing or not a name")])
    own = studies / f"{name}.toml"
    if not own.exists() or own.read_text() != text:
        _check(given)
        write_whole(own, text)
    return name


def _check(file: Path) -> None:
    """Raise MisconfiguredError with every mistake: the daemon would only log them."""

    def read() -> dict[str, list[tuple[str, str]]]:
        from tunerd.settings.studies import read_study

        try:
            read_study(file)
        except MisconfiguredError as error:
            return {"problems": [(problem.where, problem.message) for problem in error.problems]}
        return {"problems": []}

    if problems := in_another_process(read)["problems"]:
        raise MisconfiguredError([ValidationProblem(*problem) for problem in problems])


# -- the keeper ---------------------------------------------------------------------------------


def keep(folder: Path, idle_s: float) -> int:
    """Run a daemon until nobody has used it for so long."""
    with (folder / "keeper").open("a") as lock, (folder / "used").open("a") as users:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0  # another was faster
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        settings = folder / "tunerd.toml"
        daemon = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "tunerd", "run", "--settings", str(settings)],
            cwd=folder,
        )
        signal.signal(signal.SIGTERM, lambda *_: daemon.terminate())
        known = _studies(folder)
        while daemon.poll() is None and not _is_idle(folder, users.fileno(), idle_s):
            time.sleep(LOOK_EVERY_S)
            if (now := _studies(folder)) != known:
                known = now
                with suppress(ProcessLookupError):
                    daemon.send_signal(signal.SIGHUP)
        return _stop(daemon)


def _is_idle(folder: Path, users: int, idle_s: float) -> bool:
    try:
        if time.time() - (folder / "used").stat().st_mtime < idle_s:
            return False
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody runs a program at this moment, or the folder is gone
        return not folder.exists()
    fcntl.flock(users, fcntl.LOCK_UN)
    return True


def _studies(folder: Path) -> dict[str, tuple[int, int]]:
    stamps = {}
    with suppress(OSError):
        for file in (folder / "studies").glob("*.toml"):
            status = file.stat()
            stamps[file.name] = (status.st_mtime_ns, status.st_ino)
    return stamps


def _stop(daemon: "subprocess.Popen[bytes]") -> int:
    if daemon.poll() is None:
        daemon.terminate()
        try:
            daemon.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
    return daemon.wait()


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), float(sys.argv[2])))
