"""A folder as a stream: ``<topic>.jsonl`` for each topic."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tunerd.errors import MisconfiguredError, StreamUnavailableError, ValidationProblem
from tunerd.files import append_to, give_to_owner, make_folder, mode_in, read_text
from tunerd.streams.base import Restore, TopicContent, TopicProblem, TopicSpec
from tunerd.streams.jsonl.follower import JsonlFollower
from tunerd.streams.jsonl.sink import JsonlSink
from tunerd.streams.jsonl.source import JsonlSource
from tunerd.streams.jsonl.table import JsonlTable

__all__ = ["JsonlStream"]

CLUSTER_ID = ".cluster-id"
CLUSTER_ID_BYTES = 1024
COMPACT_BYTES = 4 * 1024 * 1024


class JsonlStream:
    """A :class:`tunerd.streams.base.Stream`.

    A compacted topic is rewritten when it has ``compact_bytes`` and half of them are superseded.
    """

    def __init__(
        self,
        folder: Path,
        topics: Sequence[TopicSpec],
        *,
        create_topics: bool = True,
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        self._folder = folder
        self._topics = {spec.name: spec for spec in topics}
        self._create = create_topics
        self._compact_bytes = compact_bytes
        self._id: str | None = None

    def ensure_topics(self) -> None:
        if not self._create:
            missing = [name for name in self._topics if not self._path(name).exists()]
            if missing:
                text = "does not exist and creating is off; create it as an empty file"
                raise MisconfiguredError(
                    [ValidationProblem(str(self._path(name)), text) for name in missing]
                )
            return
        try:
            make_folder(self._folder)
            for name in self._topics:
                os.close(append_to(self._path(name)))
        except OSError as error:
            raise StreamUnavailableError(
                f"cannot create topics in {self._folder}: {error.strerror or error}"
            ) from error

    def check_topics(self) -> list[TopicProblem]:
        return []  # a file has no settings; sources say where one is gone

    def table(self, topic: str) -> JsonlTable:
        return JsonlTable(self._path(topic), self._topics[topic].content)

    def source(self, topic: str, group: str, restore: Restore) -> JsonlSource:  # noqa: ARG002
        return JsonlSource(self._folder, topic, self.cluster_id, restore)

    def sink(self, role: str | None = None, *, take_back: bool = False) -> JsonlSink:  # noqa: ARG002
        return JsonlSink(self._folder, self._topics, self._compact_bytes)

    def follow(self, topic: str, *, from_beginning: bool = True) -> JsonlFollower:
        spec = self._topics.get(topic)
        content = spec.content if spec else TopicContent.EVENT
        return JsonlFollower(
            self._folder, topic, content, self.cluster_id, from_beginning=from_beginning
        )

    def cluster_id(self) -> str:
        """Return the folder's name for good, made at first use. Raises OSError."""
        if self._id is None:
            path = self._folder / CLUSTER_ID
            if not path.exists():
                _create_once(path, f"folder-{secrets.token_hex(8)}\n")
            self._id = read_text(path, CLUSTER_ID_BYTES).strip()
        return self._id

    def _path(self, topic: str) -> Path:
        return self._folder / f"{topic}.jsonl"


def _create_once(path: Path, text: str) -> None:
    """Write a file whole, unless another process is faster."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode_in(path.parent))
            os.fsync(file.fileno())
        give_to_owner(Path(temporary))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()
