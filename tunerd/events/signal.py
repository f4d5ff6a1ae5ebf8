"""A signal record of the contract: one number of one signal at one time.

:class:`SignalEvent` is the one source: msgspec checks a record against it, and ``tunerd schema
signal`` prints it. Records come in on the jobs topic, beside job events.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tunerd.core.study.signals import signal_name
from tunerd.events.job import Note, Time, TimeLimits, out_of_time
from tunerd.events.reasons import LABEL_NAME, MAX_LABEL_NAME, MOST_LABELS, why_no_signal
from tunerd.events.rejection import Rejection
from tunerd.events.values import first_unstorable

__all__ = [
    "SIGNAL_SCHEMA",
    "SignalEvent",
    "SignalPoint",
    "is_signal",
    "read_signal",
    "signal_schema",
]

SIGNAL_SCHEMA: Literal["tunerd.signal/1"] = "tunerd.signal/1"
LARGEST = 1e100
LONGEST = 1_024
"""Bytes of a written name. An index of PostgreSQL holds no text of more than some 2,700: one such
record would keep all others out."""


LabelName = Annotated[str, Meta(pattern=rf"^{LABEL_NAME}(?!\n)$", max_length=MAX_LABEL_NAME)]


class SignalEvent(Struct, frozen=True, kw_only=True, gc=False):
    """A number over time, such as requests a second of a service. Fields that are not named here
    are ignored. A second record of the same signal and time is a duplicate: the first one stays."""

    schema: Annotated[Literal["tunerd.signal/1"], Meta(description="Name and major version.")]
    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z_:][A-Za-z0-9_:.]*(?!\n)$",
            max_length=200,
            description="What is measured, as Prometheus names metrics: `rps`.",
        ),
    ]
    labels: Annotated[
        Annotated[dict[LabelName, Note], Meta(max_length=MOST_LABELS)] | None,
        Meta(description='Of what: `{"service": "search"}`.'),
    ] = None
    time: Annotated[
        Time, Meta(description="RFC 3339 with a zone; not far ahead of now, nor ancient.")
    ]
    value: Annotated[
        float, Meta(ge=-LARGEST, le=LARGEST, description="The number; its unit is the sender's.")
    ]


class SignalPoint(Struct, frozen=True, gc=False):
    """What is kept of a signal record."""

    signal: str
    """Written name: ``rps{service="search"}``."""
    time: datetime
    value: float


def is_signal(content: Mapping[str, Any]) -> bool:
    """Whether a decoded record is a signal's, or would be if nothing were wrong with it."""
    schema = content.get("schema")
    return isinstance(schema, str) and schema.startswith("tunerd.signal/")


def read_signal(
    content: Mapping[str, Any], now: datetime, limits: TimeLimits
) -> SignalPoint | Rejection:
    """The point in a decoded record, or why there is none. Never raises on bad input."""
    try:
        event = msgspec.convert(content, SignalEvent)
    except (msgspec.ValidationError, RecursionError) as error:
        return why_no_signal(content, str(error))
    if fault := first_unstorable({"labels": event.labels or {}}):
        return fault
    if fault := out_of_time("time", event.time, now, limits):
        return fault
    name = signal_name(event.name, event.labels or {})
    if len(name.encode()) > LONGEST:
        return Rejection("labels", f"name and labels take more than {LONGEST:,} bytes")
    return SignalPoint(name, event.time.astimezone(UTC), event.value)


def signal_schema() -> dict[str, Any]:
    """JSON Schema of the signal record, version 1."""
    return msgspec.json.schema(SignalEvent)
