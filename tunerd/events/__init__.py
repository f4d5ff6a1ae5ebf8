"""Events in, recommendations out: what the messages mean, apart from how they travel.

A record from the jobs topic becomes an observation, half of one, a signal's point or a rejection
in :func:`read_job`, one from the requests topic a request or a rejection in :func:`read_request`.
An event may come wrapped in another format; each format is one file that recognises its records and
unwraps them to the event of the contract, and one line in :data:`FORMATS`. Formats that a settings
file describes (:mod:`tunerd.events.mapping`) are asked before these.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from tunerd.core.observation import Observation
from tunerd.core.request import AdviceRequest
from tunerd.events import cloudevents, kubernetes, mlflow, ray, sacct, slurm, wandb
from tunerd.events.half import HalfEvent, JobHalf, half_schema, is_half, read_half
from tunerd.events.job import JobEvent, TimeLimits, job_schema, read_content
from tunerd.events.reasons import conflict, unknown_study
from tunerd.events.recommendation import from_bytes, recommendation_schema, to_bytes
from tunerd.events.rejection import (
    MAX_EVENT_BYTES,
    RejectedRecord,
    Rejection,
    kib,
    original_headers,
    rejected_record,
)
from tunerd.events.request import RequestEvent, read_request_content, request_schema
from tunerd.events.signal import SignalEvent, SignalPoint, is_signal, read_signal, signal_schema
from tunerd.events.values import decode_object

__all__ = [
    "FORMATS",
    "EventFormat",
    "HalfEvent",
    "JobEvent",
    "JobHalf",
    "RejectedRecord",
    "Rejection",
    "RequestEvent",
    "SignalEvent",
    "SignalPoint",
    "TimeLimits",
    "conflict",
    "format_of",
    "from_bytes",
    "half_schema",
    "job_schema",
    "original_headers",
    "read_job",
    "read_request",
    "recommendation_schema",
    "rejected_record",
    "request_schema",
    "signal_schema",
    "to_bytes",
    "unknown_study",
]

Headers = Sequence[tuple[str, bytes]]


class EventFormat(Protocol):
    """A way to wrap an event. Neither method raises, whatever the record holds."""

    @property
    def name(self) -> str:
        """What `tunerd map` calls it."""
        ...

    def recognises(self, content: dict[str, Any], headers: dict[str, bytes]) -> bool:
        """Whether this decoded record is in this format; header names are in lower case."""
        ...

    def unwrap(
        self, content: dict[str, Any], headers: dict[str, bytes]
    ) -> dict[str, Any] | Rejection:
        """The event inside, in the form of the contract."""
        ...


FORMATS: tuple[EventFormat, ...] = (
    cloudevents.BinaryMode(),
    cloudevents.StructuredMode(),
    slurm.SlurmJobcomp(),
    sacct.SacctJob(),
    sacct.SacctRow(),
    kubernetes.KubernetesState(),
    ray.RayJob(),
    ray.RayResult(),
    mlflow.MlflowRun(),
    wandb.WandbRun(),
)
"""The first that recognises a record unwraps it; one that none does is the plain event."""

DEFAULT_LIMITS = TimeLimits()


def read_job(
    value: bytes | None,
    headers: Headers,
    now: datetime,
    limits: TimeLimits = DEFAULT_LIMITS,
    size: int | None = None,
    mappings: Sequence[EventFormat] = (),
) -> Observation | JobHalf | SignalPoint | Rejection:
    """What a record of the jobs topic says. Never raises, whatever the bytes are.

    `now` has a zone; `size` is the original one in bytes of a record that the stream cut short.
    `mappings` are formats that are asked before :data:`FORMATS`. The study need not exist: see
    :func:`unknown_study`.
    """
    content = _content(value, headers, size, "a job event", mappings)
    if isinstance(content, Rejection):
        return content
    if is_signal(content):
        return read_signal(content, now, limits)
    return (read_half if is_half(content) else read_content)(content, now, limits)


def format_of(
    value: bytes, headers: Headers = (), mappings: Sequence[EventFormat] = ()
) -> str | None:
    """In which format a record is: one of `mappings` or :data:`FORMATS` by name, `event` for the
    plain one of the contract, None for what is none of these."""
    content = decode_object(value)
    if isinstance(content, Rejection):
        return None
    named = {name.lower(): text for name, text in headers}
    names = (form.name for form in (*mappings, *FORMATS) if form.recognises(content, named))
    return next(names, "event" if "schema" in content else None)


def read_request(
    value: bytes | None,
    headers: Headers,
    now: datetime,
    limits: TimeLimits = DEFAULT_LIMITS,
    size: int | None = None,
) -> AdviceRequest | Rejection:
    """What a record of the requests topic asks. As :func:`read_job`."""
    content = _content(value, headers, size, "a request")
    return content if isinstance(content, Rejection) else read_request_content(content, now, limits)


def _content(
    value: bytes | None,
    headers: Headers,
    size: int | None,
    what: str,
    mappings: Sequence[EventFormat] = (),
) -> dict[str, Any] | Rejection:
    """The event in a record, out of whatever it is wrapped in."""
    if value is None:
        return Rejection("value", f"is missing (a tombstone); {what} is a JSON object")
    original = len(value) if size is None else size
    if original > MAX_EVENT_BYTES:
        return Rejection("value", f"{kib(original)} is more than {kib(MAX_EVENT_BYTES)}")
    content = decode_object(value)
    if isinstance(content, Rejection):
        return content
    named = {name.lower(): text for name, text in headers} if headers else {}
    for form in (*mappings, *FORMATS):
        if form.recognises(content, named):
            return form.unwrap(content, named)
    return content
