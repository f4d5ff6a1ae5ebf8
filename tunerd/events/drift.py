"""The drift event (``tunerd.drift/1``): jobs no longer are as they were, or are again.

One event when a drift begins, one each time it grows, one when it is over; the key is the study's
name, so that a reader has a study's events in order. ``event_id`` is the same when the same event
is sent again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tunerd.core.decisions.drift_consequences import DriftConsequences
from tunerd.core.drift.alarms import Drift, DriftUpdate
from tunerd.core.observation import Scalar, Value
from tunerd.core.study import Study
from tunerd.events.printable import printable

__all__ = [
    "DriftEvent",
    "IncumbentReplacement",
    "JobReference",
    "RemeasureRequest",
    "drift_event",
    "drift_schema",
    "shift_event",
    "to_bytes",
    "words",
]

MOST_SHOWN = 60
"""Characters of a value in a sentence; the event has all of it as ``value``."""
MOST_NAME = 200
"""Likewise of a signal's name."""


class JobReference(msgspec.Struct, frozen=True, kw_only=True):
    """One of the study's jobs."""

    sequence: Annotated[
        int, Meta(description="Its number within the study's history; 0 for `signal`.")
    ]
    finished_at: Annotated[
        datetime,
        Meta(description="When it finished. For `signal` there is no job, only this time."),
    ]


class IncumbentReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """An incumbent that a change made slow, and that gave way to a measured alternative."""

    context_key: Annotated[str, Meta(description="Where.")]
    config: Annotated[Mapping[str, Value], Meta(description="What it was.")]
    before: Annotated[float, Meta(description="Objective that it gave before the change.")]
    now: Annotated[float, Meta(description="Objective that it gave since.")]
    sequence: Annotated[int, Meta(description="Job that decided it.")]


class RemeasureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Configurations that were measured before a change and are being run again."""

    context_key: Annotated[str, Meta(description="Where.")]
    configs: Annotated[tuple[Mapping[str, Value], ...], Meta(description="The likelier first.")]


class DriftEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A drift that began, grew, or is over."""

    schema: Annotated[Literal["tunerd.drift/1"], Meta(description="Version of this format.")]
    event_id: Annotated[str, Meta(description="The same when the same event is sent again.")]
    drift_id: Annotated[str, Meta(description="The same in all events of one drift.")]
    study: Annotated[str, Meta(description="Name of the study.")]
    phase: Annotated[
        Literal["began", "grew", "over"],
        Meta(
            description="`grew`: it was known, and the alarm rose again. For `speed` and `ranks` it"
            " then tells of the later change, which may be the way back."
        ),
    ]
    kind: Annotated[
        Literal["speed", "ranks", "inputs", "failures", "signal"],
        Meta(
            description="What no longer is as it was: how fast jobs are; which configurations are"
            " the fast ones; which jobs come; how many fail; a signal, which keeps to one side of"
            " what was foreseen."
        ),
    ]
    context_keys: Annotated[
        tuple[str, ...], Meta(description="Contexts that it acts on; empty for the whole study.")
    ]
    feature: Annotated[str | None, Meta(description="Of the context, for `inputs` and `signal`.")]
    parameter: Annotated[
        str | None,
        Meta(description="For `ranks` the one whose effect changed most; for `inputs` its values."),
    ]
    value: Annotated[
        Scalar, Meta(description="For `inputs`: a value never seen before; null for other shares.")
    ]
    size: Annotated[
        float | None,
        Meta(
            description="For `speed`: change of the objective, −0.2 is 20 % worse; null where it"
            " lies on both sides of 0: the message says it in its unit. For `inputs` and"
            " `failures`: by how much the share of jobs changed."
        ),
    ]
    since: Annotated[JobReference, Meta(description="First job that it is believed to act on.")]
    noticed: Annotated[JobReference, Meta(description="Job that gave this event away.")]
    acted: Annotated[
        bool, Meta(description="Whether tunerd makes a new model and widens its bands for it.")
    ]
    message: Annotated[str, Meta(description="The same for people.")]
    given_up: Annotated[
        tuple[IncumbentReplacement, ...],
        Meta(description="For `speed` and `ranks`: incumbents that gave way since, so far."),
    ] = ()
    asked_again: Annotated[
        tuple[RemeasureRequest, ...],
        Meta(description="For `speed` and `ranks`: what candidates ask again at this moment."),
    ] = ()
    signal: Annotated[str | None, Meta(description="Written name, for `signal`.")] = None


def drift_event(
    study: Study, change: DriftUpdate, after: DriftConsequences | None = None
) -> DriftEvent:
    """The event that says what the watch found, and what came ``after`` it so far."""
    drift = change.drift
    known = after if after is not None and drift.of_speed else DriftConsequences()
    if change.phase == "over":
        known = DriftConsequences(known.given_up)
    return DriftEvent(
        schema="tunerd.drift/1",
        event_id=f"{drift.drift_id}/{change.phase}/{change.at}",
        drift_id=drift.drift_id,
        study=study.name,
        phase=change.phase,
        kind=drift.kind,
        context_keys=drift.contexts,
        feature=drift.feature,
        parameter=drift.parameter,
        value=drift.value,
        size=_size(study, drift),
        since=JobReference(sequence=drift.since, finished_at=drift.since_at),
        noticed=JobReference(sequence=change.at, finished_at=change.at_time),
        acted=drift.of_speed and study.drift.act,
        message=" ".join([words(study, change), *known.words(study, drift.contexts, drift.since)]),
        given_up=tuple(
            IncumbentReplacement(
                context_key=number.context_key,
                config=number.config,
                before=study.metric_value(number.before),
                now=study.metric_value(number.now),
                sequence=number.sequence,
            )
            for number in known.given_up
            if number.sequence >= drift.since and drift.concerns(number.context_key)
        ),
        asked_again=tuple(
            RemeasureRequest(context_key=key, configs=tuple(configs))
            for key, configs in known.asked.items()
            if drift.concerns(key)
        ),
    )


