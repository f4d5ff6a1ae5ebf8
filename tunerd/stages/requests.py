"""Requests: from the requests topic into the store, where the tune stage finds and answers them.

It reads as ingest does: one transaction takes a batch's requests, its rejections and the new
positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tunerd import telemetry
from tunerd.core.request import AdviceRequest
from tunerd.events import Rejection, TimeLimits, read_request
from tunerd.stages.halves import JoinedBatch
from tunerd.stages.ingest import BatchOutcome, IngestStage
from tunerd.store import Transaction
from tunerd.streams.base import StreamRecord

__all__ = ["RequestStage"]


@dataclass
class RequestStage(IngestStage):
    """The stage. A thread of its own: a question must not wait behind a backlog of jobs."""

    name: str = "requests"

    @property
    def topic(self) -> str:
        """Where the records are."""
        return self.topics.requests

    def read(
        self, record: StreamRecord, now: datetime, limits: TimeLimits
    ) -> AdviceRequest | Rejection:
        """What a record says."""
        return read_request(record.value, record.headers, now, limits, record.size)

    def take(
        self,
        tx: Transaction,
        study: str,  # noqa: ARG002
        events: Sequence[Any],
        now: datetime,
    ) -> BatchOutcome:
        """Keep what is new of one study's requests."""
        asked = tx.add_requests(events, now)
        return BatchOutcome(len(asked.fresh), asked.duplicates, asked.conflicts)

    def tidy(self) -> None:
        """Answered ones are forgotten by whoever answers."""

    def report(
        self,
        accepted: dict[str, int],
        duplicates: int,
        rejected: dict[str, int],
        halves: JoinedBatch,  # noqa: ARG002 - a question has none
    ) -> telemetry.RequestsIngested:
        """What to say of a batch."""
        return telemetry.RequestsIngested(
            accepted=accepted, duplicates=duplicates, rejected=rejected, seconds=0.0
        )
