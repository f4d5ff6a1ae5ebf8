"""Appending messages to the topics' files, and keeping compacted ones small.

A batch is there as a whole or not at all: what a full disk left of it is cut off again, and what a
crash left of a line is mended before anything is appended. Processes take turns by a lock file.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tunerd.errors import StreamUnavailableError
from tunerd.files import append_to
from tunerd.streams.base import (
    BATCH_BYTES,
    EVER,
    StreamMessage,
    StreamRecord,
    TopicContent,
    TopicSpec,
)
from tunerd.streams.jsonl.compaction import compact, sync_folder
from tunerd.streams.jsonl.envelope import LINE_LIMIT, decode, encode
from tunerd.streams.jsonl.lines import LineReader, next_line

__all__ = ["JsonlSink"]

log = logging.getLogger(__name__)

LOCK = ".append.lock"
LOOK_BACK_BYTES = 2 * BATCH_BYTES
"""More than one call of ``send`` writes, base64 included."""


class JsonlSink:
    """A :class:`tunerd.streams.base.StreamSink`."""

    def __init__(self, folder: Path, topics: Mapping[str, TopicSpec], compact_bytes: int) -> None:
        self._folder = folder
        self._topics = topics
        self._compact_bytes = compact_bytes
        self._compact_at: dict[str, int] = {}

    def send(self, messages: Sequence[StreamMessage]) -> None:
        lines: dict[str, list[bytes]] = {}
        for message in messages:
            spec = self._topics.get(message.topic)
            if spec is None:
                raise ValueError(f"the stream has no topic {message.topic}")
            lines.setdefault(message.topic, []).append(encode(message, spec.content))
        try:
            with self._locked():
                for topic, parts in lines.items():
                    self._append(self._topics[topic], b"".join(parts))
        except OSError as error:
            raise StreamUnavailableError(
                f"cannot write to {self._folder}: {error.strerror or error}"
            ) from error

    def sent_since(self, topics: Collection[str], since: datetime) -> Iterator[StreamRecord]:
        """Lines do not say when they were written: what is yielded is the end of each file, or
        all of it when ``since`` is :data:`EVER`."""
        for topic in topics:
            yield from self._tail(self._topics[topic], LOOK_BACK_BYTES if since > EVER else None)

    def hold(self) -> None:
        pass  # a folder has one daemon, which its lock sees to

    def close(self) -> None:
        pass  # nothing stays open

    def _tail(self, spec: TopicSpec, length: int | None) -> Iterator[StreamRecord]:
        path = self._folder / f"{spec.name}.jsonl"
        try:
            begin = 0 if length is None else next_line(path, path.stat().st_size - length)
            reader = LineReader(path, begin, limit=LINE_LIMIT)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StreamUnavailableError(
                f"cannot read {path}: {error.strerror or error}"
            ) from error
        try:
            while lines := reader.lines(1000, LINE_LIMIT):
                for line in lines:
                    with contextlib.suppress(ValueError):  # nothing of ours
                        yield decode(line, spec.content, "", spec.name, reader.identity)
        finally:
            reader.close()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = append_to(self._folder / LOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _append(self, spec: TopicSpec, data: bytes) -> None:
        path = self._folder / f"{spec.name}.jsonl"
        descriptor = append_to(path)
        try:
            _mend(descriptor, spec.content)
            size = os.fstat(descriptor).st_size
            _write(descriptor, data, size)
        finally:
            os.close(descriptor)
        if size == 0:
            sync_folder(self._folder)
        if spec.compacted:
            self._keep_small(spec, path, size + len(data))

    def _keep_small(self, spec: TopicSpec, path: Path, size: int) -> None:
        if size < self._compact_at.get(spec.name, self._compact_bytes):
            return
        try:
            live = compact(path)
        except OSError as error:
            # What was sent is safe; only the file is larger than it has to be.
            log.warning("cannot compact %s: %s", path, error.strerror or error)
            live = size
        self._compact_at[spec.name] = max(self._compact_bytes, 2 * live)


def _mend(descriptor: int, content: TopicContent) -> None:
    """Deal with a last line that has no newline: a crash cut it short.

    Ours was not acknowledged and is sent again, so it goes. Another program's is not ours to
    remove: it gets its newline, and whoever reads it says what is wrong with it.
    """
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    if content is TopicContent.EVENT:
        os.write(descriptor, b"\n")
        return
    end = size
    while end > 0:
        begin = max(0, end - 65536)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    os.ftruncate(descriptor, end)


def _write(descriptor: int, data: bytes, before: int) -> None:
    """Append and make it safe, or leave nothing of it. Raises OSError."""
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_size == before + written:
                os.ftruncate(descriptor, before)
            else:  # somebody without our lock has appended behind it
                os.write(descriptor, b"\n")
        raise
