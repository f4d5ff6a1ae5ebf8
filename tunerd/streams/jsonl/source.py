"""Reading events from ``<topic>.jsonl`` and from what was rotated away from it.

Files are told apart by identity, not by name. Older files come first; a file that was renamed is
read to its end. Each file's position is checked before it is believed: if the line before it is
another one, the file was truncated, or its inode belongs to a new file, and it is read from the
beginning. A copy of a file that was read already (logrotate's ``copytruncate``) goes on where the
original was.

The last line is left alone until its newline comes. Compressed files cannot be read; rotation
must leave the newest one uncompressed (``delaycompress``).
"""

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import BATCH_BYTES, Restore, StreamPosition, StreamRecord, TopicContent
from tunerd.streams.jsonl.envelope import decode
from tunerd.streams.jsonl.lines import LineReader, identity, last_line

__all__ = ["IDLE_S", "JsonlSource"]

log = logging.getLogger(__name__)

IDLE_S = 0.05
"""How long to wait before looking again."""
LOOK_AROUND_S = 1.0
"""How long one file may keep the reader busy before the others are looked at."""
LAG_SAMPLE_BYTES = 1024 * 1024
MOST_HINTS = 16
ROTATED = re.compile(r"[.-](\d.*|old)")
COMPRESSED = re.compile(r"\.(gz|bz2|xz|zst|lz4|zip)$")


@dataclass(frozen=True, slots=True)
class _TopicFile:
    path: Path
    identity: str
    size: int
    rotated: bool


