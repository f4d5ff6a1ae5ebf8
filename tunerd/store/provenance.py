"""What each recommendation was made from, so that it can be derived again.

History, checkpoints and the steps' rows have most of it. What they do not have is here: small,
compressed, and only of the latest recommendations. Of older ones the message stays for a while.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import from_json, to_json
from tunerd.store.tables import derivations, issued

__all__ = ["ProvenanceReads", "ProvenanceRow", "ProvenanceWrites"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceRow:
    """A recommendation or proposal as it was first said, and what it was made from."""

    study: str
    recommendation_id: str
    context_key: str
    generation: int
    sequence: int
    """Last observation that was learned."""
    said_at: datetime
    message: Mapping[str, Any]
    """As it was first said."""
    basis: Mapping[str, Any]
    """What history does not tell, as JSON values."""


class ProvenanceReads(StoreReads):
    """Finding them."""

    def derivation(self, recommendation_id: str) -> ProvenanceRow | None:
        """Of one recommendation of any study; None where it was not kept."""
        statement = sa.select(derivations).where(
            derivations.c.recommendation_id == recommendation_id
        )
        with self._reading() as connection:
            row = connection.execute(statement).first()
            return None if row is None else _derivation(row)

    def issued(self, recommendation_id: str) -> ProvenanceRow | None:
        """An older recommendation of any study, with an empty basis; None where it is not kept."""
        statement = sa.select(issued).where(issued.c.recommendation_id == recommendation_id)
        with self._reading() as connection:
            row = connection.execute(statement).first()
        return None if row is None else _derivation(row)

    def said_in(self, study: str, context_key: str, limit: int = 20) -> list[ProvenanceRow]:
        """The latest of one context, newest first; as far back as they are kept."""
        statement = (
            sa.select(derivations)
            .where(derivations.c.study == study, derivations.c.context_key == context_key)
            .order_by(derivations.c.said_at.desc(), derivations.c.sequence.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            return list(map(_derivation, connection.execute(statement)))

    def derivable(self, study: str | None = None, limit: int = 20) -> list[tuple[str, str, str]]:
        """The latest (study, recommendation id, context key), newest first."""
        table = derivations.c
        statement = sa.select(table.study, table.recommendation_id, table.context_key)
        if study is not None:
            statement = statement.where(table.study == study)
        statement = statement.order_by(table.said_at.desc(), table.sequence.desc()).limit(limit)
        with self._reading() as connection:
            return [(row[0], row[1], row[2]) for row in connection.execute(statement)]


class ProvenanceWrites(ProvenanceReads, StoreWrites):
    """Keeping them. Call ``fence`` first in the same transaction."""

    def save_derivation(self, one: ProvenanceRow) -> None:
        """Keep it. The same advice said once more, from the same history, replaces it."""
        values = {
            "study": one.study,
            "recommendation_id": one.recommendation_id,
            "context_key": one.context_key,
            "generation": one.generation,
            "sequence": one.sequence,
            "said_at": one.said_at,
            "message": _packed(one.message, "message"),
            "basis": _packed(one.basis, "basis"),
        }
        self._connection.execute(
            self._database.insert(derivations)
            .values(values)
            .on_conflict_do_update(index_elements=["study", "recommendation_id"], set_=values)
        )

    def prune_derivations(self, study: str, keep: int, before: datetime) -> int:
        """Keep of all but the latest so many of a study only the message, and of those from before
        a moment not even that; returns of how many the basis was dropped."""
        table = derivations.c
        latest = (
            sa.select(table.recommendation_id)
            .where(table.study == study)
            .order_by(table.said_at.desc(), table.sequence.desc(), table.recommendation_id)
            .limit(keep)
        )
        older = sa.and_(
            table.study == study, table.recommendation_id.not_in(latest.scalar_subquery())
        )
        columns = [column.name for column in issued.columns]
        rows = sa.select(*(table[name] for name in columns)).where(older)
        insert = self._database.insert(issued).from_select(columns, rows)
        self._connection.execute(insert.on_conflict_do_nothing())
        dropped = self._connection.execute(sa.delete(derivations).where(older)).rowcount
        outlived = sa.and_(issued.c.study == study, issued.c.said_at < before)
        self._connection.execute(sa.delete(issued).where(outlived))
        return dropped


_NOTHING = zlib.compress(b"{}")


def _packed(value: Mapping[str, Any], what: str) -> bytes:
    return zlib.compress(to_json(value, what).encode())


def _derivation(row: sa.Row[Any]) -> ProvenanceRow:
    values = {"basis": _NOTHING, **row._mapping}
    for name in ("message", "basis"):
        values[name] = from_json(zlib.decompress(values[name]).decode())
    return ProvenanceRow(**values)
