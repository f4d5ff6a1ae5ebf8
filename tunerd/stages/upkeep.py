"""Upkeep of the recommendations topic: a live key that others overwrote or lost is said again.

A broker can lose what it held (a topic that was deleted and made anew, a retention that deletes),
and others may write to it. What holds is in the store, and would come back with each context's
next revision, in days.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from tunerd.errors import StoreBehindError
from tunerd.stages.plans import send_plans_again
from tunerd.stages.topic_check import why_behind
from tunerd.store import OutboxMessage, RecommendationRow, Store
from tunerd.streams.base import CompactedTable, LastValue, Stream, digest_of

__all__ = ["TopicRepair", "message_of"]

AGAIN_AFTER = timedelta(minutes=10)
"""When a key is said once more that was said again and still is not what the topic says: whoever
writes with a clock that is ahead stays the latest."""


def message_of(row: RecommendationRow, topic: str, now: datetime) -> OutboxMessage:
    """What was published of a context, to be sent once more with the same id."""
    return OutboxMessage(
        kind="recommendation",
        message_id=row.recommendation_id,
        topic=topic,
        key=row.context_key.encode(),
        value=row.value.encode(),
        study=row.study,
        context_key=row.context_key,
        revision=row.revision,
        created_at=now,
    )


@dataclass
class TopicRepair:
    """Compares the store with the topic, and fills the outbox with what is not there."""

    store: Store
    table: CompactedTable
    topic: str
    now: Callable[[], datetime]
    why_behind: Callable[[], str | None]
    """Why the store must not go on; None where it knows all that was published."""
    _answered: dict[bytes, tuple[int, LastValue | None, datetime]] = field(default_factory=dict)
    """By key: which revision was said again, against what on the topic, and when."""
    _due: set[bytes] = field(default_factory=set)
    """Keys that the topic said something of since they were compared."""
    _all_due: bool = True

    @classmethod
    def of(
        cls, stream: Stream, store: Store, topic: str, now: Callable[[], datetime]
    ) -> "TopicRepair | None":
        """That of a stream; None where only this daemon writes to it."""
        table = stream.table(topic)
        if table is None:
            return None
        return cls(store, table, topic, now, partial(why_behind, store, stream, topic))

    def step(self) -> int:
        """Have said again what holds and is not on the topic. Returns how many keys that are.

        Raises StreamUnavailableError, StoreUnavailableError, and StoreBehindError where the topic
        says something else because it is the store that lost something.
        """
        now = self.now()
        self._read()
        self._due |= {key for key, (_, _, at) in self._answered.items() if at <= now - AGAIN_AFTER}
        if not self._due and not self._all_due:
            return 0
        rows = [row for row in self._rows() if _stands(row, now)]
        # Of what was there before this, nothing is on its way any more.
        if rows and "recommendation" in self.store.outbox_depths():
            return 0
        self._all_due = False
        self._due.clear()
        there = self._read()
        lost = [row for row in rows if self._is_news(row, there.get(row.context_key.encode()))]
        if not lost:
            return 0
        self._all_due = True  # until it is committed
        overwritten = [row for row in lost if _says_something(there.get(row.context_key.encode()))]
        if overwritten and (problem := self.why_behind()):
            raise StoreBehindError(problem)
        with self.store.transaction() as tx:
            # A later revision may have been made meanwhile; the lock keeps others from coming.
            same = [
                row
                for row in lost
                if tx.next_revision(row.study, row.context_key) == row.revision + 1
                and tx.recommendation(row.study, row.context_key) == row
            ]
            tx.enqueue(*(message_of(row, self.topic, now) for row in same))
            for study in {row.study for row in same}:
                send_plans_again(tx, study)
        self._all_due = False
        for row in same:
            key = row.context_key.encode()
            self._answered[key] = row.revision, there.get(key), now
        return len(same)

    def _read(self) -> Mapping[bytes, LastValue]:
        """Read on, and remember what has to be compared: all of it would be much every time."""
        there = self.table.refresh()
        if self.table.changed is None:
            self._all_due = True
        else:
            self._due |= self.table.changed
        return there

    def _rows(self) -> list[RecommendationRow]:
        """What the store has for the keys that have to be compared."""
        studies = [study.name for study in self.store.studies()]
        if self._all_due:
            states = ["active", "withdrawn"]
            return [r for name in studies for r in self.store.recommendations(name, states=states)]
        keys = [key.decode(errors="replace") for key in sorted(self._due)]
        rows = [
            self.store.recommendation(key.partition("|")[0], key)
            for key in keys
            if key.partition("|")[0] in studies
        ]
        return [row for row in rows if row is not None]

    def close(self) -> None:
        """Let go of the topic."""
        self.table.close()

    def _is_news(self, row: RecommendationRow, there: LastValue | None) -> bool:
        """Whether the topic says something else, and was not answered for just that already."""
        key = row.context_key.encode()
        if row.state == "withdrawn" and (there is None or there.digest is None):
            return False  # nothing is recommended, and nothing is said
        if there is not None and there.digest == digest_of(row.value.encode()):
            self._answered.pop(key, None)
            return False
        revision, against, at = self._answered.get(key, (0, None, self.now() - AGAIN_AFTER))
        return (revision, against) != (row.revision, there) or at <= self.now() - AGAIN_AFTER


def _says_something(there: LastValue | None) -> bool:
    return there is not None and there.digest is not None


def _stands(row: RecommendationRow, now: datetime) -> bool:
    """Whether a row is what the topic should say: no proposal, not over, its key not freed."""
    published = row.state == "active" or (row.state == "withdrawn" and row.renew_at is not None)
    return published and row.valid_until > now
