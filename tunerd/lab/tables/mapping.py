"""Rows of a table of old jobs as job events: what its columns mean for a study.

The mapping is the ``[mapping]`` of the study file, or a file with the same keys beside it. A row
that cannot be used comes out as :class:`UnusableRow`, and is counted; a mapping that does not fit
the table is a mistake, and all mistakes are said at once.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tunerd.core.observation import Observation, Status, Value
from tunerd.core.study import MappingTable, Study
from tunerd.core.study.mapping import ColumnTable
from tunerd.core.study_file import with_mapping
from tunerd.core.toml import MOST_BYTES, load_toml
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events import Rejection, TimeLimits
from tunerd.events.job import JOB_SCHEMA, read_content
from tunerd.events.times import UNDATED
from tunerd.events.values import describe, first_unstorable
from tunerd.files import read_text
from tunerd.lab.tables.files import ReadOptions, TableFile, TableRow, UnreadableLine
from tunerd.lab.tables.layout import EventField, lay_out
from tunerd.lab.tables.values import is_nan, is_no_number

__all__ = [
    "TableJobs",
    "TableReader",
    "UnusableCounts",
    "UnusableRow",
    "read_mapping",
    "read_observations",
    "readers_of",
    "reading_of",
    "told_apart",
]

LIMITS = TimeLimits(max_age=None)
"""History may be as old as it is; a time ahead of now is a mistake of the table."""

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class UnusableRow:
    """Why a row cannot be used."""

    field: str
    """The place in the event, e.g. ``config.tp``; ``row`` for a line that is none."""
    reason: str
    """What is wrong, the same for all rows in which the same is wrong."""
    found: str = ""
    """What stood there instead, in a few characters."""

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" + (f", got {self.found}" if self.found else "")


def read_mapping(file: Path, study: Study) -> MappingTable:
    """A mapping in a file of its own: the keys of ``[mapping]``, under that heading or without.

    Raises:
        MisconfiguredError: with every mistake in it.
    """
    try:
        data = load_toml(read_text(file, MOST_BYTES))
    except OSError as error:
        raise MisconfiguredError(
            [ValidationProblem(str(file), f"cannot be read: {error.strerror}")]
        ) from None
    except ValueError as error:
        raise MisconfiguredError(
            [ValidationProblem(str(file), f"this is not TOML: {error}")]
        ) from None
    if set(data) == {"mapping"}:
        data = data["mapping"]
    return with_mapping(study, data, str(file)).mapping


def reading_of(study: Study, mapping: MappingTable) -> ReadOptions:
    """How the tables of a study are to be read, before their columns are looked at."""
    objective = study.objective
    entry = mapping.columns.get(objective.metric)
    column = entry.column if isinstance(entry, ColumnTable) else entry
    metric = column if isinstance(column, str) else objective.metric
    header = tuple(mapping.header)
    return ReadOptions(mapping.export, mapping.reports, metric, objective.goal, header)


class TableReader:
    """Makes job events of the rows of one table."""

    def __init__(
        self, study: Study, mapping: MappingTable, file: TableFile, where: str = "mapping."
    ) -> None:
        """``where`` stands before the keys of the mapping in mistakes.

        Raises:
            MisconfiguredError: with every way in which the mapping does not fit the table.
        """
        self.study, self.mapping = study, mapping
        self.layout = lay_out(study, mapping, file.columns, str(file.path), where)
        self.notes = self.layout.notes
        self.dated = self.layout.dated
        self.named = mapping.event_id is not None
        """Whether rows have ids of their own: then rows with the same one are the same event."""
        self._now = datetime.now(UTC)

    def event(self, row: TableRow | UnreadableLine) -> dict[str, Any] | UnusableRow:
        """The job event of the contract in a row, marked as history, or why there is none.

        The same row gives the same event wherever it stands: ``event_id`` is made from what is
        in it. Rows that are exactly alike get the same id, see :func:`told_apart`.
        """
        made = self.read(row)
        return made if isinstance(made, UnusableRow) else made[0]

    def observation(self, row: TableRow | UnreadableLine) -> Observation | UnusableRow:
        """What tunerd would keep of the row."""
        made = self.read(row)
        return made if isinstance(made, UnusableRow) else made[1]

    def read(
        self, row: TableRow | UnreadableLine
    ) -> tuple[dict[str, Any], Observation] | UnusableRow:
        """Both of them."""
        if isinstance(row, UnreadableLine):
            return UnusableRow("row", row.reason)
        try:
            event = self._event(row.values)
        except _UnusableRowError as error:
            return error.why
        read = _unstorable(event) or read_content(event, self._now, LIMITS)
        if isinstance(read, Rejection):
            return UnusableRow(read.field, read.problem)
        return event, read

    def _event(self, row: Mapping[str, Value]) -> dict[str, Any]:
        layout = self.layout
        metrics = {f.name: _measured(f, row) for f in layout.metrics}
        job = {f.name: _read(f, row) for f in layout.job}
        finished = _guarded("finished_at", layout.finished_at, row, layout.finished_at.column)
        if finished is None and layout.dated:
            raise _UnusableRowError(UnusableRow("finished_at", "is missing"))
        there = {k: v for k, v in row.items() if v is not None and v not in ("NaN", "nan")}
        name = hashlib.sha256(_encode(there))
        event_id = job.get("event_id") or name.hexdigest()[:32]
        event = {
            "schema": JOB_SCHEMA,
            "type": "completed",
            "history": True,
            "source": self.mapping.source,
            "event_id": event_id,
            "study": self.study.name,
            "job_id": job.get("job_id") or event_id,
            "status": self._status(row, metrics).value,
            "finished_at": (finished or UNDATED).isoformat().replace("+00:00", "Z"),
            "context": {f.name: _read(f, row) for f in layout.context},
            "config": {
                f.name: value for f in layout.config if (value := _read(f, row)) is not None
            },
            "metrics": {k: v for k, v in metrics.items() if v is not None},
        }
        event |= {
            name: job[name]
            for name in ("attempt", "measured_s", "gpus", "user")
            if job.get(name) is not None
        }
        labels = {f.name: None if is_nan(raw := f.raw(row)) else raw for f in layout.labels}
        return event | {"labels": labels} if labels else event

    def _status(self, row: Mapping[str, Value], metrics: Mapping[str, Value]) -> Status:
        status: Status | None
        field = self.layout.status
        status = _guarded("status", field, row, field.column)
        if status is not None:
            return status
        metric = self.study.objective.metric
        value = metrics.get(metric)
        if value is None and not self._diverged(row):
            raise _UnusableRowError(
                UnusableRow(f"metrics.{metric}", "is missing, and so is a status")
            )
        return Status.SUCCEEDED

    def _diverged(self, row: Mapping[str, Value]) -> bool:
        """Whether the objective is NaN or infinite: a job without a value, as an event with NaN."""
        metric = self.study.objective.metric
        return any(
            f.name == metric and len(f.columns) == 1 and is_no_number(f.raw(row))
            for f in self.layout.metrics
        )


def _unstorable(event: Mapping[str, Any]) -> Rejection | None:
    """Text that no database keeps, which is looked for only where it shows: it is rare."""
    return first_unstorable(event) if b"\\u0000" in msgspec.json.encode(event) else None


class _UnusableRowError(Exception):
    def __init__(self, why: UnusableRow) -> None:
        super().__init__(str(why))
        self.why = why


def _read(one: EventField, row: Mapping[str, Value]) -> Value:
    try:
        return one.read(row)
    except ValueError as error:
        shown = describe(one.raw(row)) if len(one.columns) == 1 else ""
        raise _UnusableRowError(UnusableRow(one.where, str(error), shown)) from None


def _measured(one: EventField, row: Mapping[str, Value]) -> Value:
    """A metric; NaN and infinite ones are missing, as in events."""
    if len(one.columns) == 1 and is_no_number(one.raw(row)):
        return None
    return _read(one, row)


def _guarded(name: str, one: Any, row: Mapping[str, Value], column: str | None) -> Any:
    try:
        return one.read(row)
    except ValueError as error:
        shown = "" if column is None or name == "status" else describe(row.get(column))
        raise _UnusableRowError(UnusableRow(name, str(error), shown)) from None


# ── many rows ────────────────────────────────────────────────────────────────────────────────


@dataclass
class UnusableCounts:
    """How many rows could not be used, by reason; what is rare beyond a bound goes together."""

    MOST = 100

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, why: UnusableRow) -> None:
        """Count one row."""
        reason = f"{why.field}: {why.reason}"
        if reason not in self.counts and len(self.counts) >= self.MOST:
            reason = f"{why.field}: other reasons"
        self.counts[reason] += 1

    @property
    def total(self) -> int:
        return self.counts.total()


def told_apart(event: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The event of the ``place``-th row of a table that is exactly alike, counted from 1: another
    job than the first, but the same one when the table is read again."""
    event_id = event["event_id"] if place == 1 else f"{event['event_id']}.{place}"
    same = event["job_id"] == event["event_id"]  # it has no name but that
    return {**event, "event_id": event_id, "job_id": event_id if same else event["job_id"]}


