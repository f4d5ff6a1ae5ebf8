"""What one study has said to the schedulers, and how it says something new.

The life of a recommendation (DESIGN): issued when there is news, renewed at half of its validity,
withdrawn when its context or study ends, when nothing is feasible any more, or when an operator
pauses it; a withdrawn key is freed a week later. A proposal is what was only observed, or waits
for approval; it lives beside what runs. Everything goes through the outbox, in the transaction of
the step that decided it.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from tunerd.core.decisions.context_state import UNREADABLE
from tunerd.core.decisions.lifecycle import FREE_KEY_AFTER
from tunerd.core.evidence.prequential import AdvisedRecommendation
from tunerd.core.recommendation import Recommendation, State
from tunerd.core.study import Study
from tunerd.events import from_bytes, to_bytes
from tunerd.store import OutboxMessage, RecommendationRow, Transaction

__all__ = ["LogEvent", "RecommendationRegistry", "StepReport"]

log = logging.getLogger(__name__)

PROPOSED = ("observed", "pending")
"""States of a row that holds a proposal and nothing else."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Something that an operator cares about."""

    event: str
    detail: dict[str, Any]
    wrong: bool = False
    """Whether it is a fault of tunerd's own."""


@dataclass
class StepReport:
    """What a step put into the outbox."""

    issued: int = 0
    renewed: int = 0
    withdrawn: int = 0
    suggested: int = 0
    candidates: Counter[str] = field(default_factory=Counter)
    issued_for: set[str] = field(default_factory=set)
    """Context keys for which something new was published."""
    answered: Counter[str] = field(default_factory=Counter)
    """Requests by outcome."""
    waited_s: list[float] = field(default_factory=list)
    """Seconds from each answered request's coming in."""
    lines: list[LogEvent] = field(default_factory=list)


