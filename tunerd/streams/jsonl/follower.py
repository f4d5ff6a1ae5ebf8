"""Reading one topic's file for oneself."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from tunerd.errors import StreamUnavailableError
from tunerd.streams.base import BATCH_BYTES, StreamRecord, TopicContent
from tunerd.streams.jsonl.envelope import LINE_LIMIT, decode
from tunerd.streams.jsonl.lines import LineReader, identity
from tunerd.streams.jsonl.source import IDLE_S

__all__ = ["JsonlFollower"]

log = logging.getLogger(__name__)


class JsonlFollower:
    """A :class:`tunerd.streams.base.StreamFollower`. When the file was replaced it reads the new
    one."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        content: TopicContent,
        cluster: Callable[[], str],
        *,
        from_beginning: bool,
    ) -> None:
        self._path = folder / f"{topic}.jsonl"
        self._topic = topic
        self._content = content
        self._cluster = cluster
        self._reader: LineReader | None = None
        while not from_beginning and self._take(1000):
            pass

    def poll(self, timeout_s: float, max_records: int = 500) -> list[StreamRecord]:
        deadline = time.monotonic() + timeout_s
        while True:
            records = self._take(max_records)
            left = deadline - time.monotonic()
            if records or left <= 0:
                return records
            time.sleep(min(IDLE_S, left))

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _take(self, most: int) -> list[StreamRecord]:
        try:
            reader = self._open()
            if reader is None:
                return []
            if reader.was_rewritten():
                reader.go_to(0)
            records: list[StreamRecord] = []
            while not records and (lines := reader.lines(most, BATCH_BYTES)):
                for line in lines:
                    try:
                        records.append(
                            decode(
                                line, self._content, self._cluster(), self._topic, reader.identity
                            )
                        )
                    except ValueError as error:
                        log.warning("%s at byte %d: %s; skipped", self._path, line.start, error)
            if not records and self._replaced(reader):
                self.close()
                return self._take(most)
            return records
        except OSError as error:
            self.close()
            raise StreamUnavailableError(
                f"cannot read {self._path}: {error.strerror or error}"
            ) from error

    def _open(self) -> LineReader | None:
        if self._reader is None:
            try:
                self._reader = LineReader(self._path, limit=LINE_LIMIT)
            except FileNotFoundError:
                self._path.parent.stat()  # a topic may be missing, its folder may not
        return self._reader

    def _replaced(self, reader: LineReader) -> bool:
        try:
            return identity(self._path.stat()) != reader.identity
        except FileNotFoundError:
            return False
