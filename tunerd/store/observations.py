"""History: what finished jobs said, each observation once, in a dense sequence per study.

Batches of 500 go around SQLAlchemy's statement objects: with them the insert takes more than
twice as long, and ingest is what a backlog of a million events waits for (`benchmarks.ingest`).
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec
import sqlalchemy as sa

from tunerd.core.observation import (
    CorrectedObservation,
    Observation,
    ReleasedObservation,
    Status,
    corrected,
    released,
)
from tunerd.errors import CorruptDataError, StoreUnavailableError
from tunerd.store.access import StoreReads, StoreWrites, chunks
from tunerd.store.json_text import object_from_json, text_problem, to_jsons, whole_json
from tunerd.store.tables import observations, studies

__all__ = ["InsertedObservations", "ObservationReads", "ObservationWrites"]

log = logging.getLogger(__name__)

MAX_ID = 256
"""Characters of an event's id."""
_CHUNK = 1000
"""Values in one statement; SQLite takes at most 32,766 parameters."""

_COLUMNS = (
    observations.c.study,
    observations.c.source,
    observations.c.event_id,
    observations.c.job_id,
    observations.c.status,
    observations.c.finished_at,
    observations.c.context,
    observations.c.config,
    observations.c.metrics,
    observations.c.sequence,
    observations.c.attempt,
    observations.c.measured_s,
    observations.c.gpus,
    observations.c.username,
    observations.c.recommendation_id,
    observations.c.candidate_id,
    observations.c.history,
    observations.c.extra,
    observations.c.content_hash,
    observations.c.corrects,
    observations.c.released,
)
"""In the order of the fields of Observation, what it takes the place of, and whether that was in
quarantine."""


_CONFIG, _METRICS, _CORRECTS, _RELEASED = 7, 8, 19, 20
"""Places of some of them."""
PRUNED = ("", "{}")
"""In the place of configuration and metrics of a job that was pruned (:mod:`.retention`)."""
WHOLE = sa.or_(observations.c.config != PRUNED[0], observations.c.metrics != PRUNED[1])
"""Whether a job is still there with all that it said. One that lost only its configuration is
damaged, and was not pruned."""


def attempt_of(one: Observation) -> str:
    """Which attempt of its job this is: its number and when it started."""
    return _attempt(one.attempt, one.extra.get("started_at"))


def _attempt(number: int, started_at: object) -> str:
    return f"{number}@{started_at if isinstance(started_at, str) else ''}"


def is_another(known: str, attempt: str) -> bool:
    """Whether two attempts of a job with the same id differ: by their numbers, or by their starts
    where both say theirs."""
    (number, _, began), (other, _, start) = known.partition("@"), attempt.partition("@")
    return bool(known) and (number != other or (bool(began and start) and began != start))