def shift_event(
    study: str,
    signal: str,
    phase: Literal["began", "grew", "over"],
    *,
    began_s: float,
    noticed_s: float,
    up: bool,
    feature: str | None,
    context_keys: Sequence[str],
    foreseen: bool = True,
) -> DriftEvent:
    """The event that says that a signal is at another level than was foreseen.

    Args:
        study: name.
        signal: written name.
        phase: whether it begins, moves again, or is over.
        began_s: when it was noticed first, in seconds since 1970.
        noticed_s: when this was noticed.
        up: whether it is above what was foreseen.
        feature: of the context, which the signal fills in.
        context_keys: of the contexts that meet the signal, without it.
        foreseen: whether it is foreseen still.
    """
    digest = hashlib.sha256(repr((study, signal, began_s)).encode()).hexdigest()
    drift_id = f"drift-{digest[:16]}"
    began, noticed = (datetime.fromtimestamp(at_s, UTC) for at_s in (began_s, noticed_s))
    name = printable(signal if len(signal) <= MOST_NAME else signal[: MOST_NAME - 1] + "…")
    message = f"{name} stays {'above' if up else 'below'} its forecast"
    match phase:
        case "began":
            message += f", noticed {noticed:%Y-%m-%d %H:%M}."
        case "grew":
            message += f" since {began:%Y-%m-%d %H:%M}; it moved again by {noticed:%Y-%m-%d %H:%M}."
        case "over":
            message += (
                ": over. It has been as foreseen for a day."
                if foreseen
                else (": over. No context of the study has it foreseen any more.")
            )
    return DriftEvent(
        schema="tunerd.drift/1",
        event_id=f"{drift_id}/{phase}/{noticed_s:.0f}",
        drift_id=drift_id,
        study=study,
        phase=phase,
        kind="signal",
        context_keys=tuple(context_keys),
        feature=feature,
        parameter=None,
        value=None,
        size=None,
        since=JobReference(sequence=0, finished_at=began),
        noticed=JobReference(sequence=0, finished_at=noticed),
        acted=False,
        message=message,
        signal=signal,
    )


def words(study: Study, change: DriftUpdate) -> str:
    """What the watch found, in a sentence."""
    drift = change.drift
    since = f"since job {drift.since}, {drift.since_at:%Y-%m-%d %H:%M}"
    if change.phase == "over":
        return f"{_what(study, drift)}: over. {change.why}"
    grew = ""
    if change.phase == "grew":
        grew = f"; it {'changed again, seen' if drift.of_speed else 'grew'} with job {change.at}"
    return f"{_what(study, drift)}, {since}{grew}."


def _what(study: Study, drift: Drift) -> str:
    where = _where(drift)
    if drift.kind == "speed":
        return f"{_how(study, drift)} {where}"
    if drift.kind == "ranks":
        return f"What {drift.parameter} did for speed is no longer so"
    if drift.kind == "failures":
        more = _size(study, drift)
        size = f", by {more:.0%} of all" if more is not None and more > 0 else ""
        return f"More jobs fail than they should {where}{size}"
    name = drift.feature or drift.parameter
    if drift.value is not None:
        return f"Jobs with {name} = {_shown(drift.value)}, which there never were"
    return f"Other jobs than there were, by {name}"


def _how(study: Study, drift: Drift) -> str:
    if drift.moved is None:
        return "Another speed"
    size = _size(study, drift)
    if size is None:
        metric, unit = study.objective.metric, study.objective.unit
        return f"{metric} {_better(drift.moved)} by {abs(drift.moved):.4g} {unit}".rstrip()
    return f"{abs(size):.0%} {_better(size)}"


def _shown(value: Scalar) -> str:
    text = str(value)
    return printable(text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…")


def _where(drift: Drift) -> str:
    if not drift.contexts:
        return "in the whole study"
    if len(drift.contexts) <= 3:
        return f"in {', '.join(drift.contexts)}"
    return f"in {len(drift.contexts)} contexts"


def _better(size: float) -> str:
    return "better" if size > 0 else "worse"


def _size(study: Study, drift: Drift) -> float | None:
    """Relative change of the objective; better is positive, whatever the goal."""
    if drift.moved is None or drift.kind == "ranks":
        return None
    if drift.kind != "speed":
        return round(drift.moved, 4)
    if study.objective.scale == "log":
        return round(study.gain(drift.moved, 0.0), 4)
    return round(study.gain(drift.level + drift.moved, drift.level), 4) if drift.level else None


_ENCODER = msgspec.json.Encoder()


def to_bytes(event: DriftEvent) -> bytes:
    """JSON, fields in the declared order."""
    return _ENCODER.encode(event)


def drift_schema() -> dict[str, Any]:
    """JSON Schema of the drift event, version 1."""
    return msgspec.json.schema(DriftEvent)
