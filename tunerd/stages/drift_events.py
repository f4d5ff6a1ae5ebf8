"""Telling of drift: a line in the log, and an event on its topic by way of the outbox."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from tunerd.core.decisions.drift_consequences import DriftConsequences
from tunerd.core.drift.alarms import DriftUpdate
from tunerd.core.drift.monitor import DriftMonitor
from tunerd.core.study import Study
from tunerd.events.drift import drift_event, to_bytes
from tunerd.stages.recommendations import LogEvent
from tunerd.store import OutboxMessage, Transaction

__all__ = ["drifting", "tell_drift", "told"]


def tell_drift(
    tx: Transaction,
    study: Study,
    changes: Sequence[DriftUpdate],
    after: DriftConsequences,
    topic: str,
    now: datetime,
) -> list[LogEvent]:
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
            LogEvent(
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


def told(changes: Iterable[DriftUpdate]) -> dict[str, int]:
    """Drifts that began or grew, by kind."""
    return dict(Counter(update.drift.kind for update in changes if update.phase != "over"))


def drifting(watch: DriftMonitor) -> dict[str, int]:
    """Drifts that are not over, by kind."""
    return dict(Counter(recovery.drift.kind for recovery in watch.active))
