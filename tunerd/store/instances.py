"""Which instances share this store: one row each, with a heartbeat by the database's clock.

That is all that instances know of each other. Nobody votes and nobody is asked: whoever has not
written for a while is silent, and the leases that it does not renew run out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import to_json, whole_json
from tunerd.store.leases import LeaseWrites
from tunerd.store.tables import instances

__all__ = ["InstanceReads", "InstanceRow", "InstanceWrites", "Neighbour"]

FORGET_AFTER = timedelta(days=1)
"""The row of an instance that was silent for so long is deleted when another one joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance as it was when it last wrote."""

    name: str
    """The same after every start."""
    owner: str
    """What it holds leases by: another one after every start."""
    installation: str
    """What instances of one store must agree on: the installation's name and its topics."""
    host: str
    pid: int
    version: str
    stages: Sequence[str]
    started_at: datetime
    heartbeat_at: datetime
    tuner_at: datetime | None = None
    """When its tuner process last looked for studies; None where there is none."""
    partitions: Sequence[str] = ()
    """Of the jobs topic, those that it reads."""
    lag: int | None = None
    """Records of these partitions that it has not read."""
    searched: int = 0
    """Contexts that it searched for others since it joined."""
    searches_as: str | None = None
    """Of what build its searches for others are; None where it searches for nobody."""
    silent_s: float = 0.0
    """Seconds since its heartbeat, by the database's clock."""
    tuner_silent_s: float | None = None


class Neighbour(NamedTuple):
    """What can be read of an instance in every schema that has instances."""

    pid: int
    host: str
    installation: str


class InstanceReads(StoreReads):
    """Who is there."""

    def neighbours(self, name: str, within_s: float) -> list[Neighbour]:
        """Instances of other names with a heartbeat lately; none in a schema without instances."""
        table = instances.c
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(instances.name):
                return []
            since = self._database.now(connection) - timedelta(seconds=within_s)
            rows = connection.execute(
                sa.select(table.pid, table.host, table.installation).where(
                    table.name != name, table.heartbeat_at > since
                )
            ).all()
        return [Neighbour(*row) for row in rows]

    def instances(self) -> list[InstanceRow]:
        """All instances by name, also those that are silent."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(instances).order_by(instances.c.name)).all()
            now = self._database.now(connection)
        return [_instance(row, now) for row in rows]


class InstanceWrites(InstanceReads, LeaseWrites, StoreWrites):
    """Coming, staying and going."""

    def join_one_by_one(self) -> None:
        """Wait for others that are joining, until the end of this transaction: of two strangers
        that look at the same time, none would see the other."""
        self._database.lock(self._connection, "joins")

    def join_instance(self, row: InstanceRow) -> None:
        """Enter an instance, with the database's time. What a former process of its name still
        holds is released: the caller has made sure that this process is no more."""
        now = self._database.now(self._connection)
        table = instances
        before = self._connection.execute(
            sa.select(table.c.owner).where(table.c.name == row.name)
        ).scalar_one_or_none()
        if before is not None and before != row.owner:
            self.release_leases(before)
        self._connection.execute(
            sa.delete(table).where(
                (table.c.heartbeat_at < now - FORGET_AFTER) | (table.c.name == row.name)
            )
        )
        self._connection.execute(
            sa.insert(table).values(
                name=row.name,
                owner=row.owner,
                installation=row.installation,
                host=row.host,
                pid=row.pid,
                version=row.version,
                stages=to_json(row.stages, "stages"),
                started_at=now,
                heartbeat_at=now,
                partitions=to_json(row.partitions, "partitions"),
            )
        )

    def beat(self, name: str, owner: str, partitions: Sequence[str], lag: int | None) -> bool:
        """Say that an instance is there, and what it reads. False when its row is gone or another
        process's: it has to join again."""
        return self._change(
            name,
            owner,
            heartbeat_at=self._database.now(self._connection),
            partitions=to_json(partitions, "partitions"),
            lag=lag,
        )

    def note_tuner(
        self, name: str, owner: str, *, there: bool = True, searches_as: str | None = None
    ) -> None:
        """Say that the instance's tuner process looks for studies, or does no longer, and what it
        can search for others."""
        now = self._database.now(self._connection)
        self._change(name, owner, tuner_at=now if there else None, searches_as=searches_as)

    def note_search(self, name: str, owner: str) -> None:
        """Count a context that the instance searched for another one."""
        self._change(name, owner, searched=instances.c.searched + 1)

    def leave_instance(self, name: str, owner: str) -> None:
        """Take an instance out, and leave its leases to others at once."""
        self.release_leases(owner)
        self._connection.execute(
            sa.delete(instances).where(instances.c.name == name, instances.c.owner == owner)
        )

    def _change(self, name: str, owner: str, **values: object) -> bool:
        changed = self._connection.execute(
            sa.update(instances)
            .where(instances.c.name == name, instances.c.owner == owner)
            .values(**values)
        ).rowcount
        return changed == 1


def _instance(row: sa.Row[Any], now: datetime) -> InstanceRow:
    tuner_at: datetime | None = row.tuner_at
    return InstanceRow(
        name=row.name,
        owner=row.owner,
        installation=row.installation,
        host=row.host,
        pid=row.pid,
        version=row.version,
        stages=whole_json(row.stages, f"stages of instance {row.name!r}", []),
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        tuner_at=tuner_at,
        partitions=whole_json(row.partitions, f"partitions of instance {row.name!r}", []),
        lag=row.lag,
        searched=row.searched,
        searches_as=row.searches_as,
        silent_s=(now - row.heartbeat_at).total_seconds(),
        tuner_silent_s=None if tuner_at is None else (now - tuner_at).total_seconds(),
    )
