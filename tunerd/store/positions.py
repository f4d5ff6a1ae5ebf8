"""How far each partition was read, kept with what was learned from it."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from tunerd.errors import LostPartitionError
from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.tables import positions
from tunerd.streams.base import StreamPosition

__all__ = ["PositionReads", "PositionWrites"]


class PositionReads(StoreReads):
    """Where to go on reading."""

    def positions(self) -> list[StreamPosition]:
        """All of them, by cluster, topic and partition."""
        statement = sa.select(positions).order_by(
            positions.c.cluster, positions.c.topic, positions.c.partition
        )
        with self._reading() as connection:
            return list(map(_position, connection.execute(statement)))

    def restore_positions(
        self, cluster: str, topic: str, partitions: Sequence[str]
    ) -> dict[str, StreamPosition]:
        """The stored positions of these partitions, by partition; unread ones are missing."""
        statement = sa.select(positions).where(
            positions.c.cluster == cluster, positions.c.topic == topic
        )
        wanted = set(partitions)
        with self._reading() as connection:
            restored = map(_position, connection.execute(statement))
            return {
                position.partition: position
                for position in restored
                if position.partition in wanted
            }


class PositionWrites(PositionReads, StoreWrites):
    """Moving on."""

    def expect_position(self, old: StreamPosition | None, new: StreamPosition) -> None:
        """Replace ``old`` by ``new``, provided that ``old`` still stands there.

        ``new`` may lie before ``old``: a topic that was made anew starts again.

        Args:
            old: what this reader went on from; None if the partition had never been read.
            new: the same partition, further on.

        Raises:
            LostPartitionError: something else stands there; another reader has the partition.
        """
        place = (new.cluster, new.topic, new.partition)
        if old is None:
            statement = (
                self._database.insert(positions)
                .values(
                    cluster=new.cluster,
                    topic=new.topic,
                    partition=new.partition,
                    next_offset=new.offset,
                    fingerprint=new.fingerprint,
                )
                .on_conflict_do_nothing()
            )
            moved = self._connection.execute(statement).rowcount
        else:
            if (old.cluster, old.topic, old.partition) != place:
                raise ValueError(f"{old} and {new} are not of one partition")
            moved = self._connection.execute(
                sa.update(positions)
                .where(
                    positions.c.cluster == old.cluster,
                    positions.c.topic == old.topic,
                    positions.c.partition == old.partition,
                    positions.c.next_offset == old.offset,
                    positions.c.fingerprint == old.fingerprint,
                )
                .values(next_offset=new.offset, fingerprint=new.fingerprint)
            ).rowcount
        if moved != 1:
            raise LostPartitionError(
                f"{new.topic}[{new.partition}]: expected to go on from "
                f"{'the beginning' if old is None else old.offset}, but another reader has moved on"
            )


def _position(row: sa.Row[Any]) -> StreamPosition:
    return StreamPosition(row.cluster, row.topic, row.partition, row.next_offset, row.fingerprint)
