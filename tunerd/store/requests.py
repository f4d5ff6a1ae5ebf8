"""What was asked: each request once, until it is answered and a while longer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.core.request import AdviceRequest, RequestAnswer
from tunerd.store.access import StoreReads, StoreWrites, chunks
from tunerd.store.json_text import from_json, text_problem, to_json, whole_json
from tunerd.store.tables import requests, studies

__all__ = ["InsertedRequests", "RequestReads", "RequestRow", "RequestWrites"]

_CHUNK = 300
"""Requests of a statement."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request as it was kept, and what came of it."""

    id: int
    """In the order in which they came in."""
    request: AdviceRequest
    received_at: datetime
    answered_at: datetime | None
    answer: RequestAnswer | None


@dataclass(frozen=True, slots=True)
class InsertedRequests:
    """What became of a batch."""

    fresh: tuple[int, ...]
    """Ids of the new ones."""
    duplicates: int
    """How many were known already, with the same content; dropped."""
    conflicts: tuple[AdviceRequest, ...]
    """Those whose id is known with other content; not kept."""


# A tuner asks before each step, idle or not. Most of the price was to make the statement anew.
_WAITING = (
    sa.select(requests.c.study, sa.func.count().label("waiting"))
    .where(requests.c.answered_at.is_(None))
    .group_by(requests.c.study)
)


class RequestReads(StoreReads):
    """Looking at requests."""

    def requests(self, study: str | None = None, *, limit: int = 1000) -> list[RequestRow]:
        """Those that wait for an answer, the oldest first."""
        statement = (
            sa.select(requests)
            .where(requests.c.answered_at.is_(None))
            .order_by(requests.c.id)
            .limit(limit)
        )
        if study is not None:
            statement = statement.where(requests.c.study == study)
        with self._reading() as connection:
            return list(map(_row, connection.execute(statement)))

    def requests_waiting(self) -> dict[str, int]:
        """How many wait for an answer, by study."""
        with self._reading() as connection:
            return {row.study: row.waiting for row in connection.execute(_WAITING)}

    def request(self, number: int) -> RequestRow | None:
        """One request; None where there is none of this number."""
        statement = sa.select(requests).where(requests.c.id == number)
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
            return None if row is None else _row(row)


class RequestWrites(RequestReads, StoreWrites):
    """Asking and answering."""

    def add_requests(self, batch: Sequence[AdviceRequest], now: datetime) -> InsertedRequests:
        """Keep what is new.

        Raises:
            LookupError: the store has no such study.
            ValueError: a request holds what the store cannot keep; events are validated before
                they come here.
        """
        if not batch:
            return InsertedRequests((), 0, ())
        for request in batch:
            texts = (
                request.study,
                request.source,
                request.event_id,
                request.user or "",
                request.content_hash,
            )
            if problem := text_problem(texts):
                raise ValueError(f"request {request.event_id!r} of {request.source!r} {problem}")
        # Two instances that lock the same studies cannot wait in a circle: in the order of names.
        names = sorted({request.study for request in batch})
        known = self._connection.execute(
            sa.select(studies.c.name)
            .where(studies.c.name.in_(names))
            .order_by(studies.c.name)
            .with_for_update(key_share=True)
        ).scalars()
        if missing := set(names).difference(known):
            raise LookupError(f"study {min(missing)!r} is not in the store; publish it first")
        fresh: list[int] = []
        conflicts: list[AdviceRequest] = []
        contents = self._contents(batch)
        for request in batch:
            event = request.source, request.event_id
            number = None if event in contents else self._add(request, now)
            if number is not None:
                fresh.append(number)
                contents[event] = request.content_hash
                continue
            if event not in contents:  # another instance has just added it
                contents |= self._contents([request])
            if contents.get(event) != request.content_hash:
                conflicts.append(request)
        duplicates = len(batch) - len(fresh) - len(conflicts)
        return InsertedRequests(tuple(fresh), duplicates, tuple(conflicts))

    def answer_request(self, number: int, answer: RequestAnswer, now: datetime) -> None:
        """Say what came of a request; the first answer stays."""
        self._connection.execute(
            sa.update(requests)
            .where(requests.c.id == number, requests.c.answered_at.is_(None))
            .values(answered_at=now, answer=to_json(answer.dump(), "an answer"))
        )

    def prune_requests(self, study: str, before: datetime) -> int:
        """Drop those that were answered before a time; returns how many. One that comes again
        later counts as new, and is answered again."""
        return self._connection.execute(
            sa.delete(requests).where(
                requests.c.study == study,
                requests.c.answered_at.is_not(None),
                requests.c.answered_at < before,
            )
        ).rowcount

    def _add(self, one: AdviceRequest, now: datetime) -> int | None:
        statement = (
            self._database.insert(requests)
            .values(
                study=one.study,
                source=one.source,
                event_id=one.event_id,
                content_hash=one.content_hash,
                username=one.user,
                context=to_json(one.context, "a context"),
                requested_at=one.requested_at,
                received_at=now,
            )
            .on_conflict_do_nothing(index_elements=["source", "event_id"])
            .returning(requests.c.id)
        )
        number = self._connection.execute(statement).scalar_one_or_none()
        return None if number is None else int(number)

    def _contents(self, batch: Sequence[AdviceRequest]) -> dict[tuple[str, str], str]:
        """The content of those that are known, by source and id: what is asked again and again
        costs a statement, not two each."""
        events = sa.tuple_(requests.c.source, requests.c.event_id)
        contents: dict[tuple[str, str], str] = {}
        for part in chunks(batch, _CHUNK):
            wanted = [(request.source, request.event_id) for request in part]
            statement = sa.select(
                requests.c.source, requests.c.event_id, requests.c.content_hash
            ).where(events.in_(wanted))
            for source, event_id, content in self._connection.execute(statement):
                contents[source, event_id] = content
        return contents


def _row(row: sa.Row[Any]) -> RequestRow:
    return RequestRow(
        id=row.id,
        request=AdviceRequest(
            study=row.study,
            source=row.source,
            event_id=row.event_id,
            context=whole_json(row.context, f"request {row.event_id!r}", {}),
            requested_at=row.requested_at,
            user=row.username,
            content_hash=row.content_hash,
        ),
        received_at=row.received_at,
        answered_at=row.answered_at,
        answer=None if row.answer is None else RequestAnswer.load(from_json(row.answer)),
    )
