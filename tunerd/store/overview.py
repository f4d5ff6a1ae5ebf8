"""Numbers about everything, for ``tunerd status`` and metrics."""

from dataclasses import dataclass
from datetime import datetime

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
        return [self._overview(row) for row in self.studies()]

    def overview_of(self, study: str) -> StudyOverview:
        """One study.

        Raises:
            UnknownStudyError: there is none of this name.
        """
        row = self.study(study)
        if row is None:
            raise self.unknown_study(study)
        return self._overview(row)

    def _overview(self, row: StudyRow) -> StudyOverview:
        last = self.steps(row.name, limit=1)
        return StudyOverview(
            study=row,
            contexts=self._count(context_states, row.name),
            pending_commands=self._count(commands, row.name, commands.c.finished_at.is_(None)),
            last_step=last[0] if last else None,
        )

    def _count(self, table: sa.Table, study: str, *where: sa.ColumnElement[bool]) -> int:
        statement = sa.select(sa.func.count()).select_from(table)
        with self._reading() as connection:
            counted = connection.execute(statement.where(table.c.study == study, *where))
            return int(counted.scalar_one())
