"""What has to be sent: written with the work that it follows from, settled once it is sent.

A message is settled when the broker has it (``sent``), or when a newer revision of its
recommendation took its place before it was sent (``superseded``). Settled rows stay a while for
people to look at, and are pruned in small pieces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites, chunks
from tunerd.store.engine import Database
from tunerd.store.json_text import context_id, to_json, whole_json
from tunerd.store.tables import outbox

__all__ = ["OutboxDepth", "OutboxMessage", "OutboxReads", "OutboxWrites"]

_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message for an output topic."""

    kind: str
    """``recommendation``, ``plan``, ``rejected``: for metrics and people."""
    message_id: str
    """The same when the same message is sent again."""
    topic: str
    key: bytes | None
    value: bytes | None
    """None is a tombstone."""
    headers: tuple[tuple[str, bytes], ...] = ()
    study: str | None = None
    context_key: str | None = None
    """With the study: an unsent message for the same pair is superseded by this one."""
    revision: int | None = None
    created_at: datetime
    id: int = 0
    """Order of sending; given by the store."""


@dataclass(frozen=True, slots=True)
class OutboxDepth:
    """How much of a kind waits, and since when."""

    unsent: int
    oldest_at: datetime


# An idle daemon asks several times a second. Most of the price was to make the statement anew.
_UNSENT_SIZES = (
    sa.select(outbox.c.id, sa.func.coalesce(sa.func.length(outbox.c.value), 0))
    .where(outbox.c.settled_at.is_(None))
    .order_by(outbox.c.id)
    .limit(sa.bindparam("limit"))
)


class OutboxReads(StoreReads):
    """Looking into the outbox."""

    def unsent(self, limit: int, max_bytes: int = 8 * 2**20) -> list[OutboxMessage]:
        """The next messages to send, in order: at most ``limit``, and at most ``max_bytes`` of
        values (but always one), so that a flood of rejected records cannot fill the memory."""
        with self._reading() as connection:
            ids: list[int] = []
            for number, size in connection.execute(_UNSENT_SIZES, {"limit": limit}):
                max_bytes -= size
                if ids and max_bytes < 0:
                    break
                ids.append(number)
            if not ids:
                return []
            statement = (
                sa.select(outbox)
                .where(outbox.c.settled_at.is_(None), outbox.c.id.between(ids[0], ids[-1]))
                .order_by(outbox.c.id)
            )
            return list(map(_message, connection.execute(statement)))

    def outbox_depths(self) -> dict[str, OutboxDepth]:
        """What waits to be sent, by kind."""
        statement = (
            sa.select(outbox.c.kind, sa.func.count(), sa.func.min(outbox.c.created_at))
            .where(outbox.c.settled_at.is_(None))
            .group_by(outbox.c.kind)
        )
        with self._reading() as connection:
            return {
                kind: OutboxDepth(count, oldest)
                for kind, count, oldest in connection.execute(statement)
            }


