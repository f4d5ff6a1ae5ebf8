"""Quarantine: which jobs nothing is learned from, why, and what became of them.

The jobs themselves are in history. A release is a further observation that takes the place of the
one in quarantine: so it is learned once, at a place of its own, by whoever learns history.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import structs

from tunerd.core.observation import Observation, released
from tunerd.store.access import chunks
from tunerd.store.observations import ObservationReads, ObservationWrites, named_apart
from tunerd.store.tables import observations, quarantine

__all__ = [
    "QuarantineReads",
    "QuarantineRow",
    "QuarantineState",
    "QuarantineWrites",
    "nodes_of",
]

QuarantineState = Literal["held", "released", "bad", "corrected", "learned"]
"""``held``: nobody has said anything; ``released``: by an operator or by a repeat; ``bad``: an
operator said so; ``corrected``: something else is known of the job by now; ``learned``: the study
changed, and finds nothing wrong with it."""

_CHUNK = 1000
MOST_NODES = 16
"""Nodes of a job that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRow:
    """One job in quarantine."""

    study: str
    sequence: int
    state: QuarantineState = "held"
    reason: str
    """See :data:`tunerd.core.outliers.QuarantineReason`."""
    text: str
    """The reason, for a person."""
    value: float | None
    """Of the objective."""
    context_key: str
    config_id: str
    held_at: datetime
    settled_at: datetime | None = None
    settled_by: str | None = None
    why: str | None = None


class QuarantineReads(ObservationReads):
    """Looking at it."""

    def quarantined(
        self,
        study: str | None = None,
        *,
        states: Sequence[QuarantineState] = ("held",),
        reason: str | None = None,
        user: str | None = None,
        node: str | None = None,
        limit: int = 1000,
    ) -> list[QuarantineRow]:
        """Jobs in quarantine, the latest first.

        Args:
            study: only of this one.
            states: only those in one of these.
            reason: only those held for this.
            user: only jobs of this user.
            node: only jobs that had this node among theirs; among the latest ten times ``limit``.
            limit: so many at most.
        """
        c, jobs = quarantine.c, observations.c
        statement = sa.select(quarantine).where(c.state.in_(states))
        if study is not None:
            statement = statement.where(c.study == study)
        if reason is not None:
            statement = statement.where(c.reason == reason)
        if user is not None or node is not None:
            same = (jobs.study == c.study) & (jobs.sequence == c.sequence)
            statement = statement.join(observations, same)
        if user is not None:
            statement = statement.where(jobs.username == user)
        most = limit if node is None else 10 * limit
        statement = statement.order_by(c.held_at.desc(), c.study, c.sequence.desc()).limit(most)
        with self._reading() as connection:
            rows = [QuarantineRow(**row._mapping) for row in connection.execute(statement)]
        if node is not None:
            rows = self._on_node(rows, node)[:limit]
        return rows

    def _on_node(self, rows: Sequence[QuarantineRow], node: str) -> list[QuarantineRow]:
        jobs = self.quarantined_jobs(rows)
        there = {place for place, job in jobs.items() if node in nodes_of(job)}
        return [row for row in rows if (row.study, row.sequence) in there]

    def quarantined_jobs(self, rows: Iterable[QuarantineRow]) -> dict[tuple[str, int], Observation]:
        """The jobs of these rows as history has them, by study and sequence."""
        by_study: dict[str, list[int]] = {}
        for row in rows:
            by_study.setdefault(row.study, []).append(row.sequence)
        return {
            (study, sequence): job
            for study, sequences in by_study.items()
            for sequence, job in self._found_at(
                study, sequences, earlier=False, pruned=True
            ).items()
        }

    def quarantine_counts(self, study: str | None = None) -> dict[str, int]:
        """By study, jobs in quarantine of which nobody has said anything."""
        c = quarantine.c
        statement = sa.select(c.study, sa.func.count()).where(c.state == "held").group_by(c.study)
        if study is not None:
            statement = statement.where(c.study == study)
        with self._reading() as connection:
            return {row[0]: int(row[1]) for row in connection.execute(statement)}

    def quarantine_rows(self, study: str, sequences: Iterable[int]) -> dict[int, QuarantineRow]:
        """What is known of some jobs of a study, in quarantine or once in it."""
        c, wanted = quarantine.c, sorted(set(sequences))
        rows: dict[int, QuarantineRow] = {}
        with self._reading() as connection:
            for chunk in chunks(wanted, _CHUNK):
                statement = sa.select(quarantine).where(c.study == study, c.sequence.in_(chunk))
                for row in connection.execute(statement):
                    rows[row.sequence] = QuarantineRow(**row._mapping)
        return rows

    def bad_sequences(self, study: str) -> set[int]:
        """Jobs of a study that an operator called bad."""
        c = quarantine.c
        statement = sa.select(c.sequence).where(c.study == study, c.state == "bad")
        with self._reading() as connection:
            return set(connection.execute(statement).scalars())


