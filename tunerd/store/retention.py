"""Retention: what a job said is dropped from history, and later that there was one.

A *pruned* job keeps its row without configuration and metrics: its event id is still known as a
duplicate, its user and context are still in the ledger, and its sequence is still taken. Which jobs
may go is decided in :mod:`tunerd.stages.retention`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import to_json, whole_json
from tunerd.store.observations import PRUNED, WHOLE
from tunerd.store.tables import observations, predictions, prunings, quarantine, tune_steps

__all__ = ["PastJob", "PrunedHistory", "RetentionReads", "RetentionWrites"]

_c = observations.c
LATEST_ENDS = 101
KEPT_STEPS = 1000
"""Latest steps that stay whatever their age: recovery asks for them."""


@dataclass(frozen=True, slots=True)
class PrunedHistory:
    """How much of a study's history was pruned."""

    jobs: int
    """Pruned since the beginning, forgotten ones included."""
    forgotten: int
    """Those of which not even the event id is known any more."""
    last_sequence: int
    """Of the latest of them: all jobs after it are whole."""
    pruned_at: datetime
    """When the last of them was."""


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job of history, as far as retention has to know it."""

    sequence: int
    whole: bool
    received_at: datetime
    bytes: int
    """Of what pruning it would drop."""


class RetentionReads(StoreReads):
    """Looking."""

    def pruned_history(self, study: str) -> PrunedHistory | None:
        """How much was pruned; None where nothing was."""
        c = prunings.c
        statement = sa.select(c.jobs, c.forgotten, c.last_sequence, c.pruned_at)
        with self._reading() as connection:
            row = connection.execute(statement.where(c.study == study)).one_or_none()
        return PrunedHistory(*row) if row is not None and row.jobs else None

    def received_until(self, study: str, before: datetime) -> int:
        """A sequence up to which all came in before a moment, and none after it; 0 for none. By
        halves: sequences are
        given in the order in which jobs come in, but for the clocks of several instances."""
        first, last = 0, self._received(study, None)[0]
        while first < last:
            middle = (first + last + 1) // 2
            sequence, received_at = self._received(study, middle)
            if sequence > first and received_at is not None and received_at >= before:
                last = sequence - 1
            else:
                first = middle
        return first

    def _received(self, study: str, until: int | None) -> tuple[int, datetime | None]:
        """Sequence of the last job up to ``until``, and when it came in."""
        statement = sa.select(_c.sequence, _c.received_at).where(_c.study == study)
        if until is not None:
            statement = statement.where(_c.sequence <= until)
        with self._reading() as connection:
            row = connection.execute(statement.order_by(_c.sequence.desc()).limit(1)).one_or_none()
        return (0, None) if row is None else (row.sequence, row.received_at)

    def latest_end(self, study: str) -> datetime | None:
        """When a study's latest jobs ended, by their own clocks: the median of :data:`LATEST_ENDS`,
        which no few wrong clocks move; None before there was a job."""
        statement = (
            sa.select(_c.finished_at)
            .where(_c.study == study)
            .order_by(_c.sequence.desc())
            .limit(LATEST_ENDS)
        )
        with self._reading() as connection:
            ends = sorted(connection.execute(statement).scalars())
        return ends[len(ends) // 2] if ends else None

    def past_jobs(
        self, study: str, first: int, last: int, before: datetime, limit: int
    ) -> list[PastJob]:
        """Jobs between two sequences, the latest first: whole ones, and pruned ones that came in
        before a moment and were not imported as history, which may be imported again at any age."""
        length = sa.func.length
        size = length(_c.config) + length(_c.metrics) + length(_c.extra)
        statement = (
            sa.select(_c.sequence, WHOLE, _c.received_at, size)
            .where(_c.study == study, _c.sequence.between(first, last))
            .where(sa.or_(WHOLE, sa.and_(_c.received_at < before, sa.not_(_c.history))))
            .order_by(_c.sequence.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            rows = connection.execute(statement).all()
        return [PastJob(row[0], bool(row[1]), row[2], int(row[3])) for row in rows]

    def quarantine_history(self, study: str, sequences: Sequence[int]) -> set[int]:
        """Those of these jobs that wait in quarantine, that were called bad, or that are a release:
        of some hundreds."""
        held = sa.select(quarantine.c.sequence).where(
            quarantine.c.study == study,
            quarantine.c.sequence.in_(sequences),
            quarantine.c.state.in_(("held", "bad")),
        )
        releases = sa.select(_c.sequence).where(
            _c.study == study, _c.sequence.in_(sequences), _c.released
        )
        with self._reading() as connection:
            return {*connection.execute(held).scalars(), *connection.execute(releases).scalars()}

    def replaced_jobs(self, study: str, sequences: Sequence[int]) -> dict[int, list[int]]:
        """Those of these jobs, some hundreds, that others take the place of, with those of the
        others that are whole."""
        statement = sa.select(_c.corrects, _c.sequence, WHOLE).where(
            _c.study == study, _c.corrects.in_(sequences)
        )
        replaced: dict[int, list[int]] = {}
        with self._reading() as connection:
            for sequence, place, whole in connection.execute(statement):
                replaced.setdefault(sequence, []).extend([place] if whole else [])
        return replaced

    def job_contexts(self, study: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Sequence and context of the first jobs above a sequence, pruned ones included."""
        statement = (
            sa.select(_c.sequence, _c.context)
            .where(_c.study == study, _c.sequence > after)
            .order_by(_c.sequence)
            .limit(limit)
        )
        with self._reading() as connection:
            rows = connection.execute(statement).all()
        return [(row[0], whole_json(row[1], "a context", {})) for row in rows]