class OutboxWrites(OutboxReads, StoreWrites):
    """Filling the outbox and emptying it."""

    def __init__(self, database: Database, connection: sa.Connection) -> None:
        super().__init__(database, connection)
        self._studies_locked: set[str] = set()

    def enqueue(self, *messages: OutboxMessage) -> None:
        """Put messages into the outbox; they go out in this order.

        Unsent older ones for the same study and context key are superseded: a reader of a
        compacted topic has no use for them.
        """
        newest: dict[tuple[str, str], OutboxMessage] = {}
        for message in messages:
            if message.study is not None and message.context_key is not None:
                newest[message.study, message.context_key] = message
        for ids in self._unsent_of(newest):
            self._settle(ids, "superseded", messages[-1].created_at)
        if messages:
            rows = [_row(message, _successor(message, newest)) for message in messages]
            self._connection.execute(sa.insert(outbox), rows)

    def mark_sent(self, ids: Sequence[int], now: datetime) -> None:
        """Settle messages that the broker has acknowledged."""
        for chunk in chunks(ids, _CHUNK):
            self._lock_rows(outbox.c.id.in_(chunk))
            self._settle(chunk, "sent", now)

    def prune_outbox(self, before: datetime, limit: int = 1000) -> int:
        """Delete at most ``limit`` messages that were settled before a time; returns how many."""
        old = (
            sa.select(outbox.c.id)
            .where(outbox.c.settled_at.is_not(None), outbox.c.settled_at < before)
            .order_by(outbox.c.settled_at)
            .limit(limit)
        )
        return self._connection.execute(sa.delete(outbox).where(outbox.c.id.in_(old))).rowcount

    def _unsent_of(self, pairs: Iterable[tuple[str, str]]) -> Iterator[list[int]]:
        """Ids of what waits for these studies and context keys."""
        wanted = [(study, context_id(context_key)) for study, context_key in pairs]
        self._lock_studies({study for study, _ in wanted})
        for chunk in map(set, chunks(wanted, _CHUNK)):
            rows = self._connection.execute(
                sa.select(outbox.c.id, outbox.c.study, outbox.c.context_id).where(
                    outbox.c.settled_at.is_(None),
                    outbox.c.study.in_({study for study, _ in chunk}),
                    outbox.c.context_id.in_({context for _, context in chunk}),
                )
            )
            if ids := [row.id for row in rows if (row.study, row.context_id) in chunk]:
                yield ids

    def _lock_studies(self, studies: set[str]) -> None:
        """Take all that waits of a study before the first is superseded: context by context, tune
        would take them in another order than publish, and the two could wait for each other."""
        new = studies - self._studies_locked
        if new:
            self._studies_locked |= new
            self._lock_rows(outbox.c.settled_at.is_(None), outbox.c.study.in_(new))

    def _lock_rows(self, *where: sa.ColumnElement[bool]) -> None:
        """Take rows in the order of ids, as everybody does."""
        statement = sa.select(outbox.c.id).where(*where).order_by(outbox.c.id).with_for_update()
        self._connection.execute(statement).all()

    def _settle(self, ids: Sequence[int], outcome: str, at: datetime) -> None:
        self._connection.execute(
            sa.update(outbox).where(outbox.c.id.in_(ids)).values(settled_at=at, outcome=outcome)
        )


def _successor(
    message: OutboxMessage, newest: Mapping[tuple[str, str], OutboxMessage]
) -> OutboxMessage | None:
    """What takes the place of a message before it is even stored; None as a rule."""
    if message.study is None or message.context_key is None:
        return None
    last = newest[message.study, message.context_key]
    return None if last is message else last


def _row(message: OutboxMessage, successor: OutboxMessage | None) -> dict[str, object]:
    return {
        "kind": message.kind,
        "message_id": message.message_id,
        "topic": message.topic,
        "key": message.key,
        "value": message.value,
        # Header values are bytes, which msgspec writes as base64.
        "headers": to_json(message.headers, "headers"),
        "study": message.study,
        "context_id": None if message.context_key is None else context_id(message.context_key),
        "context_key": message.context_key,
        "revision": message.revision,
        "created_at": message.created_at,
        "settled_at": successor and successor.created_at,
        "outcome": successor and "superseded",
    }


def _message(row: sa.Row[Any]) -> OutboxMessage:
    return OutboxMessage(
        kind=row.kind,
        message_id=row.message_id,
        topic=row.topic,
        key=None if row.key is None else bytes(row.key),
        value=None if row.value is None else bytes(row.value),
        headers=_headers(row),
        study=row.study,
        context_key=row.context_key,
        revision=row.revision,
        created_at=row.created_at,
        id=row.id,
    )


def _headers(row: sa.Row[Any]) -> tuple[tuple[str, bytes], ...]:
    headers = whole_json(row.headers, f"headers of message {row.message_id!r}", [])
    try:
        return msgspec.convert(headers, tuple[tuple[str, bytes], ...])
    except msgspec.ValidationError:
        return ()
