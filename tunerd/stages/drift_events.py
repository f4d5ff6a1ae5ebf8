"""Telling of drift: a line in the log, and an event on its topic by way of the outbox."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from tunerd.core.decisions.drift_consequences import DriftConsequences
from tunerd.core.drift.alarms import DriftUpdate
from tunerd.core.drift.monitor import DriftMonitor
from tunerd.core.study import Study
from tunerd.events.drift import DriftEvent, drift_event, shift_event, to_bytes
from tunerd.stages.recommendations import LogEvent
from tunerd.store import OutboxMessage, Transaction

__all__ = ["SignalAlarm", "drifting", "follow_shift", "follow_shifts", "tell", "tell_drift", "told"]

SHIFT_S = 86_400.0
"""A signal's level shift is over so long after the last alarm."""
AGAIN_S = 6 * 3600.0
"""No two alarms lie so near to each other."""


def tell_drift(
    tx: Transaction,
    study: Study,
    changes: Sequence[DriftUpdate],
    after: DriftConsequences,
    topic: str,
    now: datetime,
) -> list[LogEvent]:
    """Put what was found, and what came after it, into the outbox; returns what is to be logged."""
    return [tell(tx, drift_event(study, change, after), topic, now) for change in changes]


def tell(tx: Transaction, event: DriftEvent, topic: str, now: datetime) -> LogEvent:
    """Put an event into the outbox; returns what is to be logged."""
    tx.enqueue(
        OutboxMessage(
            kind="drift",
            message_id=event.event_id,
            topic=topic,
            key=event.study.encode(),
            value=to_bytes(event),
            study=event.study,
            created_at=now,
        )
    )
    return LogEvent(
        "drift",
        {
            "phase": event.phase,
            "kind": event.kind,
            "drift_id": event.drift_id,
            "message": event.message,
        },
    )


@dataclass
class SignalAlarm:
    """What a forecaster says of its signal's level, and which contexts meet the signal."""

    feature: str
    at_s: float
    """When it gave the alarm last; before all time where it never did."""
    up: bool
    """Whether the signal was above its forecast then."""
    context_keys: list[str] = field(default_factory=list)


def follow_shifts(
    study: str,
    kept: Mapping[str, Mapping[str, Any]],
    alarms: Mapping[str, SignalAlarm],
    now_s: float,
) -> tuple[dict[str, dict[str, Any]], list[DriftEvent]]:
    """The level shifts of a study's signals as they are kept from now on, and what has to be told.

    A shift is its signal's, whichever contexts meet that. One that nothing foresees any more gives
    no alarm, and so its shift is over after a day, too.

    Args:
        study: name.
        kept: shifts as they were kept, by signal.
        alarms: of all signals that are foreseen now.
        now_s: seconds since 1970.
    """
    shifts: dict[str, dict[str, Any]] = {}
    events: list[DriftEvent] = []
    for signal in dict.fromkeys([*alarms, *kept]):
        alarm = alarms.get(signal)
        at_s, up = (alarm.at_s, alarm.up) if alarm else (-math.inf, False)
        shift, phase = follow_shift(kept.get(signal), at_s, up, now_s)
        if shift is None:
            continue
        if alarm is not None:
            shift |= {"feature": alarm.feature, "context_keys": alarm.context_keys}
        if phase != "over":
            shifts[signal] = shift
        if phase is not None:
            events.append(shift_event(study, signal, phase, foreseen=alarm is not None, **shift))
    return shifts, events


def follow_shift(
    kept: Mapping[str, Any] | None, shifted_s: float, up: bool, now_s: float
) -> tuple[dict[str, Any] | None, Literal["began", "grew", "over"] | None]:
    """A signal's level shift as it is kept from now on, unless it is over; and the phase that has
    to be told.

    Args:
        kept: as it was kept; None where there was none, or it is over.
        shifted_s: when the forecaster gave the alarm last; a forecaster that was made anew gives an
            alarm again, perhaps at a slightly other time.
        up: whether the signal was above its forecast then.
    """
    if now_s - shifted_s < SHIFT_S and (kept is None or shifted_s > kept["noticed_s"] + AGAIN_S):
        began_s = kept["began_s"] if kept else shifted_s
        return {"began_s": began_s, "noticed_s": shifted_s, "up": up}, "grew" if kept else "began"
    if kept is not None and now_s - max(kept["noticed_s"], shifted_s) >= SHIFT_S:
        return dict(kept), "over"
    return None if kept is None else dict(kept), None


def told(changes: Iterable[DriftUpdate]) -> dict[str, int]:
    """Drifts that began or grew, by kind."""
    return dict(Counter(update.drift.kind for update in changes if update.phase != "over"))


def drifting(watch: DriftMonitor) -> dict[str, int]:
    """Drifts that are not over, by kind."""
    return dict(Counter(recovery.drift.kind for recovery in watch.active))
