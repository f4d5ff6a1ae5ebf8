"""Publish: from the outbox to the topics.

Per key only the newest unsent revision goes out, in order. What the stream has acknowledged is
marked as sent. A crash in between leaves messages that are on the topic and not marked: whoever
begins to publish looks there first, so that readers get each once.

Of several instances that share a store, the one with the lease publishes, and leaves nothing to
chance: it takes the role at the broker first, which ends what the former may still be sending, and
only then reads the outbox and looks at the topics.

A message goes to the topic of its kind as the settings name it now. Under the name that was theirs
when it was written, one could wait for a topic that is no more, and hold up all others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from tunerd import telemetry
from tunerd.errors import FencedOutError, StoreBehindError, StreamUnavailableError
from tunerd.settings.model import PublishSettings, TopicSettings
from tunerd.stages.plans import send_plans_again
from tunerd.stages.topic_check import behind
from tunerd.stages.upkeep import message_of
from tunerd.store import PUBLISH_LEASE, OutboxMessage, Store
from tunerd.streams.base import EVER, Stream, StreamMessage, StreamRecord, StreamSink

__all__ = ["PublishStage"]

CLOCKS = timedelta(minutes=1)
"""How far the clocks of those who write to the store and to the stream may be apart."""
KEEP = timedelta(days=1)
"""How long sent messages stay in the outbox, for whoever asks what went out."""
PRUNE_EVERY_S = 60.0
LEASE_S = 10.0
"""How long the lease to publish holds without being renewed."""
RENEW_EVERY_S = 2.0
ASK_EVERY_S = 1.0
"""How often an instance that does not publish asks whether it may."""
MOST_FENCED, FENCED_S = 3, 60.0
"""So often in so many seconds the role is taken back where the lease is still this instance's: one
that lost the lease may have been late in taking the role. A stranger of this name would go on."""
GIVE_WAY_S, BACK_S = 10.0, 5.0
"""After so long without getting through, the lease is left to instances that may, and asked for
again so much later: the broker may refuse only this one (its clock, its rights, its network)."""
HOLD_EVERY_S = 10.0
"""How often one with nothing to send looks whether another has taken its role."""


class _AlreadySent:
    """What the topics held when this publisher took over: of each key the last, else all."""

    def __init__(self, records: Iterable[StreamRecord] = ()) -> None:
        self._last: dict[tuple[str, bytes], bytes] = {}
        self._keyless: set[tuple[str, bytes]] = set()
        for record in records:
            content = _content(record.value, record.headers)
            if record.key is None:
                self._keyless.add((record.topic, content))
            else:
                self._last[record.topic, record.key] = content

    def __contains__(self, message: OutboxMessage) -> bool:
        content = _content(message.value, message.headers)
        if message.key is None:
            return (message.topic, content) in self._keyless
        return self._last.get((message.topic, message.key)) == content


def _message(message: OutboxMessage) -> StreamMessage:
    return StreamMessage(message.topic, message.key, message.value, message.headers)


def _content(value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> bytes:
    return blake2b(repr((value, headers)).encode(), digest_size=16).digest()


@dataclass
class PublishStage:
    """The stage. Owns its sink; shares the store."""

    stream: Stream
    store: Store
    settings: PublishSettings
    topics: TopicSettings
    role: str
    """Of the publisher: one at a time has it, so that a former one that still lives is fenced."""
    listener: telemetry.TelemetryListener
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Monotonic seconds."""
    owner: str | None = None
    """What this instance holds leases by; None where it has the store to itself."""
    name: str = "publish"
    _epoch: int | None = None
    """Of the lease, while this instance has it."""
    _leased_at: float = float("-inf")
    """When the lease was taken or renewed, or was asked for."""
    _new_role: bool = False
    """Whether the lease is new, so that the role has to be taken from the former holder."""
    _fenced_at: list[float] = field(default_factory=list)
    """When the role was lost while the lease was not, lately."""
    _failing_since: float | None = None
    """When it first did not get through, since it last did."""
    _sink: StreamSink | None = None
    _there: _AlreadySent | None = None
    """None once the messages that may be there already are dealt with."""
    _looked: bool = False
    """Whether the topics were looked at since the role was taken."""
    _acknowledged: list[int] = field(default_factory=list)
    """Sent, and not yet marked as sent."""
    _said: dict[bytes, int] = field(default_factory=dict)
    """Key → revision of what this one sent last. A hundred bytes for each context that lives."""
    _pruned_at: float = 0.0
    _held_at: float = 0.0
    """When it last looked whether the role is its own."""

    def say_again(self) -> int:
        """Have what is active sent again if its topic holds nothing at all: it got another name, or
        was made anew, and what is said there would come with each one's next revision, in days.
        To be called while nobody tunes. Returns how many there are."""
        now = self.now()
        active = [
            row
            for study in self.store.studies()
            for row in self.store.recommendations(study.name, states=["active"])
            if row.valid_until > now
        ]
        if not active or not self._is_empty(self.topics.recommendations):
            return 0
        with self.store.transaction() as tx:
            tx.enqueue(*(message_of(row, self.topics.recommendations, now) for row in active))
            for study in tx.studies():
                send_plans_again(tx, study.name)
        return len(active)

    def step(self) -> bool:
        """Send what waits, at most one batch of it. Raises FencedOutError, for good, once another
        publisher has this one's role: the later one of two with the same name keeps it; and
        StoreBehindError where the store knows less than it has sent. Where the lease says who
        publishes, one without it does nothing."""
        if not self._leads():
            return False
        try:
            worked = self._publish()
            self._failing_since = None
            return worked
        except StreamUnavailableError:
            self._give_way()
            raise
        except FencedOutError:
            self._drop()
            if self.owner is None:
                raise
            if self._renew():
                now = self.clock()
                self._fenced_at = [at for at in self._fenced_at if now - at < FENCED_S] + [now]
                if len(self._fenced_at) > MOST_FENCED:
                    raise
                self._new_role = True
            return False

    @property
    def leads(self) -> bool:
        """Whether it is this instance that publishes."""
        return self.owner is None or self._epoch is not None

    def _leads(self) -> bool:
        """Have the lease, or see whether it can be had."""
        if self.owner is None:
            return True
        waited_s = self.clock() - self._leased_at
        if self._epoch is not None:
            return waited_s < RENEW_EVERY_S or self._renew()
        if waited_s < ASK_EVERY_S:
            return False
        self._leased_at = self.clock()
        self._epoch = self.store.take_lease(PUBLISH_LEASE, self.owner, LEASE_S)
        self._new_role = self._epoch is not None
        return self._epoch is not None

    def _renew(self) -> bool:
        """Prolong the lease; without it, leave the role to whoever has it now."""
        if self.owner is None or self._epoch is None:
            return False
        self._leased_at = self.clock()
        if not self.store.renew_lease(PUBLISH_LEASE, self.owner, self._epoch, LEASE_S):
            self._epoch = None
            self._drop()
            return False
        return True

    def _give_way(self) -> None:
        """After a failure: have another instance publish where this has gone on for a while."""
        if self.owner is None or self._epoch is None:
            return
        now = self.clock()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since < GIVE_WAY_S:
            return
        self.store.release_lease(PUBLISH_LEASE, self.owner, self._epoch)
        self._epoch, self._failing_since = None, None
        self._leased_at = now + BACK_S - ASK_EVERY_S
        self._drop()

    def _drop(self) -> None:
        """Forget everything about the topics; another one may send now."""
        self.close()
        self._there, self._looked, self._acknowledged = None, False, []

    def _take_role(self) -> bool:
        """Take the role at the broker before the outbox is read: nothing that the former holder
        sends after this is seen by anybody. False when the lease was lost meanwhile."""
        sink = self.stream.sink(self.role, take_back=self._new_role)
        try:
            sink.hold()
            still = self._renew()
        except BaseException:
            sink.close()
            raise
        if not still:
            sink.close()
            return False
        self._sink, self._looked, self._new_role = sink, False, False
        return True

    def _publish(self) -> bool:
        if self.owner is not None and self._sink is None and not self._take_role():
            return False
        self._mark()
        self._prune()
        waiting = [
            replace(message, topic=self._topic(message))
            for message in self.store.unsent(self.settings.batch_messages)
        ]
        if not waiting:
            self._looked = True  # what comes now is new: the former holder can send no more
            self._hold()
            return False
        self._check(waiting)
        started = self.clock()
        sink = self._sink or self._take_over(waiting)
        if self.owner is not None and not self._looked:
            self._there = self._look_back(sink, waiting)
            self._looked = True
        new = [m for m in waiting if self._there is None or m not in self._there]
        try:
            sink.send([_message(m) for m in new])
        except StreamUnavailableError:
            self.close()  # some of it may be there: the next sink looks
            raise
        except ValueError:
            self._send_one_by_one(sink, new)
        self._acknowledged = [m.id for m in waiting]
        self._note(waiting)
        self._mark()
        if len(waiting) < self.settings.batch_messages:
            self._there = None
        self.listener.hear(
            telemetry.MessagesPublished(
                messages=dict(Counter(m.kind for m in new)), seconds=self.clock() - started
            )
        )
        return True

    def _check(self, waiting: Iterable[OutboxMessage]) -> None:
        """Send nothing that readers would drop as old. A store that was restored under this daemon
        counts revisions again that went out before."""
        for message in waiting:
            if message.revision is None or message.key is None:
                continue
            latest = self._said.get(message.key, 0)
            if message.revision < latest:
                what = f"{message.key.decode(errors='replace')}: {latest}"
                raise StoreBehindError(behind(self.topics.recommendations, what))

    def _note(self, sent: Iterable[OutboxMessage]) -> None:
        for message in sent:
            if message.key is None or message.kind != "recommendation":
                continue
            if message.value is None or message.revision is None:
                self._said.pop(message.key, None)
            else:
                self._said[message.key] = message.revision

    def close(self) -> None:
        """Close the sink; everything that was acknowledged is marked, the rest is sent again."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _is_empty(self, topic: str) -> bool:
        sink = self.stream.sink()
        try:
            return next(sink.sent_since([topic], EVER), None) is None
        finally:
            sink.close()

    def _topic(self, message: OutboxMessage) -> str:
        return {
            "recommendation": self.topics.recommendations,
            "plan": self.topics.recommendations,
            "rejected": self.topics.rejected,
            "drift": self.topics.drift,
        }[message.kind]

    def _send_one_by_one(self, sink: StreamSink, messages: Sequence[OutboxMessage]) -> None:
        """Send what can be sent: one message that the stream can never take (larger than the
        broker allows, say) must not hold up all others for good. It is told, and let go."""
        for message in messages:
            try:
                sink.send([_message(message)])
            except StreamUnavailableError:
                self.close()
                raise
            except ValueError as error:
                self.listener.hear(
                    telemetry.MessageDropped(
                        kind=message.kind, message_id=message.message_id, problem=str(error)
                    )
                )

    def _hold(self) -> None:
        """Have the role before there is anything to send, and see that it stays."""
        if self._sink is not None and self.clock() - self._held_at < HOLD_EVERY_S:
            return
        sink = self._sink or self._take_over([])
        try:
            sink.hold()
        except StreamUnavailableError:
            self.close()
            raise
        self._held_at = self.clock()

    def _take_over(self, waiting: Sequence[OutboxMessage]) -> StreamSink:
        """Make a sink, and see what its predecessor sent of what waits."""
        sink = self.stream.sink(self.role)
        try:
            self._there = self._look_back(sink, waiting)
        except BaseException:
            sink.close()
            raise
        self._sink = sink
        return sink

    def _look_back(self, sink: StreamSink, waiting: Sequence[OutboxMessage]) -> _AlreadySent:
        since = min((message.created_at for message in waiting), default=self.now()) - CLOCKS
        return _AlreadySent(sink.sent_since({m.topic for m in waiting}, since))

    def _mark(self) -> None:
        if not self._acknowledged:
            return
        if self.owner is None or self._epoch is None:
            self.store.mark_sent(self._acknowledged, self.now())
        else:
            with self.store.transaction() as tx:
                tx.fence_lease(PUBLISH_LEASE, self.owner, self._epoch)
                tx.mark_sent(self._acknowledged, self.now())
        self._acknowledged = []

    def _prune(self) -> None:
        """A piece in each step until nothing old is left: a flood of rejected records goes as fast
        as it came."""
        if self.clock() - self._pruned_at > PRUNE_EVERY_S and not self.store.prune_outbox(
            self.now() - KEEP
        ):
            self._pruned_at = self.clock()