def named_apart(event_id: str, attempt: str) -> str:
    """The id of another attempt, the same one whenever it is told again."""
    named = f"{event_id}#{attempt}"
    if len(named) <= MAX_ID:
        return named
    return hashlib.sha256(named.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class InsertedObservations:
    """What became of a batch."""

    fresh: tuple[Observation, ...]
    """New ones in the order given, as given (without a sequence)."""
    first_sequence: int
    """Sequence of the first of them; the others follow without a gap."""
    duplicates: int
    """How many were known already, with the same content; dropped."""
    conflicts: tuple[Observation, ...]
    """Those whose id is known with other content; not stored."""

    @property
    def accepted(self) -> tuple[Observation, ...]:
        """The new ones with their sequences; built when asked for, which few callers do."""
        return tuple(
            msgspec.structs.replace(observation, sequence=sequence)
            for sequence, observation in enumerate(self.fresh, start=self.first_sequence)
        )


class ObservationReads(StoreReads):
    """Reading history."""

    def observations(
        self, study: str, *, after: int = 0, limit: int = 1000, pruned: bool = False
    ) -> list[Observation]:
        """The first ``limit`` observations above sequence ``after``, in order; those that were
        pruned are left out, unless ``pruned``."""
        statement = (
            sa.select(*_COLUMNS)
            .where(observations.c.study == study, observations.c.sequence > after)
            .order_by(observations.c.sequence)
            .limit(limit)
        )
        statement = statement if pruned else statement.where(WHOLE)
        with self._reading() as connection:
            return self._with_earlier(study, connection.execute(statement).all())

    def observations_at(
        self, study: str, sequences: Sequence[int], *, pruned: bool = False
    ) -> list[Observation]:
        """The observations with these sequences, in this order, repeated ones repeated. With
        ``pruned`` also those that were, without configuration and metrics.

        Raises:
            LookupError: one of them does not exist, or not any more.
        """
        jobs = self._found_at(study, sequences, pruned=pruned)
        if len(jobs) < len(set(sequences)):
            missing = next(sequence for sequence in sorted(sequences) if sequence not in jobs)
            raise LookupError(f"study {study!r} has no observation with sequence {missing}")
        return [jobs[sequence] for sequence in sequences]

    def observations_left(self, study: str, sequences: Iterable[int]) -> list[Observation]:
        """Those of these observations that are in history and were not pruned, in order."""
        return [job for _, job in sorted(self._found_at(study, sequences).items())]

    def _found_at(
        self, study: str, sequences: Iterable[int], *, earlier: bool = True, pruned: bool = False
    ) -> dict[int, Observation]:
        """By sequence, those of these observations that exist; ``earlier`` says whether with what
        they take the place of."""
        wanted = sorted(set(sequences))
        rows: list[Any] = []
        with self._reading() as connection:
            for chunk in chunks(wanted, _CHUNK):
                statement = sa.select(*_COLUMNS).where(
                    observations.c.study == study,
                    observations.c.sequence.in_(chunk),
                )
                rows += connection.execute(statement if pruned else statement.where(WHOLE))
        jobs = self._with_earlier(study, rows) if earlier else map(_observation, rows)
        return {job.sequence: job for job in jobs}

    def _with_earlier(self, study: str, rows: Sequence[Any]) -> list[Observation]:
        """Observations from their rows, each with the one that it takes the place of."""
        jobs = list(map(_observation, rows))
        places = {row[9]: row[_CORRECTS] for row in rows if row[_CORRECTS] is not None}
        if not places:
            return jobs
        known = self._found_at(study, places.values(), earlier=False)
        makers = {row[9]: released if row[_RELEASED] else corrected for row in rows}
        return [
            job
            if (before := known.get(places.get(job.sequence, 0))) is None
            else makers[job.sequence](job, before)
            for job in jobs
        ]

    def latest_sequences(
        self,
        study: str,
        *,
        before: int | None = None,
        limit: int = 50,
        look_back: int = 20_000,
        equal: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Sequences of a study's latest observations, the latest first.

        Args:
            study: name.
            before: only those below this sequence.
            limit: so many at most.
            look_back: so many of the latest are looked at.
            equal: only those whose ``username``, ``status``, ``job_id``, ``candidate_id`` or
                ``recommendation_id`` is this.
        """
        table = observations.c
        latest = sa.select(studies.c.last_sequence).where(studies.c.name == study)
        end = (latest.scalar_subquery() + 1) if before is None else sa.literal(before)
        statement = (
            sa.select(table.sequence)
            .where(table.study == study, table.sequence < end, table.sequence >= end - look_back)
            .where(*(table[name] == value for name, value in (equal or {}).items()))
            .order_by(table.sequence.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            return list(connection.execute(statement).scalars())

    def usernames(self, study: str, first: int, last: int) -> dict[int, str]:
        """Whose the observations from one sequence to another are, where that is known."""
        table = observations.c
        statement = sa.select(table.sequence, table.username).where(
            table.study == study,
            table.sequence.between(first, last),
            table.username.is_not(None),
        )
        with self._reading() as connection:
            return {row[0]: row[1] for row in connection.execute(statement)}

    def corrected_sequences(self, study: str) -> set[int]:
        """Sequences of the observations that others took the place of. Reads all of history."""
        statement = sa.select(observations.c.corrects).where(
            observations.c.study == study, observations.c.corrects.is_not(None)
        )
        with self._reading() as connection:
            return set(connection.execute(statement).scalars())

    def event_places(
        self, events: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[str, int]]:
        """Study and sequence of those events that history has, by source and id."""
        places: dict[tuple[str, str], tuple[str, int]] = {}
        by_source: dict[str, list[str]] = {}
        for source, event_id in events:
            by_source.setdefault(source, []).append(event_id)
        c = observations.c
        with self._reading() as connection:
            for source, ids in by_source.items():
                for chunk in chunks(ids, _CHUNK):
                    statement = sa.select(c.event_id, c.study, c.sequence).where(
                        c.source == source, c.event_id.in_(chunk)
                    )
                    for event_id, study, sequence in connection.execute(statement):
                        places[source, event_id] = (study, sequence)
        return places

    def content_hashes(self, source: str, event_ids: Sequence[str]) -> dict[str, str]:
        """By event id, the content of those events of a source that history has."""
        hashes: dict[str, str] = {}
        with self._reading() as connection:
            for chunk in chunks(event_ids, _CHUNK):
                statement = sa.select(observations.c.event_id, observations.c.content_hash).where(
                    observations.c.source == source,
                    observations.c.event_id.in_(chunk),
                )
                hashes |= {row.event_id: row.content_hash for row in connection.execute(statement)}
        return hashes

    def ids_elsewhere(self, study: str, source: str, event_ids: Sequence[str]) -> set[str]:
        """Those of a source's event ids that are in the history of another study."""
        ids: set[str] = set()
        with self._reading() as connection:
            for chunk in chunks(event_ids, _CHUNK):
                statement = sa.select(observations.c.event_id).where(
                    observations.c.source == source,
                    observations.c.event_id.in_(chunk),
                    observations.c.study != study,
                )
                ids.update(connection.execute(statement).scalars())
        return ids


class ObservationWrites(ObservationReads, StoreWrites):
    """Adding to history."""

    def add_observations(
        self, study: str, batch: Sequence[Observation], now: datetime
    ) -> InsertedObservations:
        """Add what is new, numbered on from the study's last observation.

        Locks the study's row: with several studies in one transaction, go in the order of names.

        Args:
            study: of all observations in the batch.
            batch: any number; 500 at a time is quick.
            now: when they were received.

        Raises:
            LookupError: the store has no such study.
            ValueError: an observation holds what the store cannot keep; events are validated
                before they come here.
            StoreUnavailableError: another instance stored one of these events under another study
                in this very moment; nothing was written, try again.
        """
        _check(study, batch)
        row = self._connection.execute(
            sa.select(studies.c.last_sequence)
            .where(studies.c.name == study)
            .with_for_update(key_share=True)
        ).one_or_none()
        if row is None:
            raise LookupError(f"study {study!r} is not in the store; publish it first")
        last = int(row.last_sequence)
        fresh, duplicates, conflicts = self._sort_out(batch)
        if conflicts:
            attempts = self._other_attempts(study, conflicts, fresh)
            more, twice, still = self._sort_out(list(attempts.values()))
            turned_down = {id(job) for job in still}
            fresh, duplicates = [*fresh, *more], duplicates + twice
            conflicts = [
                job
                for place, job in enumerate(conflicts)
                if place not in attempts or id(attempts[place]) in turned_down
            ]
        if fresh:
            self._insert(study, fresh, last + 1, now)
            self._connection.execute(
                sa.update(studies)
                .where(studies.c.name == study)
                .values(last_sequence=last + len(fresh))
            )
        return InsertedObservations(tuple(fresh), last + 1, duplicates, tuple(conflicts))

    def _sort_out(
        self, batch: Sequence[Observation]
    ) -> tuple[list[Observation], int, list[Observation]]:
        known: dict[tuple[str, str], str] = {}
        for chunk in chunks(batch, _CHUNK):
            rows = self._rows_of(chunk, "content_hash")
            known |= {(source, event_id): content for source, event_id, content in rows}
        fresh: list[Observation] = []
        conflicts: list[Observation] = []
        duplicates = 0
        for observation in batch:
            identity = (observation.source, observation.event_id)
            content = known.get(identity)
            if content is None:
                known[identity] = observation.content_hash
                fresh.append(observation)
            elif content == observation.content_hash:
                duplicates += 1
            else:
                conflicts.append(observation)
        return fresh, duplicates, conflicts

    def _other_attempts(
        self, study: str, conflicts: Sequence[Observation], fresh: Sequence[Observation]
    ) -> dict[int, Observation]:
        """By place among the conflicts, those that are another attempt of their job, under an id
        of its own: some senders name an event after its job alone, and jobs come again."""
        before = {
            (job.source, job.event_id): ((job.study, job.job_id), attempt_of(job)) for job in fresh
        }
        unknown = [job for job in conflicts if (job.source, job.event_id) not in before]
        for chunk in chunks(unknown, _CHUNK):
            before |= self._attempts(chunk)
        others: dict[int, Observation] = {}
        for place, conflict_job in enumerate(conflicts):
            job, known = before.get((conflict_job.source, conflict_job.event_id), (("", ""), ""))
            attempt = attempt_of(conflict_job)
            if job == (study, conflict_job.job_id) and is_another(known, attempt):
                event_id = named_apart(conflict_job.event_id, attempt)
                others[place] = msgspec.structs.replace(conflict_job, event_id=event_id)
        return others

    def _attempts(
        self, batch: Sequence[Observation]
    ) -> dict[tuple[str, str], tuple[tuple[str, str], str]]:
        """Study, job and attempt of what history has under these ids."""
        attempts = {}
        columns = ("study", "job_id", "attempt", "extra")
        for source, event_id, study, job_id, attempt, extra in self._rows_of(batch, *columns):
            began = whole_json(extra, "an event's other fields", {}).get("started_at")
            attempts[source, event_id] = ((study, job_id), _attempt(attempt, began))
        return attempts

    def _rows_of(self, batch: Sequence[Observation], *columns: str) -> Iterable[Sequence[Any]]:
        """Source, event id and these columns of those that history has.

        A join, because SQLite reads the whole index for ``(a, b) IN (VALUES …)``: 20 ms a batch.
        """
        mark = self._database.placeholder
        values = ",".join([f"({mark},{mark})"] * len(batch))
        wanted = ", ".join(f"o.{column}" for column in ("source", "event_id", *columns))
        statement = (
            f"WITH asked(source, event_id) AS (VALUES {values}) "  # noqa: S608 - marks and columns
            f"SELECT {wanted} FROM asked JOIN observations o "
            "ON o.source = asked.source AND o.event_id = asked.event_id"
        )
        asked = tuple(text for job in batch for text in (job.source, job.event_id))
        return self._connection.exec_driver_sql(statement, asked)

    def _insert(self, study: str, fresh: list[Observation], first: int, now: datetime) -> None:
        native = self._database.native
        received_at = native(now)
        texts = zip(
            to_jsons([job.context for job in fresh], "a context"),
            to_jsons([job.config for job in fresh], "a configuration"),
            to_jsons([job.metrics for job in fresh], "metrics"),
            to_jsons([job.extra for job in fresh], "an event's other fields"),
            strict=True,
        )
        rows: list[Any] = [
            (
                study,
                job.source,
                job.event_id,
                job.job_id,
                job.status.value,
                native(job.finished_at),
                context,
                config,
                metrics,
                sequence,
                job.attempt,
                job.measured_s,
                job.gpus,
                job.user,
                job.recommendation_id,
                job.candidate_id,
                job.history,
                extra,
                job.content_hash,
                job.earlier.sequence if isinstance(job, CorrectedObservation) else None,
                isinstance(job, ReleasedObservation),
                received_at,
            )
            for sequence, (job, (context, config, metrics, extra)) in enumerate(
                zip(fresh, texts, strict=True), start=first
            )
        ]
        names = [column.name for column in _COLUMNS] + ["received_at"]
        marks = ",".join([self._database.placeholder] * len(names))
        statement = f"INSERT INTO observations ({','.join(names)}) VALUES ({marks})"  # noqa: S608
        try:
            self._connection.exec_driver_sql(statement, rows)
        except sa.exc.IntegrityError as error:
            raise StoreUnavailableError(
                f"{self._database.place}: another instance stored one of these events just now"
            ) from error


def _check(study: str, batch: Sequence[Observation]) -> None:
    """Refuse what one of the databases cannot keep. All at once: 0.5 µs an observation."""
    if _problem(study, batch) is None:
        return
    for job in batch:
        if problem := _problem(study, [job]):
            raise ValueError(f"event {job.event_id!r} of {job.source!r} {problem}")


def _problem(study: str, batch: Sequence[Observation]) -> str | None:
    if problem := text_problem([text for job in batch for text in _texts(job) if text]):
        return problem
    for job in batch:
        if job.study != study:
            return f"is of study {job.study!r}, not of {study!r}"
        if not (_fits(job.attempt) and (job.gpus is None or _fits(job.gpus))):
            return "has an attempt or gpus beyond 64 bits"
        if job.measured_s is not None and not isfinite(job.measured_s):
            return "has a measured_s that is not finite"
    return None


_texts = attrgetter(
    "source", "event_id", "job_id", "user", "recommendation_id", "candidate_id", "content_hash"
)


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _observation(row: Any) -> Observation:
    if (row[_CONFIG], row[_METRICS]) == PRUNED:
        row = (*row[:_CONFIG], "{}", *row[_CONFIG + 1 :])
    try:
        return _read(row, object_from_json)
    except (CorruptDataError, ValueError) as error:  # the latter of a status
        damage = "job %r of study %s, sequence %s, is damaged and teaches nothing: %s"
        log.error(damage, row[3], row[0], row[9], error)
    # Sequences stay dense, and a cancelled job without a metric says nothing.
    return _read((*row[:4], Status.CANCELLED, *row[5:8], "{}", *row[9:]), _what_is_left)


def _what_is_left(text: str) -> Any:
    return whole_json(text, "a part of it", {})


def _read(row: Any, read: Callable[[str], Any]) -> Observation:
    return Observation(
        study=row[0],
        source=row[1],
        event_id=row[2],
        job_id=row[3],
        status=Status(row[4]),
        finished_at=row[5],
        context=read(row[6]),
        config=read(row[7]),
        metrics=read(row[8]),
        sequence=row[9],
        attempt=row[10],
        measured_s=row[11],
        gpus=row[12],
        user=row[13],
        recommendation_id=row[14],
        candidate_id=row[15],
        history=row[16],
        extra=read(row[17]),
        content_hash=row[18],
    )
