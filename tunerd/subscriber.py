"""A local file of recommendations that is kept fresh, for schedulers that must not wait.

Something that lives on follows the topic and saves it, as
:meth:`tunerd.client.Recommendations.save` does. It can send the other way, too: what local programs
append to a spool goes to the jobs topic. So a scheduler's plugins touch two local files and never
the network.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from tunerd.client import MAX_EVENT_BYTES, JobReporter, Recommendations, open_regular
from tunerd.reach import find_folder, knock
from tunerd.trainers.destination import EventDestination

__all__ = ["EventForwarder", "FileSubscriber"]

LOOK_EVERY_S = 0.2
CHECK_EVERY_S = 10.0
"""A broker that went away is noticed so late; what was read before stays in the file."""
CATCH_UP_S = 30.0
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 10.0
SAVE_REST = 9
"""Saving takes a tenth of the time at most: ten thousand contexts are 20 MB."""
SETTLE_S = 1.0
"""A program may have opened the spool just before it was set aside."""
MOST_SENT = 200
"""Events between two looks at the recommendations."""

Tell = Callable[[str], None]


class FileSubscriber:
    """Follows the recommendations of a stream, and saves them whenever they change.

    A revision that is older than the file's is dropped, unless it was issued later: then the
    installation was set up anew and counts from 1 again. A context that the topic no longer has
    leaves the file. While the stream is away, the file stays as it is.
    """

    def __init__(self, destination: EventDestination, path: Path, tell: Tell) -> None:
        """``tell`` gets a sentence where something changed that a person should know."""
        self._destination, self._path, self._tell = destination, path, tell
        self._known = Recommendations()
        self._following: Recommendations | None = None
        self._saved: dict[str, dict[str, Any]] | None = None
        self._file: tuple[int, int, int] | None = None
        self._check_at = self._save_at = self._retry_at = 0.0
        self._retry_s = RETRY_FIRST_S
        self._away_since: float | None = None
        self._unwritable = ""
        self._load()

    @property
    def away(self) -> bool:
        """Whether the stream did not answer when it was asked last."""
        return self._away_since is not None

    @property
    def saved(self) -> bool:
        """Whether the file has what is known."""
        return self._saved is not None and not self._unwritable

    @property
    def contexts(self) -> int:
        """How many keys are known."""
        return len(self._known.messages())

    def close(self) -> None:
        """Let go of the stream."""
        following, self._following = self._following, None
        if following is not None:
            with suppress(Exception):  # a broker that is away
                following.close()

    def step(self) -> bool:
        """Read what is new and save it if it differs; whether the stream was there."""
        try:
            self._read()
        except Exception as error:  # kafka-python's errors have no base that is known without it
            self._lost(error)
            return False
        if self._away_since is not None:
            gone_s = time.monotonic() - self._away_since
            self._away_since, self._retry_s = None, RETRY_FIRST_S
            self._tell(f"{self._destination.where} is back after {gone_s:.0f} s")
        self._save()
        return True

    def _read(self) -> None:
        if self._following is None:
            if time.monotonic() < self._retry_at:
                raise _StillAwayError
            self._following = self._destination.recommendations()
            self._check(self._following)
            self._drop_older(self._following)
        self._following.poll(timeout_s=LOOK_EVERY_S)
        if time.monotonic() >= self._check_at:
            self._check(self._following)
        self._known = self._following

    def _check(self, following: Recommendations) -> None:
        """Raise unless the stream is there and everything in it was read."""
        if self._destination.stream == "jsonl":
            find_folder(self._destination.where)
        else:
            knock(self._destination.where)
        if not following.catch_up(CATCH_UP_S):
            raise TimeoutError(f"not read to its end within {CATCH_UP_S:g} s")
        self._check_at = time.monotonic() + CHECK_EVERY_S

    def _drop_older(self, following: Recommendations) -> None:
        read = following.messages()
        for key, known in self._known.messages().items():
            message = read.get(key)
            if message is not None and _issued(known) >= _issued(message):
                following.take(key, known)  # which drops it, if its revision is lower

    def _lost(self, error: Exception) -> None:
        if isinstance(error, _StillAwayError):
            return
        self.close()
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(self._retry_s * 2, RETRY_LAST_S)
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._tell(f"{_words(error)}; {self._path} stays as it is until the stream is back")

    def _save(self) -> None:
        if time.monotonic() < self._save_at:
            return
        messages = self._known.contents()
        if messages == self._saved and _identity(self._path) == self._file:
            return
        began = time.monotonic()
        try:
            self._known.save(self._path)
        except OSError as error:
            if str(error) != self._unwritable:
                self._unwritable = str(error)
                self._tell(f"cannot write {self._path}: {error.strerror or error}")
            self._save_at = time.monotonic() + RETRY_FIRST_S
            return
        if self._unwritable:
            self._tell(f"{self._path} is written again")
        self._unwritable = ""
        self._saved, self._file = messages, _identity(self._path)
        self._save_at = time.monotonic() + SAVE_REST * (time.monotonic() - began)

    def _load(self) -> None:
        """What the file knows; one that is missing or rubbish knows nothing."""
        known = Recommendations.follow_saved(self._path)
        with suppress(OSError):
            known.poll()
        self._known = known


class EventForwarder:
    """Sends what local programs append to a file, a JSON event a line, and empties it.

    The file is set aside by renaming, sent, and then removed. Killed in between, the next start
    sends it again, and tunerd drops what it knows by the events' ids: nothing is lost or doubled.
    """

    def __init__(self, destination: EventDestination, path: Path, tell: Tell) -> None:
        self._destination, self._path, self._tell = destination, path, tell
        self._aside = path.with_name(f"{path.name}.sending")
        self._settled_at = 0.0
        self._offset = 0
        self._reporter: JobReporter | None = None
        self._retry_at, self._retry_s = 0.0, RETRY_FIRST_S
        self._failing = ""
        self.sent = 0

    def close(self) -> None:
        """Let go of the stream."""
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            with suppress(Exception):  # a broker that is away
                reporter.close()

    def step(self) -> bool:
        """Send some of what waits; whether there is nothing left, or nothing can be done now."""
        now = time.monotonic()
        if now < self._retry_at or now < self._settled_at:
            return True
        try:
            return self._forward()
        except Exception as error:  # kafka-python's errors have no base that is known without it
            self.close()
            self._retry_at = time.monotonic() + self._retry_s
            self._retry_s = min(self._retry_s * 2, RETRY_LAST_S)
            if (words := _words(error)) != self._failing:
                self._failing = words
                self._tell(f"{words}; events wait in {self._path}")
            return True

    @property
    def waiting(self) -> bool:
        """Whether events wait to be sent."""
        return self._aside.exists() or (self._path.exists() and self._path.stat().st_size > 0)

    @property
    def failing(self) -> bool:
        """Whether the last try failed."""
        return bool(self._failing)

    def _forward(self) -> bool:
        if not self._aside.exists():
            if not self.waiting:
                return True
            with open_regular(self._path):
                pass
            self._path.rename(self._aside)
            self._settled_at, self._offset = time.monotonic() + SETTLE_S, 0
            return True
        if self._reporter is None:
            self._reporter = self._destination.reporter("tunerd subscribe")
        with open_regular(self._aside) as file:
            file.seek(self._offset)
            for _ in range(MOST_SENT):
                if not (line := _line(file)):
                    self._aside.unlink()
                    break
                self._send(self._reporter, line)
                self._offset = file.tell()
            else:
                return False
        if self._failing:
            self._tell(f"events of {self._path} are sent again")
        self._failing, self._retry_s = "", RETRY_FIRST_S
        return not self.waiting

    def _send(self, reporter: JobReporter, line: bytes) -> None:
        event = line.strip()
        if len(event) > MAX_EVENT_BYTES:
            self._tell(f"{self._path}: a line of more than {MAX_EVENT_BYTES:,} bytes is left out")
        elif event:  # one that is no event is rejected by tunerd, which says why
            reporter.send(event)
            self.sent += 1


class _StillAwayError(Exception):
    """It is not yet time to try again."""


def _line(file: IO[bytes]) -> bytes:
    """The next line; of one that is far too long, only so much that it shows."""
    line = file.readline(MAX_EVENT_BYTES + 2)
    part = line
    while part and not part.endswith(b"\n"):
        part = file.readline(MAX_EVENT_BYTES)
    return line


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _issued(message: dict[str, Any]) -> datetime:
    try:
        issued = datetime.fromisoformat(message["issued_at"])
    except (KeyError, TypeError, ValueError):
        return _NEVER
    return issued if issued.tzinfo else _NEVER


_NEVER = datetime.min.replace(tzinfo=UTC)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
