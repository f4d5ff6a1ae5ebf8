"""What one study has said to the schedulers, and how it says something new.

The life of a recommendation (DESIGN): issued when there is news, renewed at half of its validity,
withdrawn when its context or study ends or nothing is feasible any more; a withdrawn key is freed
a week later. Everything goes through the outbox, in the transaction of the step that decided it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tunerd.core.lifecycle import FREE_KEY_AFTER
from tunerd.core.recommendation import Recommendation, State
from tunerd.core.study import Study
from tunerd.events import from_bytes, to_bytes
from tunerd.store import OutboxMessage, RecommendationRow, Transaction

__all__ = ["Line", "Recommended", "Said"]


@dataclass(frozen=True, slots=True)
class Line:
    """Something that an operator cares about."""

    event: str
    detail: dict[str, Any]


@dataclass
class Said:
    """What a step put into the outbox."""

    issued: int = 0
    renewed: int = 0
    withdrawn: int = 0
    suggested: int = 0
    candidates: Counter[str] = field(default_factory=Counter)
    lines: list[Line] = field(default_factory=list)


@dataclass
class Recommended:
    """The recommendations of one study, in memory as in the store."""

    study: Study
    topic: str
    running: dict[str, Recommendation]
    """What schedulers follow, by context key: published and active."""
    proposed: dict[str, Recommendation]
    """What was observed, or waits for approval."""
    revisions: dict[str, int]
    """Last revision by context key; never restarts."""

    @classmethod
    def load(cls, study: Study, topic: str, rows: Sequence[RecommendationRow]) -> "Recommended":
        """Build from what the store has."""
        return cls(
            study,
            topic,
            running={
                r.context_key: from_bytes(r.value.encode()) for r in rows if r.state == "active"
            },
            proposed={
                r.context_key: from_bytes((r.proposal or r.value).encode())
                for r in rows
                if r.proposal or r.state in ("observed", "pending")
            },
            revisions={row.context_key: row.revision for row in rows},
        )

    def followed(self, key: str) -> Recommendation | None:
        """What this study's schedulers, or those who only look, have in hand."""
        return self.proposed.get(key) or self.running.get(key)

    def next_revision(self, key: str) -> int:
        """Of the next message for a context key."""
        return self.revisions.get(key, 0) + 1

    def publish(self, tx: Transaction, recommendation: Recommendation, said: Said) -> None:
        """Put a recommendation into the outbox; schedulers follow it from now on."""
        key = recommendation.context_key
        half = (recommendation.valid_until - recommendation.issued_at) / 2
        self._send(tx, recommendation, renew_at=recommendation.issued_at + half)
        self.running[key] = recommendation
        self.proposed.pop(key, None)
        said.issued += 1
        said.candidates.update(c.kind.value for c in recommendation.candidates)
        said.lines.append(Line("recommended", _summary(recommendation)))

    def propose(self, tx: Transaction, recommendation: Recommendation, said: Said) -> None:
        """Say it to those who look, and publish nothing."""
        key = recommendation.context_key
        running = self.running.get(key)
        self.proposed[key] = recommendation
        text = to_bytes(recommendation).decode()
        told = running or recommendation
        state = "observed" if self.study.mode == "observe" else "pending"
        tx.save_recommendation(
            RecommendationRow(
                study=self.study.name,
                context_key=key,
                revision=self.revisions.get(key, 0),
                recommendation_id=told.recommendation_id,
                state="active" if running else state,
                value=to_bytes(running).decode() if running else text,
                proposal=text if running else None,
                issued_at=told.issued_at,
                valid_until=told.valid_until,
                renew_at=told.issued_at + (told.valid_until - told.issued_at) / 2
                if running
                else None,
            )
        )
        said.suggested += 1
        said.candidates.update(c.kind.value for c in recommendation.candidates)
        event = "would recommend" if state == "observed" else "waits for approval"
        said.lines.append(Line(event, _summary(recommendation)))

    def keep_up(
        self,
        tx: Transaction,
        lapsed: Sequence[RecommendationRow],
        alive: set[str],
        outlived: str,
        now: datetime,
        said: Said,
    ) -> None:
        """Renew what is half over, free old keys, and withdraw what is for contexts that are no
        longer ``alive``, with the reason ``outlived``."""
        for row in lapsed:
            running = self.running.get(row.context_key)
            if row.state == State.WITHDRAWN and running is None:
                self._free(tx, row, now)
            elif running is None or running.revision != row.revision:
                continue  # this very step said something newer
            elif row.context_key not in alive:
                self.withdraw(tx, row.context_key, outlived, now, said)
            else:
                valid = running.valid_until - running.issued_at
                renewed = running.renewed(
                    revision=self.next_revision(row.context_key),
                    issued_at=now,
                    valid_until=now + valid,
                )
                self._send(tx, renewed, renew_at=now + valid / 2)
                self.running[row.context_key] = renewed
                said.renewed += 1

    def withdraw(self, tx: Transaction, key: str, reason: str, now: datetime, said: Said) -> None:
        """Take a recommendation back, with the reason."""
        running = self.running.pop(key)
        withdrawn = running.withdrawn(
            revision=self.next_revision(key), issued_at=now, reason=reason
        )
        self._send(tx, withdrawn, renew_at=now + FREE_KEY_AFTER)
        said.withdrawn += 1
        said.lines.append(Line("withdrawn", {"context": key, "reason": reason}))

    def _free(self, tx: Transaction, row: RecommendationRow, now: datetime) -> None:
        """Send the null value, which frees the key on the compacted topic."""
        tx.enqueue(self._message(row.context_key, f"{row.recommendation_id}/null", None, None, now))
        tx.save_recommendation(replace(row, renew_at=None))

    def _send(self, tx: Transaction, recommendation: Recommendation, renew_at: datetime) -> None:
        key, raw = recommendation.context_key, to_bytes(recommendation)
        self.revisions[key] = recommendation.revision
        tx.save_recommendation(
            RecommendationRow(
                study=self.study.name,
                context_key=key,
                revision=recommendation.revision,
                recommendation_id=recommendation.recommendation_id,
                state=recommendation.state.value,
                value=raw.decode(),
                issued_at=recommendation.issued_at,
                valid_until=recommendation.valid_until,
                renew_at=renew_at,
            )
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
