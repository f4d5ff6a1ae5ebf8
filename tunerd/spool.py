"""What was begun and not yet told: a file per job, so that no end is lost and none is told twice.

A file is a few lines of JSON. The first says what is being run, and is on the disk before the
program starts. The second names the process, or says how fast a training was so far. The last is
the event, byte for byte as it is sent. Then it is sent, and then the file goes. Whoever is killed
in between leaves the file behind, and the next start sends the same bytes: the daemon drops what it
knows by the event's id.

Who writes a file holds it locked. The kernel lets go of the lock when it dies, in whatever way.
``tunerd exec`` and trainings (:mod:`tunerd.trainers`) share the files: each sends what the other
left behind. A training's image has no libraries of tunerd, so this module needs none.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from tunerd.client import Choice, JobReporter
from tunerd.job_identity import boot_id

__all__ = [
    "EventSpool",
    "SpoolEntry",
    "job_event",
    "left_behind",
    "reported_half",
    "spool_folder",
    "started_half",
    "state_folder",
]

SUFFIX = ".jsonl"
UNLOCKED = ".new"
"""A file that its owner has not locked yet: others would take it for one that was left behind."""
MOST_SENT = 1_000
"""Files that one start looks at."""
SEND_FOR_S = 5.0
"""Then the program starts, and the next start goes on."""
MOST_BYTES = 1 << 20


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's programs keep what is worth keeping, by the rules of freedesktop.org."""
    given = environ.get("XDG_STATE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return base / "tunerd"


def spool_folder(environ: Mapping[str, str], stream: str, where: str, jobs_topic: str) -> Path:
    """The folder of one destination. It is called after exec, which came first."""
    name = sha256(f"{stream}|{where}|{jobs_topic}".encode()).hexdigest()[:16]
    return state_folder(environ) / "exec" / "spool" / name


class SpoolEntry:
    """One job's file, locked for as long as this object has it."""

    def __init__(self, path: Path, file: IO[bytes] | FileIO) -> None:
        self.path, self._file = path, file
        self.begin: dict[str, Any] = {}
        self.child: dict[str, Any] = {}
        self.progress: dict[str, Any] = {}
        self.event: bytes | None = None
        self._begin_ends = 0

    def write_begin(self, begin: dict[str, Any]) -> None:
        """What is about to run; on the disk when this returns."""
        self.begin = begin
        self._add(json.dumps({"begin": begin}).encode())
        self._begin_ends = self._file.tell()

    def write_child(self, pid: int) -> None:
        """The process that runs it."""
        self.child = {"pid": pid, "started": _started(pid)}
        self._add(json.dumps({"child": self.child}).encode(), sync=False)

    def write_progress(self, progress: dict[str, Any]) -> None:
        """What was measured so far, in place of what was said before: a job may last for months.
        Killed in between, the file says nothing of it."""
        self.progress = progress
        self._file.truncate(self._begin_ends)
        self._add(json.dumps({"progress": progress}).encode(), sync=False)

    def write_event(self, event: bytes) -> None:
        """The event as it will be sent; on the disk when this returns."""
        self.event = event
        self._add(b'{"event": %b}' % event)

    def _add(self, line: bytes, *, sync: bool = True) -> None:
        if self._file.write(line + b"\n") != len(line) + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
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
        for line in (self._file.read(MOST_BYTES) or b"").splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(record, dict):
                continue
            if isinstance(record.get("begin"), dict):
                self.begin = record["begin"]
            if isinstance(record.get("child"), dict):
                self.child = record["child"]
            if isinstance(record.get("progress"), dict):
                self.progress = record["progress"]
            if isinstance(record.get("event"), dict):
                self.event = line[len(b'{"event": ') : -len(b"}\n")]


class EventSpool:
    """The files of one destination."""

    def __init__(self, folder: Path) -> None:
        """``folder`` as :func:`spool_folder` says."""
        self.folder = folder

    def new(self) -> SpoolEntry:
        """A file for a job. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{uuid4().hex}{SUFFIX}"
        unlocked = path.with_suffix(UNLOCKED)
        descriptor = os.open(unlocked, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        # Unbuffered: a child that was forked in the middle of writing must be able to close it.
        file = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            unlocked.rename(path)
        except BaseException:
            file.close()
            unlocked.unlink(missing_ok=True)
            raise
        return SpoolEntry(path, file)

    def send(self, send: Callable[[bytes], None]) -> int:
        """Send what others left behind; returns how many that were. Raises what ``send`` raises."""
        sent, deadline = 0, time.monotonic() + SEND_FOR_S
        for path in self._files():
            with _locked(path) as entry:
                if entry is None or (entry.event is None and entry.child_lives()):
                    continue
                if entry.event is None:
                    # Somebody may have edited it: then there is nothing to tell.
                    with suppress(KeyError, ValueError, TypeError):
                        entry.write_event(left_behind(entry))
                if entry.event is not None:
                    send(entry.event)
                    sent += 1
                entry.path.unlink(missing_ok=True)
            if time.monotonic() > deadline:
                break
        return sent

    def _files(self) -> list[Path]:
        try:
            path = [path for path in self.folder.iterdir() if path.suffix == SUFFIX]
        except OSError:
            return []
        return sorted(path)[:MOST_SENT]


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


def left_behind(entry: SpoolEntry) -> bytes:
    """The event of a job whose end nobody saw, because who watched it was killed.

    So it says nothing about the configuration, which is what ``cancelled`` means; after a restart
    of the machine it is ``node_failure``. A speed that was measured counts all the same.
    """
    begin, progress = entry.begin, entry.progress
    if begin.get("cluster") is not None:
        # The scheduler tells the end. Without a speed there is nothing to tell: that is a KeyError.
        state = (progress["metrics"], progress["labels"], progress["measured_s"])
        return reported_half(begin, *state)
    rebooted = begin.get("boot") not in (None, boot_id())
    status = "node_failure" if rebooted else "cancelled"
    killed = f"{begin.get('by', 'tunerd exec')} was killed"
    labels = {"cause": "the machine was restarted" if rebooted else killed}
    return job_event(
        begin,
        status,
        progress.get("metrics", {}),
        labels | progress.get("labels", {}),
        progress.get("measured_s"),
    )


def job_event(
    begin: Mapping[str, Any],
    status: str,
    metrics: Mapping[str, float],
    labels: Mapping[str, Any],
    measured_s: float | None,
) -> bytes:
    """The event of a job that began with ``begin``. Raises ValueError for what cannot be sent."""
    made: list[bytes] = []
    fields = {name: begin[name] for name in ("started_at", "user", "nodes")}
    if begin.get("gpus") is not None:
        fields["gpus"] = begin["gpus"]
    if measured_s is not None:
        fields["measured_s"] = round(measured_s, 6)
    chosen = begin["choice"]
    JobReporter(made.append, lambda: None, begin.get("by", "tunerd exec")).report(
        study=begin["study"],
        job_id=begin["job_id"],
        status=status,
        context=begin["context"],
        config=begin["config"],
        metrics=metrics,
        attempt=begin["attempt"],
        choice=chosen and Choice({}, *chosen),
        event_id=begin["event_id"],
        labels=begin["labels"] | labels,
        **fields,
    )
    return made[0]


def started_half(begin: Mapping[str, Any]) -> bytes:
    """How a job was launched whose end the scheduler tells. Raises ValueError."""
    made: list[bytes] = []
    chosen = begin["choice"]
    _half_reporter(made, begin).started(
        job_id=begin["job_id"],
        attempt=begin["attempt"],
        study=begin["study"],
        context=begin["context"],
        config=begin["config"],
        choice=chosen and Choice({}, *chosen),
        started_at=datetime.fromisoformat(begin["started_at"]),
        labels=begin["labels"],
        gpus=begin.get("gpus"),
    )
    return made[0]


def reported_half(
    begin: Mapping[str, Any],
    metrics: Mapping[str, float],
    labels: Mapping[str, Any],
    measured_s: float,
) -> bytes:
    """How fast a job was so far whose end the scheduler tells. Raises ValueError."""
    made: list[bytes] = []
    _half_reporter(made, begin).reported(
        job_id=begin["job_id"],
        attempt=begin["attempt"],
        study=begin["study"],
        metrics=metrics,
        steps=labels["steps"],
        measured_s=round(measured_s, 6),
        labels=dict(labels),
    )
    return made[0]


def _half_reporter(made: list[bytes], begin: Mapping[str, Any]) -> JobReporter:
    return JobReporter(made.append, lambda: None, f"{begin['by']}/{begin['cluster']}")


def _started(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: a number may be another process by now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()
