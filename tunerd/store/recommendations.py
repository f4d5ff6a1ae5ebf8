"""What is recommended now, per study and context key, and how many revisions there were.

A row is never deleted: its revision counts on after a withdrawal and after the tombstone, so that
a reader who drops old revisions can rely on it.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import context_id
from tunerd.store.tables import recommendations

__all__ = [
    "RecommendationReads",
    "RecommendationRow",
    "RecommendationWrites",
    "StandingRow",
]


GONE = {
    "declined": "An operator declined what was proposed.",
    "dropped": "What was proposed was taken back: a pause, an operator's limit, no job here for "
    "long, nothing feasible, or a study that changed or ended.",
}
"""Why nothing is proposed, by a row's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRow:
    """The newest revision for a context key."""

    study: str
    context_key: str
    revision: int
    recommendation_id: str
    state: str
    """``active``, ``withdrawn``; ``observed``, ``pending``, ``declined`` and ``dropped`` were not
    published."""
    value: str
    """The message as JSON text."""
    proposal: str | None = None
    """What waits for approval while the published one goes on: a message as JSON text."""
    issued_at: datetime
    valid_until: datetime
    renew_at: datetime | None = None
    """When the tune stage has to look at it again; None for never."""

    def standing(self, mode: str | None) -> list[tuple[str, str]]:
        """What there is to be told of a context in a study of this mode, what is proposed first:
        states and messages as JSON text. A proposal that is gone proposes nothing any more."""
        row = StandingRow(
            self.context_key, self.state, self.proposal is not None, self.renew_at is None
        )
        names = row.standing(mode)
        texts = [] if self.proposal is None else [self.proposal]
        if len(names) > len(texts):
            texts.append(self._message())
        return list(zip(names, texts, strict=True))

    def _message(self) -> str:
        if self.state not in GONE:
            return self.value
        message = {**json.loads(self.value), "candidates": [], "reason": GONE[self.state]}
        return json.dumps(message, ensure_ascii=False)


class StandingRow(NamedTuple):
    """A :class:`RecommendationRow` without its messages: 50,000 are read in half a second."""

    context_key: str
    state: str
    proposed: bool
    """Whether something is proposed beside it."""
    never_renewed: bool

    def standing(self, mode: str | None) -> list[str]:
        """The states of :meth:`RecommendationRow.standing`."""
        proposed = "observed" if mode == "observe" else "pending"
        states = [proposed] if self.proposed else []
        if self.state in ("observed", "pending"):
            return [*states, proposed]
        if self.state == "withdrawn" and self.never_renewed:
            return states  # its key is free: nobody reads anything there
        return [*states, self.state]


_FIELDS = tuple(field.name for field in fields(RecommendationRow))


class RecommendationReads(StoreReads):
    """Asking for recommendations."""

    def recommendation(self, study: str, context_key: str) -> RecommendationRow | None:
        """The newest revision for a context key; None before the first."""
        statement = sa.select(recommendations).where(
            recommendations.c.study == study,
            recommendations.c.context_id == context_id(context_key),
        )
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
            return None if row is None else _recommendation(row)

    def recommendations(
        self,
        study: str,
        *,
        states: Collection[str] | None = None,
        renew_before: datetime | None = None,
        latest: int | None = None,
    ) -> list[RecommendationRow]:
        """A study's recommendations by context key.

        Args:
            study: name.
            states: only those in one of these states.
            renew_before: only those with a ``renew_at`` before this.
            latest: only so many, those that were issued last, in that order.
        """
        statement = sa.select(recommendations).where(recommendations.c.study == study)
        if states is not None:
            statement = statement.where(recommendations.c.state.in_(list(states)))
        if renew_before is not None:
            statement = statement.where(recommendations.c.renew_at < renew_before)
        statement = (
            statement.order_by(recommendations.c.context_key)
            if latest is None
            else statement.order_by(recommendations.c.issued_at.desc()).limit(latest)
        )
        with self._reading() as connection:
            return list(map(_recommendation, connection.execute(statement)))

    def standing_rows(self, study: str) -> list[StandingRow]:
        """What :meth:`recommendations` reads, without the messages; by context key."""
        table = recommendations.c
        statement = sa.select(
            table.context_key,
            table.state,
            table.proposal.is_not(None),
            table.renew_at.is_(None),
        ).where(table.study == study)
        with self._reading() as connection:
            rows = connection.execute(statement.order_by(table.context_key))
            return [StandingRow(*row) for row in rows]

    def last_issued_at(self) -> datetime | None:
        """When the latest of all studies' recommendations was made; None before there was one."""
        with self._reading() as connection:
            issued_at: datetime | None = connection.execute(
                sa.select(sa.func.max(recommendations.c.issued_at))
            ).scalar_one()
            return issued_at


class RecommendationWrites(RecommendationReads, StoreWrites):
    """Recommending. Call ``fence`` first in the same transaction."""

    def next_revision(self, study: str, context_key: str) -> int:
        """The revision for the next message: 1, 2, 3 … for as long as the store lives."""
        statement = (
            sa.select(recommendations.c.revision)
            .where(
                recommendations.c.study == study,
                recommendations.c.context_id == context_id(context_key),
            )
            .with_for_update()
        )
        return int(self._connection.execute(statement).scalar_one_or_none() or 0) + 1

    def save_recommendation(self, row: RecommendationRow) -> None:
        """Replace what is recommended for a context key.

        Raises:
            ValueError: a newer revision stands there.
        """
        insert = self._database.insert(recommendations)
        values = {name: getattr(row, name) for name in _FIELDS}
        values["context_id"] = context_id(row.context_key)
        written = self._connection.execute(
            insert.values(values).on_conflict_do_update(
                index_elements=["study", "context_id"],
                set_={name: insert.excluded[name] for name in _FIELDS},
                where=recommendations.c.revision <= insert.excluded.revision,
            )
        ).rowcount
        if written != 1:
            raise ValueError(f"{row.context_key}: a revision above {row.revision} stands there")


def _recommendation(row: sa.Row[Any]) -> RecommendationRow:
    return RecommendationRow(**{name: getattr(row, name) for name in _FIELDS})
