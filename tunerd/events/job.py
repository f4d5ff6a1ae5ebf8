"""The job event of the contract: from a JSON object to an observation, or the reason why not.

:class:`JobEvent` is the one source: msgspec checks an event against it at C speed, and
``tunerd schema job`` prints it. Only an event that it refuses pays for words
(:mod:`tunerd.events.reasons`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tunerd.core.observation import Observation, Status
from tunerd.events.reasons import (
    MAX_ENTRIES,
    MAX_INT32,
    MAX_NAME,
    MAX_TEXT,
    why_invalid,
)
from tunerd.events.rejection import MAX_EVENT_BYTES, Rejection
from tunerd.events.values import MAX_INTEGER, MIN_INTEGER, first_unstorable

__all__ = [
    "JOB_SCHEMA",
    "Entries",
    "Id",
    "JobEvent",
    "Name",
    "Note",
    "Plain",
    "Plains",
    "Time",
    "TimeLimits",
    "content_hash",
    "finite_metrics",
    "job_schema",
    "out_of_time",
    "read_content",
]

JOB_SCHEMA: Literal["tunerd.job/1"] = "tunerd.job/1"

Id = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Note = Annotated[str, Meta(max_length=MAX_NAME)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Whole = Annotated[int, Meta(ge=MIN_INTEGER, le=MAX_INTEGER)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Time = Annotated[datetime, Meta(tz=True)]
Plain = bool | Whole | float | Text | None
Plains = Annotated[list[Plain], Meta(max_length=MAX_ENTRIES)]
Entries = Meta(max_length=MAX_ENTRIES)


class JobEvent(Struct, frozen=True, kw_only=True, gc=False):
    """A finished job. Fields that are not named here are kept and ignored. At most 256 KiB."""

    schema: Annotated[Literal["tunerd.job/1"], Meta(description="Name and major version.")]
    type: Annotated[
        Literal["completed"] | None,
        Meta(description="`started` and `reported` are halves: see the schema `half`."),
    ] = "completed"
    source: Annotated[
        Note | None,
        Meta(description="Who sends, e.g. `slurm/cluster-a`; event ids are unique in it."),
    ] = ""
    event_id: Annotated[
        Id,
        Meta(
            description="Unique within the source: the same id with the same content is dropped "
            "as a duplicate, with other content it is rejected as a conflict."
        ),
    ]
    study: Annotated[Id, Meta(description="Name of the study that learns from this job.")]
    job_id: Annotated[Id, Meta(description="The scheduler's name for the job.")]
    attempt: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(description="Counts the job's restarts, from 1."),
    ] = 1
    status: Annotated[Status, Meta(description="How the job ended.")]
    submitted_at: Annotated[Time | None, Meta(description="RFC 3339 with a zone.")] = None
    started_at: Annotated[Time | None, Meta(description="RFC 3339 with a zone.")] = None
    finished_at: Annotated[
        Time,
        Meta(
            description="RFC 3339 with a zone; must not be ahead of now, nor ancient unless the "
            "job is `history`."
        ),
    ]
    measured_s: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Seconds of training that the metrics were measured over."),
    ] = None
    gpus: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INT32)] | None,
        Meta(description="Accelerators that the job held."),
    ] = None
    user: Annotated[Note | None, Meta(description="Whose job it was.")] = None
    nodes: Annotated[list[str] | None, Meta(description="Hosts that it ran on.")] = None
    context: Annotated[
        dict[Name, Plain | Plains],
        Entries,
        Meta(description="What the job brought and nobody tunes."),
    ]
    config: Annotated[
        dict[Name, Plain | Plains],
        Entries,
        Meta(description="A value for each parameter; a list for a `repeat` parameter."),
    ]
    metrics: Annotated[
        Annotated[dict[Name, float | None], Entries] | None,
        Meta(description="What was measured, in the study's units; null is missing."),
    ] = None
    recommendation_id: Annotated[
        Note | None, Meta(description="Of the recommendation that the scheduler followed.")
    ] = None
    candidate_id: Annotated[Note | None, Meta(description="Of the candidate that it chose.")] = None
    labels: Annotated[
        dict[str, Plain] | None, Meta(description="Anything else worth keeping with the job.")
    ] = None
    history: Annotated[
        bool | None,
        Meta(
            description="An old job, as `tunerd import` sends them: it may be of any age, it is "
            "learned, and it does not count in how well tunerd does."
        ),
    ] = False


_KEPT_RAW = {"submitted_at", "started_at", "nodes", "labels"}
_FIELDS = frozenset(JobEvent.__struct_fields__)
_WITH_A_HOME = _FIELDS - _KEPT_RAW

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How far an event's time may lie from now; None is any distance."""

    max_future: timedelta | None = timedelta(hours=24)
    max_age: timedelta | None = timedelta(days=365)