class RetentionWrites(RetentionReads, StoreWrites):
    """Pruning. Call :meth:`lock_prunings` first in the same transaction."""

    def lock_prunings(self, study: str, now: datetime) -> None:
        """Let nobody else prune this study until the end of this transaction."""
        blank = {"study": study, "jobs": 0, "forgotten": 0, "last_sequence": 0, "pruned_at": now}
        insert = self._database.insert(prunings).values(blank)
        self._connection.execute(insert.on_conflict_do_nothing())
        locked = sa.select(prunings.c.study).where(prunings.c.study == study).with_for_update()
        self._connection.execute(locked)

    def prune_jobs(self, study: str, sequences: Sequence[int], now: datetime) -> int:
        """Drop what these jobs said, some hundreds at most; returns how many of them were whole. Of
        their other fields stays what tells attempts of one job apart."""
        mine = sa.and_(_c.study == study, _c.sequence.in_(sequences), WHOLE)
        rows = self._connection.execute(sa.select(_c.sequence, _c.extra).where(mine)).all()
        if not rows:
            return 0
        mark = self._database.placeholder
        statement = (
            f"UPDATE observations SET config = {mark}, metrics = {mark}, extra = {mark} "  # noqa: S608
            f"WHERE study = {mark} AND sequence = {mark}"
        )
        values = [(*PRUNED, _what_stays(extra), study, sequence) for sequence, extra in rows]
        self._connection.exec_driver_sql(statement, values)
        table, last = prunings.c, max(row.sequence for row in rows)
        self._connection.execute(
            sa.update(prunings)
            .where(table.study == study)
            .values(
                jobs=table.jobs + len(rows),
                last_sequence=sa.case(
                    (table.last_sequence < last, last), else_=table.last_sequence
                ),
                pruned_at=now,
            )
        )
        return len(rows)

    def forget_jobs(self, study: str, sequences: Sequence[int]) -> int:
        """Drop jobs that were pruned, some hundreds at most, with what was predicted of imported
        ones and with what became of them in quarantine; returns how many these are."""
        pruned = sa.select(_c.sequence).where(
            _c.study == study, _c.sequence.in_(sequences), sa.not_(WHOLE)
        )
        gone = self._connection.execute(pruned).scalars().all()
        imported = predictions.c.history.is_(True)
        for table, which in (
            (observations, sa.true()),
            (predictions, imported),
            (quarantine, sa.true()),
        ):
            mine = sa.and_(table.c.study == study, table.c.sequence.in_(gone), which)
            self._connection.execute(sa.delete(table).where(mine))
        counted = sa.update(prunings).where(prunings.c.study == study)
        forgotten = prunings.c.forgotten + len(gone)
        self._connection.execute(counted.values(forgotten=forgotten))
        return len(gone)

    def prune_steps(self, study: str, before: datetime) -> int:
        """Drop steps that ended before a moment and learned nothing after the last job that was
        pruned, some hundreds at most; returns how many. The latest ones stay, and the last one of
        each generation that learned something."""
        c = tune_steps.c
        mine = c.study == study
        latest = sa.select(sa.func.max(c.step)).where(mine)
        most = int(self._connection.execute(latest).scalar_one() or 0) - KEPT_STEPS
        pruned = sa.select(prunings.c.last_sequence).where(prunings.c.study == study)
        until = int(self._connection.execute(pruned).scalar_one_or_none() or 0)
        columns = (c.step, c.generation, c.sequence_from, c.sequence_to, c.finished_at)
        # Not a search for those that may go: it would read all that may not.
        oldest = sa.select(*columns).where(mine).order_by(c.step).limit(KEPT_STEPS)
        rows = self._connection.execute(oldest).all()
        last = {row.generation: row.step for row in rows if row.sequence_from <= row.sequence_to}
        gone = [
            row.step
            for row in rows
            if row.step <= most
            and row.step != last.get(row.generation)
            and row.finished_at < before
            and row.sequence_to <= until
        ]
        self._connection.execute(sa.delete(tune_steps).where(mine, c.step.in_(gone)))
        return len(gone)


def _what_stays(extra: str) -> str:
    started_at = whole_json(extra, "an event's other fields", {}).get("started_at")
    return to_json({"started_at": started_at} if isinstance(started_at, str) else {}, "a start")