@dataclass(frozen=True)
class TableJobs:
    """The jobs in some tables."""

    observations: tuple[Observation, ...]
    """Sequences 1, 2, …: oldest first where the tables have times, else as they stand there."""
    unusable: Mapping[str, int]
    """Rows that could not be used, by reason."""
    dated: bool
    """Whether every table says when its jobs finished."""
    notes: tuple[str, ...] = ()


def read_observations(
    study: Study,
    mapping: MappingTable | None,
    files: Sequence[TableFile],
    progress: Callable[[int, int], None] | None = None,
) -> TableJobs:
    """Every job in some tables that can be used, in memory: what backtest and simulate judge by.

    Args:
        study: what the columns are read for.
        mapping: ``None`` is the study's own.
        files: read one after the other; a job that stands in several counts once.
        progress: told bytes read and bytes in all, now and then.

    Raises:
        MisconfiguredError: with every way in which the mapping does not fit the tables.
    """
    readers = readers_of(study, study.mapping if mapping is None else mapping, files)
    total = sum(file.progress()[1] for file in files)
    reasons, jobs_read, before = UnusableCounts(), dict[str, Observation](), 0
    for file, reader in zip(files, readers, strict=True):
        ids: Counter[str] = Counter()
        for row in file.rows():
            read = reader.observation(row)
            if isinstance(read, UnusableRow):
                reasons.add(read)
            else:
                ids[read.event_id] += 1
                names = {"event_id": read.event_id, "job_id": read.job_id}
                if not reader.named:
                    names = told_apart(names, ids[read.event_id])
                jobs_read.setdefault(names["event_id"], msgspec.structs.replace(read, **names))
            if progress is not None and row.number % 1_000 == 0:
                progress(before + file.progress()[0], total)
        before += file.progress()[1]
    if progress is not None:
        progress(total, total)
    dated = bool(readers) and all(reader.dated for reader in readers)
    jobs = list(jobs_read.values())
    if dated:
        jobs.sort(key=lambda job: job.finished_at)
    observations = tuple(
        msgspec.structs.replace(job, sequence=place) for place, job in enumerate(jobs, 1)
    )
    notes = dict.fromkeys(note for reader in readers for note in reader.notes)
    return TableJobs(observations, dict(reasons.counts.most_common()), dated, tuple(notes))


def readers_of(
    study: Study, mapping: MappingTable, files: Sequence[TableFile], where: str = "mapping."
) -> list[TableReader]:
    """A reader for each table; raises MisconfiguredError with what is wrong for any of them."""
    readers: list[TableReader] = []
    problems: dict[ValidationProblem, None] = {}
    for file in files:
        try:
            readers.append(TableReader(study, mapping, file, where))
        except MisconfiguredError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise MisconfiguredError(list(problems))
    return readers