@dataclass
class RecommendationRegistry:
    """The recommendations of one study, in memory as in the store."""

    study: Study
    topic: str
    rows: dict[str, RecommendationRow] = field(default_factory=dict)
    """What the topic holds or is about to, and proposals, by context key."""
    running: dict[str, Recommendation] = field(default_factory=dict)
    """What schedulers follow: published and active."""
    proposed: dict[str, Recommendation] = field(default_factory=dict)
    """What was observed, or waits for approval."""
    revisions: dict[str, int] = field(default_factory=dict)
    """Last revision by context key; never restarts."""

    @classmethod
    def load(
        cls, study: Study, topic: str, rows: Sequence[RecommendationRow]
    ) -> "RecommendationRegistry":
        """Build from what the store has."""
        made = cls(study, topic)
        for row in rows:
            made.revisions[row.context_key] = row.revision
            try:
                made._take(row)
            except UNREADABLE as error:  # it is said anew, with the next revision
                log.error("recommendation for %r is damaged: %s", row.context_key, error)
        return made

    def _take(self, row: RecommendationRow) -> None:
        key = row.context_key
        proposal = row.proposal or (row.value if row.state in PROPOSED else None)
        running = from_bytes(row.value.encode()) if row.state == State.ACTIVE else None
        proposed = None if proposal is None else from_bytes(proposal.encode())
        if running is not None:
            self.running[key] = running
        if proposed is not None:
            self.proposed[key] = proposed
        if row.renew_at is not None or proposal is not None:
            self.rows[key] = row

    def followed(self, key: str) -> Recommendation | None:
        """What this study's schedulers, or those who only look, have in hand. What a study
        published before it only observed is about to be withdrawn."""
        if self.study.mode == "observe":
            return self.proposed.get(key)
        proposed = None if self.study.mode == "publish" else self.proposed.get(key)
        return proposed or self.running.get(key)

    def advised(self, key: str) -> AdvisedRecommendation | None:
        """What a job of a context is judged beside: what schedulers follow, else what they would
        have in hand."""
        published = key in self.running
        recommendation = self.running.get(key) or self.proposed.get(key)
        return None if recommendation is None else AdvisedRecommendation(recommendation, published)

    def next_revision(self, key: str) -> int:
        """Of the next message for a context key."""
        return self.revisions.get(key, 0) + 1

    def publish(self, tx: Transaction, recommendation: Recommendation, said: StepReport) -> None:
        """Put a recommendation into the outbox; schedulers follow it from now on."""
        key = recommendation.context_key
        half = (recommendation.valid_until - recommendation.issued_at) / 2
        self.proposed.pop(key, None)
        self._send(tx, recommendation, renew_at=recommendation.issued_at + half)
        self.running[key] = recommendation
        said.issued += 1
        said.issued_for.add(key)
        said.candidates.update(c.kind.value for c in recommendation.candidates)
        said.lines.append(LogEvent("recommended", _summary(recommendation)))

    def propose(self, tx: Transaction, recommendation: Recommendation, said: StepReport) -> None:
        """Say it to those who look, and publish nothing."""
        key = recommendation.context_key
        self.proposed[key] = recommendation
        text = to_bytes(recommendation).decode()
        state = self._waits
        row = self.rows.get(key)
        if row is not None and row.state not in PROPOSED:
            row = replace(row, proposal=text)
        else:
            row = RecommendationRow(
                study=self.study.name,
                context_key=key,
                revision=self.revisions.get(key, 0),
                recommendation_id=recommendation.recommendation_id,
                state=state,
                value=text,
                issued_at=recommendation.issued_at,
                valid_until=recommendation.valid_until,
            )
        self._keep(tx, row)
        said.suggested += 1
        said.candidates.update(c.kind.value for c in recommendation.candidates)
        event = "would recommend" if state == "observed" else "waits for approval"
        said.lines.append(LogEvent(event, _summary(recommendation)))

    def follow_mode(self, tx: Transaction) -> None:
        """The study's mode may have changed: what was observed waits for approval now, and the
        other way round."""
        for key in sorted(self.proposed):
            row = self.rows[key]
            if row.state in PROPOSED and row.state != self._waits:
                self._keep(tx, replace(row, state=self._waits))

    @property
    def _waits(self) -> str:
        """State of a row that holds a proposal and nothing else."""
        return "observed" if self.study.mode == "observe" else "pending"

    def drop(
        self, tx: Transaction, key: str, state: Literal["declined", "dropped", "withdrawn"]
    ) -> None:
        """Take a proposal back; as withdrawn where the study knows the context no longer, so that
        it is told of no more. What runs beside it goes on."""
        self.proposed.pop(key)
        row = self.rows[key]
        if row.state in PROPOSED:
            self._keep(tx, replace(row, state=state))
            del self.rows[key]
        else:
            self._keep(tx, replace(row, proposal=None))

    def keep_up(
        self,
        tx: Transaction,
        lapsed: Sequence[RecommendationRow],
        alive: set[str],
        outlived: str,
        now: datetime,
        said: StepReport,
    ) -> None:
        """Renew what is half over, free old keys, and withdraw what is for contexts that are no
        longer ``alive``, with the reason ``outlived``."""
        for row in lapsed:
            running = self.running.get(row.context_key)
            if row.context_key not in self.rows:
                continue  # it is damaged
            if row.state == State.WITHDRAWN and running is None:
                self._free(tx, row, now)
            elif running is None or running.revision != row.revision:
                continue  # this very step said something newer
            elif row.context_key not in alive:
                self.withdraw(tx, row.context_key, outlived, now, said)
            else:
                self.renew(tx, row.context_key, now, said)

    def renew(self, tx: Transaction, key: str, now: datetime, said: StepReport) -> None:
        """Say what runs once more, for longer."""
        running = self.running[key]
        valid = running.valid_until - running.issued_at
        renewed = running.renewed(
            revision=self.next_revision(key), issued_at=now, valid_until=now + valid
        )
        self._send(tx, renewed, renew_at=now + valid / 2)
        self.running[key] = renewed
        said.renewed += 1

    def refuse(
        self, tx: Transaction, empty: Recommendation, reason: str, now: datetime, said: StepReport
    ) -> None:
        """Tell who asked about a context where nothing runs that there is nothing to say: a
        withdrawal of nothing, with the reason."""
        message = empty.withdrawn(revision=empty.revision, issued_at=now, reason=reason)
        self._send(tx, message, renew_at=now + FREE_KEY_AFTER)
        said.lines.append(
            LogEvent("nothing to say", {"context": empty.context_key, "reason": reason})
        )

    def withdraw(
        self, tx: Transaction, key: str, reason: str, now: datetime, said: StepReport
    ) -> None:
        """Take a recommendation back, with the reason."""
        running = self.running.pop(key)
        withdrawn = running.withdrawn(
            revision=self.next_revision(key), issued_at=now, reason=reason
        )
        self._send(tx, withdrawn, renew_at=now + FREE_KEY_AFTER)
        said.withdrawn += 1
        said.lines.append(LogEvent("withdrawn", {"context": key, "reason": reason}))

    def _free(self, tx: Transaction, row: RecommendationRow, now: datetime) -> None:
        """Send the null value, which frees the key on the compacted topic."""
        tx.enqueue(self._message(row.context_key, f"{row.recommendation_id}/null", None, None, now))
        freed = replace(self.rows[row.context_key], renew_at=None)
        self._keep(tx, freed)
        if freed.proposal is None:
            del self.rows[row.context_key]

    def _send(self, tx: Transaction, recommendation: Recommendation, renew_at: datetime) -> None:
        key, raw = recommendation.context_key, to_bytes(recommendation)
        self.revisions[key] = recommendation.revision
        proposal = self.proposed.get(key)
        self._keep(
            tx,
            RecommendationRow(
                study=self.study.name,
                context_key=key,
                revision=recommendation.revision,
                recommendation_id=recommendation.recommendation_id,
                state=recommendation.state.value,
                value=raw.decode(),
                proposal=None if proposal is None else to_bytes(proposal).decode(),
                issued_at=recommendation.issued_at,
                valid_until=recommendation.valid_until,
                renew_at=renew_at,
            ),
        )
        tx.enqueue(
            self._message(
                key,
                recommendation.recommendation_id,
                raw,
                recommendation.revision,
                recommendation.issued_at,
            )
        )

    def _keep(self, tx: Transaction, row: RecommendationRow) -> None:
        self.rows[row.context_key] = row
        tx.save_recommendation(row)

    def _message(
        self, key: str, message_id: str, value: bytes | None, revision: int | None, now: datetime
    ) -> OutboxMessage:
        return OutboxMessage(
            kind="recommendation",
            message_id=message_id,
            topic=self.topic,
            key=key.encode(),
            value=value,
            study=self.study.name,
            context_key=key,
            revision=revision,
            created_at=now,
        )


def _summary(recommendation: Recommendation) -> dict[str, Any]:
    first = recommendation.candidates[0] if recommendation.candidates else None
    return {
        "context": recommendation.context_key,
        "revision": recommendation.revision,
        "candidates": len(recommendation.candidates),
        "gain": round(first.gain.median, 4) if first and first.gain else None,
        "reason": recommendation.reason,
    }
