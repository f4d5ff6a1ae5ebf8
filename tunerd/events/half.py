"""Half an event of a job: what one of several senders knows of an attempt.

A scheduler knows how a job was launched and how it ended, a trainer how fast it was. Each sends
what it knows; :mod:`tunerd.events.joining` makes one whole event of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from tunerd.events.job import (
    JOB_SCHEMA,
    Entries,
    Id,
    Name,
    Note,
    Plain,
    Plains,
    Time,
    TimeLimits,
    content_hash,
    finite_metrics,
    out_of_time,
)
from tunerd.events.reasons import MAX_INT32, why_no_half
from tunerd.events.rejection import MAX_EVENT_BYTES, Rejection
from tunerd.events.values import MAX_INTEGER, first_unstorable

__all__ = [
    "AttemptKey",
    "HalfEvent",
    "JobHalf",
    "cluster_in",
    "half_schema",
    "is_half",
    "read_half",
]

HalfType = Literal["started", "reported", "completed"]
Ending = Literal[
    "succeeded", "out_of_memory", "failed", "timeout", "cancelled", "preempted", "node_failure"
]


class HalfEvent(Struct, frozen=True, kw_only=True, gc=False):
    """What one sender knows of an attempt. Unknown fields are kept. At most 256 KiB."""

    schema: Annotated[Literal["tunerd.job/1"], Meta(description="Name and major version.")]
    type: Annotated[
        HalfType | None,
        Meta(
            description="`started`: how it was launched; `reported`: what was measured so far; "
            "`completed`, the default: how it ended."
        ),
    ] = "completed"
    partial: Annotated[
        bool | None,
        Meta(
            description="True for a `completed` half that has a context or a configuration; "
            "without either it is a half anyway."
        ),
    ] = None
    source: Annotated[
        Note | None,
        Meta(description="Who sends, e.g. `slurm/cluster-a`, `torch/cluster-a`."),
    ] = ""
    cluster: Annotated[
        Note | None,
        Meta(
            description="Where job ids are unique; halves are joined within it. By default what "
            "follows the first `/` of `source`, or all of a source without one; nothing after "
            "it is the cluster without a name."
        ),
    ] = None
    event_id: Annotated[
        Id,
        Meta(
            description="Unique within source, type and attempt: the same id with the same content "
            "is dropped as a duplicate, with other content it is rejected as a conflict."
        ),
    ]
    study: Annotated[
        Id | None, Meta(description="Study that learns from this job; one half has to say it.")
    ] = None
    job_id: Annotated[
        Id, Meta(description="The scheduler's name for the job, e.g. `123`, `123_4` or `123+1`.")
    ]
    attempt: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(description="Counts the job's restarts, from 1; a requeue is an attempt of its own."),
    ] = 1
    status: Annotated[
        Ending | None, Meta(description="How the job ended; `completed` needs it.")
    ] = None
    submitted_at: Annotated[Time | None, Meta(description="RFC 3339 with a zone.")] = None
    started_at: Annotated[Time | None, Meta(description="RFC 3339 with a zone.")] = None
    reported_at: Annotated[
        Time | None, Meta(description="When this was measured, RFC 3339 with a zone.")
    ] = None
    finished_at: Annotated[
        Time | None,
        Meta(description="RFC 3339 with a zone; `completed` needs it. Limits as of a whole event."),
    ] = None
    steps: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | None,
        Meta(description="Steps of training that the metrics were measured over."),
    ] = None
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
        Annotated[dict[Name, Plain | Plains], Entries] | None,
        Meta(description="What the job brought and nobody tunes, as far as this sender knows."),
    ] = None
    config: Annotated[
        Annotated[dict[Name, Plain | Plains], Entries] | None,
        Meta(description="What it was launched with, as far as this sender knows."),
    ] = None
    metrics: Annotated[
        Annotated[dict[Name, float | None], Entries] | None,
        Meta(description="What was measured since the attempt began; `reported` needs it."),
    ] = None
    recommendation_id: Annotated[
        Note | None, Meta(description="Of the recommendation that was followed.")
    ] = None
    candidate_id: Annotated[Note | None, Meta(description="Of the candidate that was chosen.")] = (
        None
    )
    labels: Annotated[
        dict[str, Plain] | None, Meta(description="Anything else worth keeping with the job.")
    ] = None
    history: Annotated[bool | None, Meta(description="As in a whole event.")] = None


class AttemptKey(NamedTuple):
    """What halves are joined by."""

    cluster: str
    job_id: str
    attempt: int


class JobHalf(Struct, frozen=True, gc=False):
    """A half that can be joined."""

    key: AttemptKey
    type: HalfType
    source: str
    event_id: str
    study: str | None
    at: str
    """When, in UTC, as text that sorts; empty where the half does not say."""
    steps: int
    """-1 where it does not say."""
    fields: Mapping[str, Any]
    """What it says of the attempt, as it was sent; nothing that is null."""
    content_hash: str


_NAMES_ONE = frozenset(
    {"schema", "type", "partial", "source", "cluster", "event_id", "job_id", "attempt"}
)
"""Fields that say which half this is, and nothing of the attempt."""
_OF_THE_END = frozenset({"status", "finished_at"})
_WHEN: Mapping[HalfType, str] = {
    "started": "started_at",
    "reported": "reported_at",
    "completed": "finished_at",
}
_FIELDS = frozenset(HalfEvent.__struct_fields__)


def is_half(content: Mapping[str, Any]) -> bool:
    """Whether a decoded job event is a half, or would be if nothing were wrong with it."""
    if content.get("type") in ("started", "reported") or content.get("partial") is True:
        return True
    return content.get("context") is None and content.get("config") is None


def read_half(content: Mapping[str, Any], now: datetime, limits: TimeLimits) -> JobHalf | Rejection:
    """The half in a decoded job event, or why there is none. Never raises on bad input."""
    try:
        event = msgspec.convert(content, HalfEvent)
    except (msgspec.ValidationError, RecursionError) as error:
        finite = finite_metrics(content)
        if finite is not None:
            return read_half(finite, now, limits)
        return why_no_half(content, str(error))
    kind = event.type or "completed"
    unknown = {name: value for name, value in content.items() if name not in _FIELDS}
    fault = _missing(kind, event) or (first_unstorable(unknown) if unknown else None)
    if fault is not None:
        return fault
    when = getattr(event, _WHEN[kind])
    if when is not None:
        limits = replace(limits, max_age=None) if event.history else limits
        if (fault := out_of_time(_WHEN[kind], when, now, limits)) is not None:
            return fault
    left_out = _NAMES_ONE if kind == "completed" else _NAMES_ONE | _OF_THE_END
    return JobHalf(
        key=AttemptKey(cluster_in(event), event.job_id, event.attempt or 1),
        type=kind,
        source=event.source or "",
        event_id=event.event_id,
        study=event.study,
        at="" if when is None else when.astimezone(UTC).isoformat(timespec="microseconds"),
        steps=-1 if event.steps is None else event.steps,
        fields={
            name: value
            for name, value in content.items()
            if value is not None and name not in left_out
        },
        content_hash=content_hash(content),
    )


def cluster_in(event: HalfEvent) -> str:
    """Where the job ids of a half are unique."""
    if event.cluster:
        return event.cluster
    source = event.source or ""
    _, slash, cluster = source.partition("/")
    # `slurm/` is what a cluster without a name sends, and `trainer/` is of the same one.
    return cluster if slash else source


def _missing(kind: HalfType, event: HalfEvent) -> Rejection | None:
    if kind == "completed":
        for name in ("status", "finished_at"):
            if getattr(event, name) is None:
                return why_no_half({"schema": JOB_SCHEMA}, f"required field `{name}`")
    if kind == "reported" and event.metrics is None:
        return Rejection("metrics", "is missing; a 'reported' half says what was measured")
    return None


def half_schema() -> dict[str, Any]:
    """JSON Schema of half a job event, version 1."""
    comment = f"The whole event has at most {MAX_EVENT_BYTES:,} bytes, what is joined too."
    return {"$comment": comment, **msgspec.json.schema(HalfEvent)}
