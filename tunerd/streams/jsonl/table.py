"""What a topic's file says now: of each key the last value, kept up to date by reading on."""

import os
from contextlib import suppress
from pathlib import Path

from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import LastValue, TopicContent, digest_of
from tunerd.streams.jsonl.envelope import LINE_LIMIT, decode
from tunerd.streams.jsonl.lines import FileLine, LineReader, identity

__all__ = ["JsonlTable"]


class JsonlTable:
    """A :class:`tunerd.streams.base.CompactedTable`. One daemon writes to the file, but anybody may
    delete it, empty it or put another in its place: then it is read anew."""

    def __init__(self, path: Path, content: TopicContent) -> None:
        self._path = path
        self._content = content
        self._reader: LineReader | None = None
        self._last: dict[bytes, LastValue] = {}
        self.changed: set[bytes] | None = None

    def refresh(self) -> dict[bytes, LastValue]:
        try:
            self._refresh()
        except OSError as error:
            self.close()
            raise StreamUnavailableError(
                f"cannot read {self._path}: {error.strerror or error}"
            ) from error
        return self._last

    def close(self) -> None:
        reader, self._reader, self.changed = self._reader, None, None
        self._last.clear()
        if reader is not None:
            reader.close()

    def _refresh(self) -> None:
        self.changed = set()
        reader = self._reader
        anew = reader is None or not self._is(reader)
        if reader is None or anew:
            self.close()
            try:
                reader = self._reader = LineReader(self._path, limit=LINE_LIMIT)
            except FileNotFoundError:
                return
        while lines := reader.lines(1000, LINE_LIMIT):
            for line in lines:
                with suppress(ValueError):  # nothing of ours
                    self._keep(line)
        if anew:
            self.changed = None

    def _is(self, reader: LineReader) -> bool:
        """Whether what was read is the topic's file still, and as it was."""
        try:
            return identity(os.stat(self._path)) == reader.identity and not reader.was_rewritten()
        except FileNotFoundError:
            return False

    def _keep(self, line: FileLine) -> None:
        record = decode(line, self._content, "", "", "")
        if record.key is None:
            return
        if self.changed is not None:
            self.changed.add(record.key)
        value = record.value
        self._last[record.key] = LastValue(0, None if value is None else digest_of(value))