def read_content(
    content: Mapping[str, Any], now: datetime, limits: TimeLimits
) -> Observation | Rejection:
    """The observation in a decoded job event, or why there is none. Never raises on bad input.

    `now` has a zone. The content hash covers everything that the sender wrote, unknown fields
    included, but neither white space nor the order of keys.
    """
    try:
        event = msgspec.convert(content, JobEvent)
    except (msgspec.ValidationError, RecursionError) as error:
        finite = finite_metrics(content)
        return (
            why_invalid(content, str(error))
            if finite is None
            else read_content(finite, now, limits)
        )
    if event.status is Status.RUNNING:
        return why_invalid(content, "")
    extra: dict[str, Any] = {}
    if not content.keys() <= _WITH_A_HOME:
        extra = {name: content[name] for name in content.keys() - _WITH_A_HOME}
        unknown = {name: value for name, value in extra.items() if name not in _FIELDS}
        if unknown and (fault := first_unstorable(unknown)) is not None:
            return fault
    limits = replace(limits, max_age=None) if event.history else limits
    if (fault := out_of_time("finished_at", event.finished_at, now, limits)) is not None:
        return fault
    metrics = event.metrics or {}
    return Observation(
        study=event.study,
        source=event.source or "",
        event_id=event.event_id,
        job_id=event.job_id,
        status=event.status,
        finished_at=event.finished_at.astimezone(UTC),
        context=event.context,
        config=event.config,
        metrics={name: value for name, value in metrics.items() if value is not None},
        attempt=event.attempt or 1,
        measured_s=event.measured_s,
        gpus=event.gpus,
        user=event.user or None,
        recommendation_id=event.recommendation_id or None,
        candidate_id=event.candidate_id or None,
        history=event.history or False,
        extra=extra,
        content_hash=content_hash(content),
    )


_NO_NUMBERS = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "-infinity"})


def finite_metrics(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """The event with metrics that are the word NaN or inf as missing; ``None`` if none is."""
    metrics = content.get("metrics")
    if not isinstance(metrics, dict):
        return None
    words = {
        name
        for name, value in metrics.items()
        if isinstance(value, str) and value.strip().lower() in _NO_NUMBERS
    }
    if not words:
        return None
    kept = {name: None if name in words else value for name, value in metrics.items()}
    return {**content, "metrics": kept}


def content_hash(content: Mapping[str, Any]) -> str:
    """What tells a duplicate of an event from a conflict with it."""
    return "sha256:" + hashlib.sha256(_encode(content)).hexdigest()


def out_of_time(field: str, at: datetime, now: datetime, limits: TimeLimits) -> Rejection | None:
    """Why an event's time cannot be right; None where it can be."""
    try:
        at.astimezone(UTC)
    except OverflowError:
        return Rejection(field, "is outside the years 1 to 9999 in UTC")
    age = now - at
    if limits.max_future is not None and -age > limits.max_future:
        return Rejection(
            field,
            f"{at.isoformat()} is more than {_span(limits.max_future)} ahead of now, "
            f"{now.isoformat(timespec='seconds')}; check the sender's clock and zone",
        )
    if limits.max_age is not None and age > limits.max_age:
        return Rejection(
            field,
            f"{at.isoformat()} is more than {_span(limits.max_age)} before now, "
            f"{now.isoformat(timespec='seconds')}",
        )
    return None


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:g} days" if hours > 48 else f"{hours:g} hours"


def job_schema() -> dict[str, Any]:
    """JSON Schema of the job event, version 1."""
    comment = f"The whole event has at most {MAX_EVENT_BYTES:,} bytes."
    schema = msgspec.json.schema(JobEvent)
    schema["$defs"]["Status"]["enum"].remove(Status.RUNNING)
    return {"$comment": comment, **schema}
