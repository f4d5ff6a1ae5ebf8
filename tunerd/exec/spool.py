"""What was begun and not yet told: a file per job, so that no end is lost and none is told twice.

A file is a few lines of JSON. The first says what is being run, and is on the disk before the
program starts. The second names the process. The last is the event, byte for byte as it is sent.
Then it is sent, and then the file goes. Whoever is killed in between leaves the file behind, and
the next start sends the same bytes: the daemon drops what it knows by the event's id.

A wrapper holds its file locked. The kernel lets go of the lock when it dies, in whatever way.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from tunerd.exec.plan import JobPlan

__all__ = ["EventSpool", "SpoolEntry"]

SUFFIX = ".jsonl"
MOST_SENT = 1_000
"""Files that one start looks at."""
SEND_FOR_S = 5.0
"""Then the program starts, and the next start goes on."""
MOST_BYTES = 1 << 20


class SpoolEntry:
    """One job's file, locked for as long as this object has it."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file
        self.begin: dict[str, Any] = {}
        self.child: dict[str, Any] = {}
        self.event: bytes | None = None

    def write_begin(self, begin: dict[str, Any]) -> None:
        """What is about to run; on the disk when this returns."""
        self.begin = begin
        self._add(json.dumps({"begin": begin}).encode())

    def write_child(self, pid: int) -> None:
        """The process that runs it."""
        self.child = {"pid": pid, "started": _started(pid)}
        self._add(json.dumps({"child": self.child}).encode(), sync=False)

    def write_event(self, event: bytes) -> None:
        """The event as it will be sent; on the disk when this returns."""
        self.event = event
        self._add(b'{"event": %b}' % event)

    def _add(self, line: bytes, *, sync: bool = True) -> None:
        self._file.write(line + b"\n")
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def child_lives(self) -> bool:
        """Whether the process still runs, without whoever started it."""
        pid = self.child.get("pid")
        return isinstance(pid, int) and _started(pid) == self.child.get("started") is not None

    def remove(self) -> None:
        """The event has arrived."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go; the file stays."""
        self._file.close()

    def read(self) -> None:
        """Take what the file says; a torn last line says nothing."""
        self._file.seek(0)
        for line in self._file.read(MOST_BYTES).splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(said, dict):
                continue
            if isinstance(said.get("begin"), dict):
                self.begin = said["begin"]
            if isinstance(said.get("child"), dict):
                self.child = said["child"]
            if isinstance(said.get("event"), dict):
                self.event = line[len(b'{"event": ') : -len(b"}\n")]


class EventSpool:
    """The files of one destination."""

    def __init__(self, state: Path, plan: JobPlan) -> None:
        name = sha256(f"{plan.stream}|{plan.where}|{plan.jobs_topic}".encode()).hexdigest()[:16]
        self.folder = state / "spool" / name

    def new(self) -> SpoolEntry:
        """A file for a job. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{uuid4().hex}{SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        file = os.fdopen(descriptor, "r+b")
        fcntl.flock(file, fcntl.LOCK_EX)
        return SpoolEntry(path, file)

    def send(self, send: Callable[[bytes], None], left: Callable[[SpoolEntry], bytes]) -> int:
        """Send what others left behind; returns how many that were.

        ``left`` makes the event of a job of which nobody saw the end. Raises what ``send`` raises.
        """
        sent, deadline = 0, time.monotonic() + SEND_FOR_S
        for path in self._files():
            with _locked(path) as entry:
                if entry is None or (entry.event is None and entry.child_lives()):
                    continue
                if entry.event is None:
                    # Somebody may have edited it: then there is nothing to tell.
                    with suppress(KeyError, ValueError, TypeError):
                        entry.write_event(left(entry))
                if entry.event is not None:
                    send(entry.event)
                    sent += 1
                entry.path.unlink(missing_ok=True)
            if time.monotonic() > deadline:
                break
        return sent

    def _files(self) -> list[Path]:
        try:
            found = [one for one in self.folder.iterdir() if one.suffix == SUFFIX]
        except OSError:
            return []
        return sorted(found)[:MOST_SENT]


@contextmanager
def _locked(path: Path) -> Iterator[SpoolEntry | None]:
    """A file that somebody left behind, read; None while its owner lives."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW), "r+b")
    except OSError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        entry = SpoolEntry(path, file)
        entry.read()
        yield entry


def _started(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: a number may be another process by now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()
