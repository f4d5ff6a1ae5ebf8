"""One import, from tables to recommendations."""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunerd.connections import stream_of
from tunerd.core.study import MappingTable, Study
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.importing.reading import RejectsFile, Show, count_usable, read_tables
from tunerd.lab.importing.sending import send
from tunerd.lab.importing.settling import settle
from tunerd.lab.importing.spool import ImportProgress, ImportSpool
from tunerd.lab.importing.temporary_daemon import TemporaryDaemon, held
from tunerd.lab.tables.files import TableFile
from tunerd.lab.tables.mapping import TableReader
from tunerd.settings import Settings
from tunerd.store import Store

__all__ = ["ImportResult", "ImportRun"]

FORGET_AFTER_S = 30 * 24 * 3600
"""Age of what an import that nobody finished has left behind."""


@dataclass(frozen=True)
class ImportResult:
    """What came of an import."""

    tally: ImportProgress
    rejects: Path | None
    """File of what could not be used, if there was anything."""
    learned: bool = False
    """Whether it waited until all is learned and searched."""
    recommendations: int = 0
    """Contexts of the study that have one now."""


@dataclass
class ImportRun:
    """Tables for one study of an installation."""

    settings: Settings
    settings_file: Path | None
    study: Study
    mapping: MappingTable
    files: Sequence[TableFile]
    readers: Sequence[TableReader]
    show: Show
    say: Callable[[str], None]
    """Tells a person one sentence."""
    rejects_path: Path | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    def count(self) -> ImportResult:
        """Only look what could be used; rejects are written only where a file is named."""
        rejects = RejectsFile(self.rejects_path)
        with closing(rejects):
            tally = count_usable(self.files, self.readers, rejects, self.show)
        return ImportResult(tally, self._written(rejects))

    def run(self, store: Store | None) -> ImportResult:
        """Read, send, and with a ``store`` wait until all is learned.

        Raises:
            AlreadyRunningError: another process imports the same tables.
            StreamUnavailableError, StoreUnavailableError: the next call goes on.
            MisconfiguredError: the daemon that runs does not know the study yet.
        """
        base = self.settings.data_dir / "imports" / f"{self.study.name}-{self._digest()}"
        _sweep(base.parent)
        with ImportSpool(base.with_suffix(".sqlite")) as spool:
            if spool.resumed:
                self.say(f"Going on where an import of these tables stopped ({_where(spool)}).")
            path = self.rejects_path or base.with_suffix(".rejects.jsonl")
            rejects = RejectsFile(path, spool.tally.rejects_bytes)
            with closing(rejects):
                if spool.tally.stage == "reading":
                    read_tables(self.files, self.readers, spool, rejects, self.show)
                if spool.tally.usable and spool.tally.stage == "sending":
                    self._send(spool, store, rejects)
            learned = bool(spool.tally.usable) and store is not None
            if learned:
                assert store is not None
                self._settle(spool, store, base.with_suffix(".log"))
            outcome = ImportResult(spool.tally, self._written(rejects), learned, self._told(store))
            spool.remove()
        return outcome

    def _send(self, spool: ImportSpool, store: Store | None, rejects: RejectsFile) -> None:
        name = self.study.name
        if store is not None and store.study(name) is None and held(store):
            message = (
                "the daemon that runs does not know it yet: make it read its studies again "
                "(`tunerd reload`, or SIGHUP), then import"
            )
            raise MisconfiguredError([ValidationProblem(f"study {name}", message)])

        def known(event_ids: Sequence[str]) -> Mapping[str, str]:
            if store is None:
                return {}
            return store.content_hashes(self.mapping.source, event_ids)

        def elsewhere(event_ids: Sequence[str]) -> Collection[str]:
            if store is None:
                return ()
            return store.ids_elsewhere(name, self.mapping.source, event_ids)

        stream = stream_of(self.settings)
        stream.ensure_topics()
        with closing(stream.sink()) as sink:
            topic = self.settings.topics.jobs
            send(spool, sink, topic, name.encode(), known, elsewhere, rejects, self.show)

    def _settle(self, spool: ImportSpool, store: Store, log: Path) -> None:
        with TemporaryDaemon(self.settings_file, store, log) as stand_in:
            settle(
                self.study.name,
                self.mapping.source,
                spool,
                store,
                stand_in,
                self.show,
                self.say,
            )
        log.unlink(missing_ok=True)

    def _told(self, store: Store | None) -> int:
        if store is None or store.study(self.study.name) is None:
            return 0
        rows = store.recommendations(self.study.name)
        return sum(row.state != "withdrawn" for row in rows)

    def _written(self, rejects: RejectsFile) -> Path | None:
        return rejects.path if rejects.size else None

    def _digest(self) -> str:
        """Names the import: the same tables for the same study read in the same way."""
        parts: list[Any] = [
            self.study.content_hash,
            self.mapping.model_dump(mode="json"),
            [file.fingerprint for file in self.files],
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _where(spool: ImportSpool) -> str:
    tally = spool.tally
    if tally.stage == "reading":
        return f"{tally.rows:,} rows read"
    return f"{tally.handled:,} of {spool.count():,} jobs sent"


def _sweep(folder: Path) -> None:
    """Remove what was left behind long ago."""
    before = time.time() - FORGET_AFTER_S
    for path in folder.glob("*"):
        if path.is_file() and path.stat().st_mtime < before:
            path.unlink(missing_ok=True)
