"""Telling of drift: a line in the log, and an event on its topic by way of the outbox."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from tunerd.core.decisions.after_change import AfterChange
from tunerd.core.drift.found import Change
from tunerd.core.drift.watch import Watch
from tunerd.core.study import Study
from tunerd.events.drift import drift_event, to_bytes
from tunerd.stages.recommended import Line
from tunerd.store import OutboxMessage, Transaction

__all__ = ["drifting", "tell_drift", "told"]


def tell_drift(
    tx: Transaction,
    study: Study,
    changes: Sequence[Change],
    after: AfterChange,
    topic: str,
    now: datetime,
) -> list[Line]:
    """Put what was found, and what came after it, into the outbox; returns what is to be logged."""
    lines = []
    for change in changes:
        event = drift_event(study, change, after)
        tx.enqueue(
            OutboxMessage(
                kind="drift",
                message_id=event.event_id,
                topic=topic,
                key=study.name.encode(),
                value=to_bytes(event),
                study=study.name,
                created_at=now,
            )
        )
        lines.append(
            Line(
                "drift",
                {
                    "phase": event.phase,
                    "kind": event.kind,
                    "drift_id": event.drift_id,
                    "message": event.message,
                },
            )
        )
    return lines


def told(changes: Iterable[Change]) -> dict[str, int]:
    """Drifts that began or grew, by kind."""
    return dict(Counter(one.drift.kind for one in changes if one.phase != "over"))


def drifting(watch: Watch) -> dict[str, int]:
    """Drifts that are not over, by kind."""
    return dict(Counter(one.drift.kind for one in watch.active))
