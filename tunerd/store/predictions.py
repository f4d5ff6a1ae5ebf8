"""What was predicted of each job before it was learned, one bounded row per job."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import structs

from tunerd.core.evidence.prequential import PrequentialOutcome, PrequentialRecord
from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.tables import predictions

__all__ = ["PredictionReads", "PredictionWrites"]

_CHUNK = 5000
"""Rows dropped at a time."""

_COLUMNS = ("sequence", "finished_at", "history", "context_key", "detail")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PrequentialOutcome).decode


class PredictionReads(StoreReads):
    """Reading them back."""

    def predictions(
        self,
        study: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        history: bool = False,
        most: int | None = None,
    ) -> list[PrequentialRecord]:
        """A study's judged jobs in the order in which they were learned.

        Args:
            study: name.
            since: only jobs that finished then or later.
            until: only jobs that finished before this.
            history: the imported jobs instead of the live ones.
            most: only the last so many.
        """
        table = predictions.c
        statement = sa.select(*(table[name] for name in _COLUMNS)).where(
            *_window(study, since, until, history)
        )
        # By time: there is an index, and a window of live jobs must not read a long history.
        last = table.sequence if history else table.finished_at
        with self._reading() as connection:
            rows = connection.execute(statement.order_by(last.desc()).limit(most)).all()
        return sorted(map(_record, rows), key=lambda judged: judged.sequence)

    def predictions_after(self, study: str, after: int, limit: int) -> list[PrequentialRecord]:
        """The first ``limit`` judged jobs above sequence ``after``, live and imported, in order."""
        table = predictions.c
        statement = (
            sa.select(*(table[name] for name in _COLUMNS))
            .where(table.study == study, table.sequence > after)
            .order_by(table.sequence)
            .limit(limit)
        )
        with self._reading() as connection:
            return list(map(_record, connection.execute(statement)))

    def predictions_at(self, study: str, sequences: Sequence[int]) -> dict[int, PrequentialRecord]:
        """Those of these jobs that were judged, by sequence; a thousand at most."""
        table = predictions.c
        statement = sa.select(*(table[name] for name in _COLUMNS)).where(
            table.study == study, table.sequence.in_(list(sequences))
        )
        with self._reading() as connection:
            return {row[0]: _record(row) for row in connection.execute(statement)}

    def count_predictions(
        self,
        study: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        history: bool = False,
    ) -> int:
        """How many there are."""
        statement = (
            sa.select(sa.func.count())
            .select_from(predictions)
            .where(*_window(study, since, until, history))
        )
        with self._reading() as connection:
            return int(connection.execute(statement).scalar_one())


def _record(row: Any) -> PrequentialRecord:
    return PrequentialRecord(row[0], row[1], bool(row[2]), row[3], _decode(row[4]))


def _window(
    study: str, since: datetime | None, until: datetime | None, history: bool
) -> list[sa.ColumnElement[bool]]:
    table = predictions.c
    wanted = [table.study == study, table.history == history]
    if since is not None:
        wanted.append(table.finished_at >= since)
    if until is not None:
        wanted.append(table.finished_at < until)
    return wanted


class PredictionWrites(PredictionReads, StoreWrites):
    """Keeping them. Call ``fence`` first in the same transaction."""

    def add_predictions(self, study: str, judged: Sequence[PrequentialRecord]) -> None:
        """Keep what was thought of jobs. 12 µs a row.

        Raises:
            ValueError: an outcome holds NaN or infinity, which JSON does not have.
        """
        for record in judged:
            if record.corrects:
                self._put_right(study, record)
        judged = [record for record in judged if not record.corrects]
        if not judged:
            return
        native = self._database.native
        rows: list[tuple[object, ...]] = [
            (
                study,
                record.sequence,
                native(record.finished_at),
                record.history,
                record.context_key,
                _encode(record.outcome).decode(),
            )
            for record in judged
        ]
        marks = ",".join([self._database.placeholder] * 6)
        statement = f"INSERT INTO predictions (study,{','.join(_COLUMNS)}) VALUES ({marks})"  # noqa: S608 - our own names
        self._connection.exec_driver_sql(statement, rows)

    def _put_right(self, study: str, one: PrequentialRecord) -> None:
        """Give an attempt that counted before what came of it. What was predicted of it stays."""
        table = predictions.c
        mine = (table.study == study, table.sequence == one.corrects)
        detail = self._connection.execute(sa.select(table.detail).where(*mine)).scalar()
        if detail is None:
            return  # forgotten, or imported
        before, now = _decode(detail), one.outcome
        entry = before.entry
        if entry is not None and entry.lead is not None and before.score is not None:
            moved = None if now.score is None else entry.lead + now.score - before.score
            entry = structs.replace(entry, lead=moved)
        outcome = structs.replace(
            before,
            status=now.status,
            score=now.score,
            ran=now.ran,
            gpu_hours=now.gpu_hours,
            entry=entry,
        )
        changed = sa.update(predictions).where(*mine)
        self._connection.execute(
            changed.values(finished_at=one.finished_at, detail=_encode(outcome).decode())
        )

    def silence_predictions(self, study: str, sequences: Iterable[int]) -> None:
        """Take back what came of jobs that were judged and went into quarantine afterwards."""
        table = predictions.c
        for sequence in sequences:
            mine = (table.study == study, table.sequence == sequence)
            detail = self._connection.execute(sa.select(table.detail).where(*mine)).scalar()
            if detail is not None:
                outcome = structs.replace(_decode(detail), score=None, ran=None, gpu_hours=None)
                changed = sa.update(predictions).where(*mine)
                self._connection.execute(changed.values(detail=_encode(outcome).decode()))

    def rename_predictions(self, study: str, keys: Mapping[int, str]) -> None:
        """Keep what was thought of jobs under the present keys of their contexts, given those of
        all jobs by their sequence. A second for 100,000 jobs."""
        table = predictions.c
        mine = table.study == study
        rows = self._connection.execute(sa.select(table.sequence, table.context_key).where(mine))
        changed = [{"at": n, "key": keys[n]} for n, key in rows if keys.get(n, key) != key]
        if changed:
            statement = sa.update(predictions).where(mine, table.sequence == sa.bindparam("at"))
            self._connection.execute(statement.values(context_key=sa.bindparam("key")), changed)

    def prune_predictions(self, study: str, before: datetime) -> int:
        """Drop rows of live jobs that finished before this, some thousands at most; returns how
        many. Those of imported jobs stay as long as the jobs do."""
        table = predictions.c
        old = (
            sa.select(table.sequence)
            .where(table.study == study, table.finished_at < before, table.history.is_(False))
            .limit(_CHUNK)
        )
        statement = sa.delete(predictions).where(
            table.study == study, table.sequence.in_(old.scalar_subquery())
        )
        return self._connection.execute(statement).rowcount