class JsonlSource:
    """A :class:`tunerd.streams.base.StreamSource`. ``lag`` may be asked from any thread.

    A folder has one daemon, so a group has one member, and positions are in the store alone.
    """

    def __init__(
        self,
        folder: Path,
        topic: str,
        cluster: Callable[[], str],
        restore: Restore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._topic = topic
        self._cluster = cluster
        self._restore = restore
        self._clock = clock
        self._reader: LineReader | None = None
        self._positions: dict[str, StreamPosition] = {}  # by identity, of files that were looked at
        self._stalled: dict[str, int] = {}  # files without a whole line left, at this size
        self._hints: list[StreamPosition] = []  # of files that have been overwritten since
        self._looked_at = float("-inf")
        self._passed_over: set[str] = set()

    def poll(self, timeout_s: float, max_records: int) -> list[StreamRecord]:
        deadline = self._clock() + timeout_s
        while True:
            try:
                records = self._read(max_records)
            except OSError as error:
                self.reset()
                raise StreamUnavailableError(
                    f"cannot read events in {self._folder}: {error.strerror or error}"
                ) from error
            left = deadline - self._clock()
            if records or left <= 0:
                return records
            time.sleep(min(IDLE_S, left))

    def commit(self, positions: Sequence[StreamPosition]) -> None:
        pass  # nobody else looks at it

    def reset(self) -> None:
        self.close()
        self._positions.clear()
        self._stalled.clear()

    def partitions(self) -> list[str]:
        return ["0"] if self._positions else []

    def lag(self) -> int | None:
        """As the interface says; beyond the first megabyte of a file it is an estimate."""
        if not self._positions:
            return None
        lag = 0
        try:
            for file in self._files():
                position = self._positions.get(file.identity)
                offset = 0 if position is None else position.offset
                if file.size > offset:
                    reader = LineReader(file.path, offset)
                    lag += reader.count(LAG_SAMPLE_BYTES)
                    reader.close()
        except OSError:
            return None
        return lag

    def remarks(self) -> list[str]:
        return []

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # -- reading ----------------------------------------------------------------------------

    def _read(self, most: int) -> list[StreamRecord]:
        now = self._clock()
        reader = self._reader
        if reader is not None and now - self._looked_at < LOOK_AROUND_S:
            if reader.was_rewritten():
                self._overwritten(reader)
            elif records := self._take(reader, most):
                return records
        self._looked_at = now
        files = self._files()
        if reader is not None and reader.identity not in {file.identity for file in files}:
            # Removed, but still open: nobody else can read it any more.
            if records := self._take(reader, most):
                return records
            self.close()
        self._forget_all_but(files)
        self._restore_unknown(files)
        for file in files:
            if file.size > self._done(file) and (records := self._take(self._open(file), most)):
                return records
            self._stalled[file.identity] = file.size
        return []

    def _take(self, reader: LineReader, most: int) -> list[StreamRecord]:
        cluster = self._cluster()
        records = [
            decode(line, TopicContent.EVENT, cluster, self._topic, reader.identity)
            for line in reader.lines(most, BATCH_BYTES)
        ]
        if records:
            self._positions[reader.identity] = records[-1].position
        return records

    def _open(self, file: _TopicFile) -> LineReader:
        """Have a reader at the file's position, after checking that it is still the same file."""
        if self._reader is not None and self._reader.identity == file.identity:
            if self._reader.was_rewritten():
                self._overwritten(self._reader)
            return self._reader
        self.close()
        self._check(file)
        self._reader = LineReader(file.path, self._positions[file.identity].offset)
        return self._reader

    def _check(self, file: _TopicFile) -> None:
        """Believe a file's position only if the line before it is the one that was read there."""
        position = self._positions[file.identity]
        if not _matches(file.path, position):
            log.warning("%s was written anew; reading it from its beginning", file.path)
            self._hint(position)
            self._positions[file.identity] = self._position(file.identity, 0, "")

    def _done(self, file: _TopicFile) -> int:
        """Up to where there is certainly nothing to read."""
        position = self._positions[file.identity]
        if file.size < position.offset:
            return -1  # truncated
        return max(position.offset, self._stalled.get(file.identity, 0))

    def _overwritten(self, reader: LineReader) -> None:
        log.warning("%s was truncated; reading it from its beginning", self._topic)
        self._hint(self._positions[reader.identity])
        self._positions[reader.identity] = self._position(reader.identity, 0, "")
        self._stalled.pop(reader.identity, None)
        reader.go_to(0)

    # -- files and positions ----------------------------------------------------------------

    def _files(self) -> list[_TopicFile]:
        """Return the topic's files, oldest first, the one that is written now last."""
        name = f"{self._topic}.jsonl"
        files: list[tuple[bool, int, str, _TopicFile]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                rest = entry.name[len(name) :]
                rotated = bool(ROTATED.fullmatch(rest)) and not COMPRESSED.search(rest)
                if not entry.name.startswith(name) or (rest and not rotated):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not stat.S_ISREG(status.st_mode):
                    self._pass_over(entry.path)
                    continue
                file = _TopicFile(Path(entry.path), identity(status), status.st_size, rotated)
                files.append((not rotated, status.st_mtime_ns, entry.name, file))
        return [file for *_, file in sorted(files, key=lambda entry: entry[:3])]

    def _pass_over(self, path: str) -> None:
        """Who may write into the folder could aim a link at any file of ours, and a pipe never
        ends."""
        if path not in self._passed_over:
            self._passed_over.add(path)
            log.warning("%s is no regular file (links are not followed); it is not read", path)

    def _forget_all_but(self, files: Sequence[_TopicFile]) -> None:
        """An inode that comes back belongs to another file."""
        there = {file.identity for file in files}
        for identity_ in self._positions.keys() - there:
            del self._positions[identity_]
            self._stalled.pop(identity_, None)

    def _restore_unknown(self, files: Sequence[_TopicFile]) -> None:
        unknown = [file for file in files if file.identity not in self._positions]
        if not unknown:
            return
        cluster = self._cluster()
        names = [file.identity for file in unknown]
        stored = self._restore(cluster, self._topic, names)
        self._positions.update({name: stored[name] for name in names if name in stored})
        for file in unknown:
            if file.identity in self._positions:
                self._check(file)
        for file in unknown:
            if file.identity not in self._positions:
                self._positions[file.identity] = self._copied(file)

    def _copied(self, file: _TopicFile) -> StreamPosition:
        """Where to begin a file that is new: behind what was read of the one it is a copy of.

        Only a file that has been overwritten since can have left a copy.
        """
        if file.rotated:
            for position in sorted(self._hints, key=lambda hint: hint.offset, reverse=True):
                if 0 < position.offset <= file.size and _matches(file.path, position):
                    return self._position(file.identity, position.offset, position.fingerprint)
        return self._position(file.identity, 0, "")

    def _hint(self, position: StreamPosition) -> None:
        if position.offset:
            self._hints = [*self._hints, position][-MOST_HINTS:]

    def _position(self, partition: str, offset: int, fingerprint: str) -> StreamPosition:
        return StreamPosition(self._cluster(), self._topic, partition, offset, fingerprint)


def _matches(path: Path, position: StreamPosition) -> bool:
    """Tell whether the line before the position is the one that was read there."""
    if position.offset == 0:
        return True
    line = last_line(path, position.offset)
    if line is None:
        return False
    record = decode(line, TopicContent.EVENT, position.cluster, position.topic, position.partition)
    return record.fingerprint == position.fingerprint