class QuarantineWrites(ObservationWrites, QuarantineReads):
    """Putting in and letting out. Call ``fence`` first in the same transaction."""

    def add_quarantined(self, rows: Sequence[QuarantineRow]) -> None:
        """Put jobs into quarantine. Of one that was there what was said of it stays."""
        for study in sorted({row.study for row in rows}):
            mine = {row.sequence: row for row in rows if row.study == study}
            known = self.quarantine_rows(study, mine)
            again = [n for n, row in known.items() if row.state in ("corrected", "learned")]
            self._mark_rows(study, again, state="held", settled_at=None, settled_by=None, why=None)
            fresh = [asdict(row) for sequence, row in mine.items() if sequence not in known]
            if fresh:
                self._connection.execute(sa.insert(quarantine), fresh)

    def settle_quarantined(
        self,
        study: str,
        sequences: Iterable[int],
        state: QuarantineState,
        *,
        who: str,
        why: str,
        now: datetime,
    ) -> list[int]:
        """Say what became of jobs that are held; returns those of which it is news. One that was
        called bad can be released."""
        from_states = ("held", "bad") if state == "released" else ("held",)
        rows = self.quarantine_rows(study, sequences)
        news = [n for n, row in sorted(rows.items()) if row.state in from_states]
        self._mark_rows(study, news, state=state, settled_at=now, settled_by=who, why=why)
        return news

    def release_quarantined(
        self, study: str, sequences: Iterable[int], *, who: str, why: str, now: datetime
    ) -> list[int]:
        """Let jobs out: each is added to history once more, and learned from there. Returns those
        of which that was done now."""
        news = self.settle_quarantined(study, sequences, "released", who=who, why=why, now=now)
        jobs = self._found_at(study, news, earlier=False)
        again = [
            released(structs.replace(job, event_id=named_apart(job.event_id, "released")), job)
            for _, job in sorted(jobs.items())
        ]
        if again:
            self.add_observations(study, again, now)
        return news

    def leave_quarantine(self, study: str, held: Iterable[int], now: datetime) -> None:
        """History was learned anew: of what was held only ``held`` is held now."""
        c, still = quarantine.c, set(held)
        statement = sa.select(c.sequence).where(c.study == study, c.state == "held")
        gone = [n for n in self._connection.execute(statement).scalars() if n not in still]
        who, why = "tunerd", "the study as it is now finds nothing wrong with it"
        self._mark_rows(study, gone, state="learned", settled_at=now, settled_by=who, why=why)

    def _mark_rows(self, study: str, sequences: Sequence[int], **values: Any) -> None:
        c = quarantine.c
        for chunk in chunks(sequences, _CHUNK):
            mine = c.sequence.in_(chunk)
            self._connection.execute(
                sa.update(quarantine).where(c.study == study, mine).values(**values)
            )


def nodes_of(job: Observation) -> list[str]:
    """The nodes that a job says it ran on, some at most."""
    nodes = job.extra.get("nodes")
    if not isinstance(nodes, Sequence) or isinstance(nodes, str):
        return []
    return [node for node in nodes[:MOST_NODES] if isinstance(node, str)]
