"""Publish: from the outbox to the topics.

Per key only the newest unsent revision goes out, in order. What the stream has acknowledged is
marked as sent; a crash in between sends it again under the same id.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tunerd import reports
from tunerd.settings.model import PublishSettings
from tunerd.store import Store
from tunerd.streams.base import Message, Sink, Stream

__all__ = ["Publish"]

KEEP = timedelta(days=1)
"""How long sent messages stay in the outbox, for whoever asks what went out."""
PRUNE_EVERY_S = 60.0


@dataclass
class Publish:
    """The stage. Owns its sink; shares the store."""

    stream: Stream
    store: Store
    settings: PublishSettings
    role: str
    """Of the publisher: one at a time has it, so that a former one that still lives is fenced."""
    listener: reports.Listener
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Monotonic seconds."""
    name: str = "publish"
    _sink: Sink | None = None
    _pruned_at: float = 0.0

    def step(self) -> bool:
        """Send what waits, at most one batch of it."""
        waiting = self.store.unsent(self.settings.batch_messages)
        if not waiting:
            self._prune()
            return False
        if self._sink is None:
            self._sink = self.stream.sink(self.role)
        started = self.clock()
        self._sink.send([Message(m.topic, m.key, m.value, m.headers) for m in waiting])
        self.store.mark_sent([m.id for m in waiting], self.now())
        self.listener.hear(
            reports.Published(
                messages=dict(Counter(m.kind for m in waiting)), seconds=self.clock() - started
            )
        )
        return True

    def close(self) -> None:
        """Close the sink; everything that was acknowledged is marked, the rest is sent again."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _prune(self) -> None:
        if self.clock() - self._pruned_at > PRUNE_EVERY_S:
            self._pruned_at = self.clock()
            self.store.prune_outbox(self.now() - KEEP)
