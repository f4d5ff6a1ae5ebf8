"""Attempts of jobs whose halves wait for each other, or were joined a short while ago.

What the halves say is text here: :mod:`tunerd.events.joining` reads it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites, chunks
from tunerd.store.json_text import text_problem
from tunerd.store.tables import attempts

__all__ = ["AttemptCounts", "AttemptReads", "AttemptRow", "AttemptWrites", "WaitingAttempt"]

_CHUNK = 10_000
"""Attempts in one statement: all of a batch, so that rows are locked in one order."""

Key = tuple[str, str, int]
"""Cluster, job id, attempt."""

_c = attempts.c


@dataclass(slots=True)
class AttemptRow:
    """One attempt. Locked until the transaction ends."""

    key: Key
    first_at: datetime
    """When its first half came in."""
    last_at: datetime
    study: str | None = None
    missing: str = ""
    """What is not known yet, for people: words with commas."""
    ended: bool = False
    """Whether it is joined whole; a late half may correct it for a while."""
    sequence: int | None = None
    """Of the latest observation that it became; it may still be running."""
    corrections: int = 0
    """Observations that took the place of its first whole one."""
    material: str | None = None
    """Digest of what that observation teaches."""
    halves: str = ""
    """What they say together; empty for a new row."""

    @property
    def is_new(self) -> bool:
        """Whether no half of it was ever kept."""
        return not self.halves


@dataclass(frozen=True, slots=True)
class WaitingAttempt:
    """An attempt of which something is missing."""

    cluster: str
    job_id: str
    attempt: int
    study: str | None
    missing: tuple[str, ...]
    counts: bool
    """Whether it counts already, as one that runs."""
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """How many attempts wait for halves."""

    waiting: int
    """Of which a half came lately."""
    incomplete: int
    """Of which none came for longer than halves are waited for."""
    oldest_at: datetime | None
    """When the last half of the longest incomplete one came."""


class AttemptReads(StoreReads):
    """Looking at attempts."""

    def attempt_counts(self, before: datetime) -> AttemptCounts:
        """Count those of which something is missing; ``before`` tells incomplete ones by their last
        half."""
        statement = sa.select(
            sa.func.count(),
            sa.func.sum(sa.case((_c.last_at < before, 1), else_=0)),
            sa.func.min(_c.last_at),
        ).where(_c.ended.is_(False))
        with self._reading() as connection:
            total, incomplete, oldest = connection.execute(statement).one()
        late = int(incomplete or 0)
        return AttemptCounts(int(total) - late, late, oldest if late else None)

    def waiting_attempts(
        self, *, before: datetime | None = None, study: str | None = None, limit: int = 100
    ) -> list[WaitingAttempt]:
        """Those of which something is missing, the longest silent first; of one study, whose halves
        have said so; ``before`` takes only those whose last half came before it."""
        wanted: list[sa.ColumnElement[bool]] = [_c.ended.is_(False)]
        if before is not None:
            wanted.append(_c.last_at < before)
        if study is not None:
            wanted.append(_c.study == study)
        columns = (
            _c.cluster,
            _c.job_id,
            _c.attempt,
            _c.study,
            _c.missing,
            _c.sequence,
            _c.first_at,
            _c.last_at,
        )
        statement = sa.select(*columns).where(*wanted).order_by(_c.last_at).limit(limit)
        with self._reading() as connection:
            return [
                WaitingAttempt(
                    cluster=row.cluster,
                    job_id=row.job_id,
                    attempt=row.attempt,
                    study=row.study,
                    missing=tuple(row.missing.split(",")),
                    counts=row.sequence is not None,
                    first_at=row.first_at,
                    last_at=row.last_at,
                )
                for row in connection.execute(statement)
            ]


class AttemptWrites(AttemptReads, StoreWrites):
    """Keeping attempts. Before studies are locked."""

    def take_attempts(self, keys: Iterable[Key], now: datetime) -> dict[Key, AttemptRow]:
        """Lock these attempts; those that are not known yet are made.

        Raises:
            ValueError: a key holds what a text column cannot keep; halves are validated before.
        """
        wanted = sorted(set(keys))
        if problem := text_problem(text for key in wanted for text in key[:2]):
            raise ValueError(f"the key of an attempt {problem}")
        taken = self._taken(wanted)
        unknown = [key for key in wanted if key not in taken]
        if not unknown:
            return taken
        empty = {"missing": "", "ended": False, "first_at": now, "last_at": now}
        rows = [
            {"cluster": cluster, "job_id": job_id, "attempt": attempt, "corrections": 0}
            | empty
            | {"halves": ""}
            for cluster, job_id, attempt in unknown
        ]
        # Another instance may be making the same ones: this waits for it.
        self._connection.execute(self._database.insert(attempts).on_conflict_do_nothing(), rows)
        return taken | self._taken(unknown)

    def save_attempts(self, rows: Sequence[AttemptRow]) -> None:
        """Keep what became of attempts that were taken."""
        if not rows:
            return
        statement = (
            sa.update(attempts)
            .where(
                _c.cluster == sa.bindparam("of_cluster"),
                _c.job_id == sa.bindparam("of_job"),
                _c.attempt == sa.bindparam("of_attempt"),
            )
            .values(
                study=sa.bindparam("of_study"),
                missing=sa.bindparam("is_missing"),
                ended=sa.bindparam("has_ended"),
                last_at=sa.bindparam("came_at"),
                sequence=sa.bindparam("became"),
                corrections=sa.bindparam("corrected"),
                material=sa.bindparam("teaches"),
                halves=sa.bindparam("they_say"),
            )
        )
        self._connection.execute(statement, [_bound(row) for row in rows])

    def drop_attempts(self, keys: Sequence[Key]) -> None:
        """Forget attempts."""
        statement = sa.delete(attempts).where(
            _c.cluster == sa.bindparam("of_cluster"),
            _c.job_id == sa.bindparam("of_job"),
            _c.attempt == sa.bindparam("of_attempt"),
        )
        if keys:
            names = ("of_cluster", "of_job", "of_attempt")
            self._connection.execute(statement, [dict(zip(names, k, strict=True)) for k in keys])

    def prune_attempts(self, *, ended: bool, before: datetime, limit: int = 1000) -> int:
        """Forget at most ``limit`` attempts whose last half came before a time: of those that are
        joined, or of those of which something is missing. Returns how many."""
        old = (
            sa.select(_c.cluster, _c.job_id, _c.attempt)
            .where(_c.ended.is_(ended), _c.last_at < before)
            .order_by(_c.last_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        keys = [(row.cluster, row.job_id, row.attempt) for row in self._connection.execute(old)]
        self.drop_attempts(keys)
        return len(keys)

    def _taken(self, keys: Sequence[Key]) -> dict[Key, AttemptRow]:
        rows: dict[Key, AttemptRow] = {}
        wanted = set(keys)
        jobs: dict[str, dict[str, None]] = {}
        for cluster, job_id, _ in keys:
            jobs.setdefault(cluster, {})[job_id] = None
        for cluster, ids in jobs.items():
            names = list(ids)
            for chunk in chunks(names, _CHUNK):
                # Not by all three columns at once: SQLite would read the whole index.
                statement = (
                    sa.select(attempts)
                    .where(_c.cluster == cluster, _c.job_id.in_(chunk))
                    .order_by(_c.job_id, _c.attempt)
                    .with_for_update()
                )
                for row in self._connection.execute(statement):
                    key = (row.cluster, row.job_id, row.attempt)
                    if key in wanted:
                        rows[key] = _row(key, row)
        return rows


def _row(key: Key, row: sa.Row[Any]) -> AttemptRow:
    return AttemptRow(
        key=key,
        first_at=row.first_at,
        last_at=row.last_at,
        study=row.study,
        missing=row.missing,
        ended=bool(row.ended),
        sequence=row.sequence,
        corrections=row.corrections,
        material=row.material,
        halves=row.halves,
    )


def _bound(row: AttemptRow) -> Mapping[str, object]:
    cluster, job_id, attempt = row.key
    return {
        "of_cluster": cluster,
        "of_job": job_id,
        "of_attempt": attempt,
        "of_study": row.study,
        "is_missing": row.missing,
        "has_ended": row.ended,
        "came_at": row.last_at,
        "became": row.sequence,
        "corrected": row.corrections,
        "teaches": row.material,
        "they_say": row.halves,
    }
