"""The request of the contract: from a JSON object to a question, or the reason why not.

:class:`RequestEvent` is the one source: msgspec checks an event against it, and ``tunerd schema
request`` prints it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tunerd.core.request import AdviceRequest
from tunerd.events.job import (
    Entries,
    Id,
    Name,
    Note,
    Plain,
    Plains,
    Time,
    TimeLimits,
    content_hash,
    out_of_time,
)
from tunerd.events.reasons import why_no_request
from tunerd.events.rejection import MAX_EVENT_BYTES, Rejection
from tunerd.events.values import first_unstorable

__all__ = ["REQUEST_SCHEMA", "RequestEvent", "read_request_content", "request_schema"]

REQUEST_SCHEMA: Literal["tunerd.request/1"] = "tunerd.request/1"


class RequestEvent(Struct, frozen=True, kw_only=True, gc=False):
    """A question: what should be launched in this context? The answer is the recommendation under
    the context's key. Fields that are not named here are ignored. At most 256 KiB."""

    schema: Annotated[Literal["tunerd.request/1"], Meta(description="Name and major version.")]
    source: Annotated[
        Note | None,
        Meta(description="Who asks, e.g. `slurm/cluster-a`; event ids are unique in it."),
    ] = ""
    event_id: Annotated[
        Id,
        Meta(
            description="Unique within the source: the same id with the same content is dropped "
            "as a duplicate, with other content it is rejected as a conflict."
        ),
    ]
    study: Annotated[Id, Meta(description="Name of the study that answers.")]
    requested_at: Annotated[
        Time | None,
        Meta(
            description="RFC 3339 with a zone; must not be ahead of now, nor ancient. The time "
            "at which it came in by default."
        ),
    ] = None
    user: Annotated[Note | None, Meta(description="Who wants to know.")] = None
    context: Annotated[
        dict[Name, Plain | Plains],
        Entries,
        Meta(description="What the job will bring and nobody tunes, as in its event."),
    ]
    labels: Annotated[dict[str, Plain] | None, Meta(description="Anything; nothing reads it.")] = (
        None
    )


def read_request_content(
    content: Mapping[str, Any], now: datetime, limits: TimeLimits
) -> AdviceRequest | Rejection:
    """The question in a decoded request, or why there is none. Never raises on bad input.

    `now` has a zone. The content hash covers everything that the sender wrote.
    """
    try:
        event = msgspec.convert(content, RequestEvent)
    except (msgspec.ValidationError, RecursionError) as error:
        return why_no_request(content, str(error))
    unknown = {k: v for k, v in content.items() if k not in RequestEvent.__struct_fields__}
    if unknown and (fault := first_unstorable(unknown)) is not None:
        return fault  # its hash could not be told from another's
    asked = event.requested_at
    if asked is not None and (fault := out_of_time("requested_at", asked, now, limits)):
        return fault
    return AdviceRequest(
        study=event.study,
        source=event.source or "",
        event_id=event.event_id,
        context=event.context,
        requested_at=None if asked is None else asked.astimezone(UTC),
        user=event.user or None,
        content_hash=content_hash(content),
    )


def request_schema() -> dict[str, Any]:
    """JSON Schema of the request, version 1."""
    comment = f"The whole event has at most {MAX_EVENT_BYTES:,} bytes."
    return {"$comment": comment, **msgspec.json.schema(RequestEvent)}
