"""Numbers about everything, for ``tunerd status`` and metrics."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.store.studies import StudyReads, StudyRow
from tunerd.store.tables import (
    commands,
    context_states,
    observations,
    studies,
)
from tunerd.store.tuner_state import TunerStateReads, TuneStep

__all__ = ["OverviewReads", "StudyOverview", "StudyProgress"]


@dataclass(frozen=True, slots=True)
class StudyOverview:
    """A study in numbers."""

    study: StudyRow
    contexts: int
    pending_commands: int
    last_step: TuneStep | None


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far a study has come."""

    name: str
    last_sequence: int
    learned_sequence: int
    last_received_at: datetime | None
    """When its last observation came in."""


class OverviewReads(StudyReads, TunerStateReads):
    """Counting."""

    def progress(self) -> list[StudyProgress]:
        """How far all studies have come, by name. Cheap: one look at one row of each."""
        last = sa.and_(
            observations.c.study == studies.c.name,
            observations.c.sequence == studies.c.last_sequence,
        )
        statement = (
            sa.select(
                studies.c.name,
                studies.c.last_sequence,
                studies.c.learned_sequence,
                observations.c.received_at,
            )
            .join(observations, last, isouter=True)
            .order_by(studies.c.name)
        )
        with self._reading() as connection:
            return [StudyProgress(*row) for row in connection.execute(statement)]

    def overview(self) -> list[StudyOverview]:
        """All studies by name. Reads no history: costs the same however long that is."""
        contexts = dict(self._count(context_states))
        pending = dict(self._count(commands, where=commands.c.finished_at.is_(None)))
        overviews = []
        for row in self.studies():
            last = self.steps(row.name, limit=1)
            overviews.append(
                StudyOverview(
                    study=row,
                    contexts=contexts.get(row.name, 0),
                    pending_commands=pending.get(row.name, 0),
                    last_step=last[0] if last else None,
                )
            )
        return overviews

    def _count(
        self,
        table: sa.Table,
        where: sa.ColumnElement[bool] | None = None,
    ) -> list[Any]:
        statement = sa.select(table.c.study, sa.func.count()).group_by(table.c.study)
        if where is not None:
            statement = statement.where(where)
        with self._reading() as connection:
            return [tuple(row) for row in connection.execute(statement)]
