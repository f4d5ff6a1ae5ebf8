"""Searches that the instance which tunes a study offers to the others.

A row has all that a search is made from but the model's checkpoint. Who claims it writes its result
into it, and nothing else. Each is claimed once: what was not finished in time is its owner's again.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from tunerd.store.access import StoreWrites
from tunerd.store.json_text import to_json, whole_json
from tunerd.store.leases import study_lease
from tunerd.store.tables import leases, search_tasks

__all__ = ["CollectedSearch", "SearchTask", "SearchTaskWrites"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTask:
    """A context to be searched."""

    study: str
    epoch: int
    """Of the lease under which it was offered."""
    generation: int
    context_key: str
    sequence: int
    """Last observation that was learned."""
    model: str
    """Name of the checkpoint that has learned so far."""
    made_by: str
    """What build, and what layout of states: only the same comes to the same result."""
    basis: Mapping[str, Any]
    """What the search is made from beside the model, as JSON values."""
    id: int = 0
    """Given by the store."""


class CollectedSearch(NamedTuple):
    """What came of a task that its owner has taken out."""

    id: int
    context_key: str
    claimed: bool
    result: bytes | None
    """None where nobody finished it, or the search failed there."""


class SearchTaskWrites(StoreWrites):
    """Offering, claiming and collecting. Clocks are the database's."""

    def offer_searches(self, tasks: Sequence[SearchTask]) -> list[int]:
        """Offer searches; returns their ids. Call ``fence`` first in the same transaction."""
        now = self._database.now(self._connection)
        return [
            self._connection.execute(
                sa.insert(search_tasks)
                .values(
                    study=task.study,
                    epoch=task.epoch,
                    generation=task.generation,
                    context_key=task.context_key,
                    sequence=task.sequence,
                    model=task.model,
                    made_by=task.made_by,
                    offered_at=now,
                    basis=zlib.compress(to_json(task.basis, "basis").encode(), 1),
                )
                .returning(search_tasks.c.id)
            ).scalar_one()
            for task in tasks
        ]

    def claim_search(
        self, owner: str, made_by: str, ttl_s: float, besides: Collection[str] = ()
    ) -> SearchTask | None:
        """Take the oldest task that nobody has taken; None where there is none. Not of the studies
        ``besides`` nor one's own, nor of an epoch that is over, nor one of another build. One that
        is damaged has no basis.

        Args:
            ttl_s: seconds after which its owner may search it itself.
        """
        table = search_tasks.c
        present = (
            sa.select(leases.c.epoch)
            .where(
                leases.c.name == sa.literal(study_lease("")) + table.study,
                leases.c.owner != owner,
            )
            .scalar_subquery()
        )
        row = self._connection.execute(
            sa.select(search_tasks)
            .where(
                table.claimed_by.is_(None),
                table.made_by == made_by,
                table.study.not_in(list(besides)),
                table.epoch == present,
            )
            .order_by(table.id)
            .limit(1)
            .with_for_update(skip_locked=True, of=search_tasks)
        ).one_or_none()
        if row is None:
            return None
        until = self._database.now(self._connection) + timedelta(seconds=ttl_s)
        self._connection.execute(
            sa.update(search_tasks)
            .where(table.id == row.id)
            .values(claimed_by=owner, claimed_until=until)
        )
        return SearchTask(
            study=row.study,
            epoch=row.epoch,
            generation=row.generation,
            context_key=row.context_key,
            sequence=row.sequence,
            model=row.model,
            made_by=row.made_by,
            basis=_basis(row),
            id=row.id,
        )

    def finish_search(self, number: int, owner: str, result: bytes | None) -> bool:
        """Write what came of a claimed task; None where the search failed. False, and nothing is
        written, where the claim has run out or the task is gone."""
        table = search_tasks.c
        mine = (
            (table.id == number)
            & (table.claimed_by == owner)
            & ~table.finished
            & (table.claimed_until > self._database.now(self._connection))
        )
        changed = self._connection.execute(
            sa.update(search_tasks).where(mine).values(finished=True, result=result)
        ).rowcount
        return changed == 1

    def collect_searches(self, study: str, *, unclaimed_s: float) -> list[CollectedSearch]:
        """Take out the tasks of a study that are finished or whose claim has run out, in the order
        in which they were offered; also those that nobody has taken for ``unclaimed_s`` seconds.
        What is being written at this moment stays. Call ``fence`` first in the same transaction."""
        table = search_tasks.c
        now = self._database.now(self._connection)
        left = table.claimed_by.is_(None) & (
            table.offered_at <= now - timedelta(seconds=unclaimed_s)
        )
        over = table.finished | (table.claimed_until <= now) | left
        rows = self._connection.execute(
            sa.select(table.id, table.context_key, table.claimed_by.is_not(None), table.result)
            .where(table.study == study, over)
            .order_by(table.id)
            .with_for_update(skip_locked=True)
        ).all()
        if rows:
            numbers = [row.id for row in rows]
            self._connection.execute(sa.delete(search_tasks).where(table.id.in_(numbers)))
        return [
            CollectedSearch(row[0], row[1], bool(row[2]), None if row[3] is None else bytes(row[3]))
            for row in rows
        ]

    def drop_searches(self, study: str) -> None:
        """Take back all that was offered of a study. Call ``fence`` first in the same
        transaction."""
        self._connection.execute(sa.delete(search_tasks).where(search_tasks.c.study == study))


def _basis(row: sa.Row[Any]) -> Any:
    """What a search is made from; nothing where that is damaged."""
    try:
        text = zlib.decompress(row.basis).decode()
    except (zlib.error, UnicodeDecodeError):
        text = ""
    return whole_json(text, f"search task {row.id}", {})
