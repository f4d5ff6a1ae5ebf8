"""From the rows of tables to the jobs in the spool; what cannot be used goes into a file."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from tunerd.core.decisions.space_cache import why_outside
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events.job import content_hash
from tunerd.events.rejection import MAX_EVENT_BYTES, kib
from tunerd.files import make_folder
from tunerd.lab.importing.spool import ImportProgress, ImportSpool, SpooledJob, count_into
from tunerd.lab.tables.files import TableFile, TableRow, UnreadableLine
from tunerd.lab.tables.mapping import TableReader, UnusableRow, told_apart

__all__ = ["RejectsFile", "Show", "count_usable", "read_tables"]

SAVE_EVERY = 5_000
"""Rows between two points at which a killed import can go on."""

Show = Callable[[str, float, float], None]
"""Told a phase, how much of it is done, and how much there is."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.encode


class RejectsFile:
    """The file of what could not be used, one JSON object a line; made when there is something."""

    def __init__(self, path: Path | None, size: int = 0) -> None:
        """``size``: what is behind it was written by an import that was killed, and goes."""
        self.path = path
        self.size = size
        self._file: BufferedWriter | None = None

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write one line. Raises MisconfiguredError when there is no writing there."""
        if self.path is None:
            return
        try:
            if self._file is None:
                make_folder(self.path.parent)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._file = os.fdopen(os.open(self.path, flags, 0o600), "ab")
                self._file.truncate(self.size)
            self.size += self._file.write(_encode(entry) + b"\n")
        except OSError as error:
            raise MisconfiguredError(
                [ValidationProblem(str(self.path), f"cannot be written: {error.strerror}")]
            ) from None

    def flush(self) -> None:
        """Hand it to the system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close it."""
        if self._file is not None:
            self._file.close()


def read_tables(
    files: Sequence[TableFile],
    readers: Sequence[TableReader],
    spool: ImportSpool,
    rejects: RejectsFile,
    show: Show,
) -> None:
    """Read what is not in the spool yet."""
    tally = spool.tally
    total = sum(file.progress()[1] for file in files)
    before = sum(file.progress()[1] for file in files[: tally.file])
    for number in range(tally.file, len(files)):
        file, reader = files[number], readers[number]
        done = tally.row
        jobs: list[SpooledJob] = []
        usable: list[Observation] = []
        for row in file.rows():
            if row.number <= done:
                continue
            tally.row = row.number
            made = _take(row, reader, tally, partial(spool.place_among_alike, number))
            if isinstance(made, UnusableRow):
                rejects.add(_rejected(file, row, made))
            else:
                usable.append(made[0])
                jobs.append(_job(*made, number, row.number))
            if row.number % SAVE_EVERY == 0:
                _place(usable, reader.study, tally)
                _save(spool, rejects, jobs)
                show("reading", before + file.progress()[0], total)
        tally.file, tally.row = number + 1, 0
        _place(usable, reader.study, tally)
        _save(spool, rejects, jobs)
        before += file.progress()[1]
    show("reading", total, total)
    spool.sorted()
    tally.stage = "sending"
    spool.save()


def count_usable(
    files: Sequence[TableFile],
    readers: Sequence[TableReader],
    rejects: RejectsFile,
    show: Show,
) -> ImportProgress:
    """What :func:`read_tables` would find, without keeping anything. Repeats are not looked for."""
    tally = ImportProgress()
    total = sum(file.progress()[1] for file in files)
    before = 0
    for file, reader in zip(files, readers, strict=True):
        usable: list[Observation] = []
        for row in file.rows():
            made = _take(row, reader, tally, lambda _: 1)
            if isinstance(made, UnusableRow):
                rejects.add(_rejected(file, row, made))
            else:
                usable.append(made[0])
            if row.number % SAVE_EVERY == 0:
                _place(usable, reader.study, tally)
                show("reading", before + file.progress()[0], total)
        _place(usable, reader.study, tally)
        before += file.progress()[1]
    show("reading", total, total)
    return tally


def _place(usable: list[Observation], study: Study, tally: ImportProgress) -> None:
    """Count which of these jobs lie in the space, and forget them."""
    for why in why_outside(study, usable):
        if why is None:
            tally.in_space += 1
        else:
            count_into(tally.outside, why)
    usable.clear()


def _take(
    row: TableRow | UnreadableLine,
    reader: TableReader,
    tally: ImportProgress,
    place_among_alike: Callable[[str], int],
) -> tuple[Observation, bytes] | UnusableRow:
    """What tunerd will keep of a row, and its event; counted."""
    tally.rows += 1
    made = reader.read(row)
    if not isinstance(made, UnusableRow):
        event, observation = made
        place = 1 if reader.named else place_among_alike(event["event_id"])
        if place > 1:
            event = told_apart(event, place)
            observation = structs.replace(
                observation, event_id=event["event_id"], content_hash=content_hash(event)
            )
        body = _encode(event)
        if len(body) <= MAX_EVENT_BYTES:
            tally.usable += 1
            count_into(tally.statuses, observation.status.value)
            why = reader.study.unusable(observation.metrics)
            tally.measured += why is None
            tally.impossible += why == "impossible"
            return observation, body
        most = kib(MAX_EVENT_BYTES)
        made = UnusableRow("row", f"makes an event of more than {most}", kib(len(body)))
    count_into(tally.unusable, f"{made.field}: {made.reason}")
    return made


def _job(one: Observation, body: bytes, file: int, row: int) -> SpooledJob:
    at = (one.finished_at - _EPOCH) // timedelta(microseconds=1)
    return SpooledJob(at, one.event_id, one.content_hash, file, row, body)


def _save(spool: ImportSpool, rejects: RejectsFile, jobs: list[SpooledJob]) -> None:
    added = spool.add(jobs)
    spool.tally.repeated += len(jobs) - added
    jobs.clear()
    rejects.flush()
    spool.tally.rejects_bytes = rejects.size
    spool.save()


def _rejected(file: TableFile, row: TableRow | UnreadableLine, why: UnusableRow) -> dict[str, Any]:
    entry = {
        "file": str(file.path),
        "row": row.number,
        "field": why.field,
        "reason": why.reason,
        "found": why.found,
    }
    if isinstance(row, TableRow):
        return entry | {"values": row.values}
    return entry | {"text": row.text}
