"""A request: somebody wants to know what to launch in a context, before a job has run there."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tunerd.core.observation import Value
from tunerd.core.saved_state import FrozenState

__all__ = ["AdviceRequest", "RequestAnswer", "RequestOutcome"]


class RequestOutcome(StrEnum):
    """What came of a request."""

    PUBLISHED = "published"
    """A new recommendation went out."""
    RENEWED = "renewed"
    """What schedulers follow already was said once more, for longer."""
    OBSERVED = "observed"
    """The study only observes: the recommendation is kept for those who look."""
    PENDING = "pending"
    """The recommendation waits for a person's approval."""
    NOTHING = "nothing"
    """There is nothing to say; the reason says why."""


class RequestAnswer(FrozenState, frozen=True, kw_only=True):
    """What came of a request, and where the recommendation is."""

    outcome: RequestOutcome
    context_key: str
    reason: str
    """For a person."""
    revision: int | None = None
    """Of the message on the topic that answers; None where none went out."""
    recommendation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """One question. Unique by source and event id."""

    study: str
    source: str
    event_id: str
    context: Mapping[str, Value]
    """As it was sent: what the study cannot use counts as missing, as in a job."""
    requested_at: datetime | None = None
    """When it was asked, where the sender says so."""
    user: str | None = None
    content_hash: str = ""
