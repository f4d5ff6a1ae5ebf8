"""Reading a Kafka topic as a member of a consumer group, from positions that the store keeps.

The broker's own offsets are written for lag monitoring and never read. When partitions are
assigned, they are paused at once, on kafka-python's I/O thread, where nothing may block; the next
poll, on the caller's thread, asks for their stored positions, seeks and resumes. Until then
nothing that was fetched from them is given out.

A stored position is checked before it is believed: reading starts at the record *before* it, and
if that one has another fingerprint, the topic was made anew and is read from its beginning.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty
from typing import Any

from kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import FencedInstanceIdError, KafkaError

from tunerd.errors import FencedOutError, StreamUnavailableError
from tunerd.streams.base import Restore, StreamPosition, StreamRecord
from tunerd.streams.kafka.connection import connect, translated
from tunerd.streams.kafka.consumer import RebalanceListener, make_consumer, remember_joining
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.reasons import refused
from tunerd.streams.kafka.records import as_record

__all__ = ["KafkaSource"]

log = logging.getLogger(__name__)

CLOSE_MS = 1000
LAG_EVERY_S = 1.0
BUSY = 10
"""So many times longer a partition may stand still while others are read: they take turns. And so
much rarer it is seen who else is in the group while nothing changes."""
UNSETTLED_POLL_S = 0.05
"""How long one wait is while partitions are still coming."""


class _AwayError(StreamUnavailableError):
    """The broker or the topic is gone for a while.

    The consumer stays: the broker that comes back still knows it as a member of the group, while
    a new one would have to wait until the old one's session has timed out.
    """


class KafkaSource:
    """A :class:`tunerd.streams.base.StreamSource`. ``lag`` may be asked from any thread."""

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        group: str,
        restore: Restore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._topic = topic
        self._group = group
        self._restore = restore
        self._clock = clock
        self._consumer: KafkaConsumer | None = None
        self._fenced_as = ""
        """What the group called this reader when somebody had taken its name, until it is known
        who; empty otherwise."""
        self._deleted = 0
        """Records that were deleted before they were read."""
        self._forget()

    def _forget(self) -> None:
        """Set what is known of one connection to nothing."""
        self._unplaced: set[TopicPartition] = set()  # assigned, without a restored position yet
        self._placed: set[TopicPartition] = set()
        self._read_now: frozenset[TopicPartition] = frozenset()  # a copy for other threads
        self._unchecked: dict[TopicPartition, StreamPosition] = {}
        self._next: dict[TopicPartition, int] = {}  # the offset that follows what was read
        self._anew: set[TopicPartition] = set()  # of a topic that is another than it was
        self._lag: int | None = None
        self._topic_id: object = None
        # At the last look at what stands still: where each partition ended, and those that a
        # transaction without an end kept from being read on.
        self._ends: dict[TopicPartition, int] = {}
        self._held_up: dict[TopicPartition, int] = {}
        self._open: list[TopicPartition] = []  # those that it still does
        self._regrouped = False  # whether partitions came or went since that look
        self._strangers = ""  # who reads some of them for somebody else
        # When there was last a broker with the topic; a look; the same at the group; a lag.
        self._well_at = self._looked_at = self._asked_at = self._lag_at = self._clock()

    # -- what callers use -------------------------------------------------------------------

    def poll(self, timeout_s: float, max_records: int) -> list[StreamRecord]:
        try:
            self._look_who_reads()
            return self._poll(timeout_s, max_records)
        except _AwayError:
            raise
        except StreamUnavailableError as error:
            if isinstance(error.__cause__, FencedInstanceIdError):
                self._fenced_as = self._member_id()
            self._drop()
            if self._fenced_as:
                self._look_who_reads()
            raise

    def commit(self, positions: Sequence[StreamPosition]) -> None:
        if self._consumer is None:
            return
        offsets = {}
        for position in positions:
            place = TopicPartition(position.topic, int(position.partition))
            if place in self._placed:
                offsets[place] = OffsetAndMetadata(position.offset, "", -1)
        if offsets:
            # Only for whoever watches the lag; where to read on is in the store.
            with suppress(KafkaError, RuntimeError):
                self._consumer.commit_async(offsets, callback=lambda _offsets, _answer: None)

    def reset(self) -> None:
        if self._consumer is not None:
            self._hear()
            self._unplace(self._placed)

    def partitions(self) -> list[str]:
        return [str(number) for number in sorted(place.partition for place in self._read_now)]

    def lag(self) -> int | None:
        return self._lag

    def remarks(self) -> list[str]:
        remarks = [self._waits_for_transaction(place) for place in list(self._open)]
        if self._strangers:
            remarks.append(self._strangers)
        if self._deleted:
            remarks.append(
                f"topic {self._topic}: up to {self._deleted} records were deleted before they were "
                "read, since the start; the log says which"
            )
        return remarks

    def close(self) -> None:
        joined = self._consumer is not None
        self._drop()
        if joined and self._options.instance is not None:
            self._leave(self._options.instance)

    # -- the connection ---------------------------------------------------------------------

    def _poll(self, timeout_s: float, max_records: int) -> list[StreamRecord]:
        deadline = self._clock() + timeout_s
        consumer = self._connected()
        while True:
            self._place(consumer)
            left = max(0.0, deadline - self._clock())
            wait = left if self._placed else min(left, UNSETTLED_POLL_S)
            with translated(self._options):
                batches = consumer.poll(int(wait * 1000), max_records)
                remember_joining(consumer)
            self._hear()
            self._notice_new_topic()
            records = self._believed(batches)
            self._look_after(consumer, idle=not batches)
            if records or self._clock() >= deadline or self._consumer is None:
                return records

    def _connected(self) -> KafkaConsumer:
        if self._consumer is not None:
            return self._consumer
        session_ms = int(self._options.session_timeout_s * 1000)
        consumer, self._client = make_consumer(
            self._options,
            group_id=self._group,
            group_instance_id=self._options.instance,
            session_timeout_ms=session_ms,
            # That partitions move is heard with a heartbeat, so these come often.
            heartbeat_interval_ms=min(1000, session_ms // 3),
            # Who comes or goes stops nobody else from reading.
            partition_assignment_strategy=[CooperativeStickyAssignor],
        )
        self._forget()
        self._consumer = consumer
        self._changes = RebalanceListener(consumer)
        with translated(self._options):
            # Subscribing before the metadata is there can leave an empty assignment for minutes.
            consumer.bootstrap(timeout_ms=int(self._options.connect_timeout_s * 1000))
            consumer.subscribe([self._topic], listener=self._changes)
        return consumer

    def _drop(self) -> None:
        """Close the consumer; the next poll makes a new one."""
        consumer, self._consumer = self._consumer, None
        self._forget()
        if consumer is not None:
            with suppress(Exception):  # it may be what was broken
                consumer.close(autocommit=False, timeout_ms=CLOSE_MS)

    def _member_id(self) -> str:
        """What the group calls this reader now; empty where it is joining anew."""
        if self._consumer is None:
            return ""
        return str(self._consumer._coordinator._generation.member_id or "")

    def _look_who_reads(self) -> None:
        """After the broker said that another reader has this one's name: see whether that is so.
        Connecting again would take the name back, and so on for ever.

        Raises FencedOutError if it is, StreamUnavailableError while nobody can say.
        """
        if not self._fenced_as:
            return
        holders = {
            member["member_id"]
            for member in self._members()
            if member["group_instance_id"] == self._options.instance
        }
        own, self._fenced_as = self._fenced_as, ""
        if holders - {own}:
            self._fenced_as = own  # it stays so, whoever asks again
            raise FencedOutError(
                f"another instance reads {self._topic} as {self._options.instance} on Kafka at "
                f"{','.join(self._options.bootstrap_servers)}; nothing more is read"
            )

    def _members(self) -> list[dict[str, Any]]:
        """All readers of the group. Raises StreamUnavailableError."""
        admin, _ = connect(self._options, KafkaAdminClient)
        try:
            with translated(self._options):
                members: list[dict[str, Any]] = admin.describe_groups([self._group])[self._group][
                    "members"
                ]
                return members
        finally:
            admin.close()

    def _look_for_strangers(self) -> None:
        """See whether readers of another installation are in the group: what they read never gets
        into this one's store."""
        self._regrouped, before, self._strangers = False, self._strangers, ""
        self._asked_at = self._clock()
        missing = set(self._client.cluster.partitions_for_topic(self._topic) or ()) - {
            place.partition for place in self._placed
        }
        if not missing or self._options.instance is None:
            return
        installation = self._options.instance.rpartition("-")[0] + "-"
        try:
            members = self._members()
        except StreamUnavailableError:
            self._regrouped = True  # asked again
            return
        strangers = {
            f"{member['group_instance_id'] or member['client_id']} at {member['client_host']}"
            for member in members
            if not (member["group_instance_id"] or "").startswith(installation)
        }
        if strangers:
            self._strangers = (
                f"group {self._group}: {', '.join(sorted(strangers))} is in it too, and is not of "
                f"this installation; the records of {self._topic} that it reads are not read here. "
                "Give each its own `name` or `stream.kafka.group`"
            )
            if self._strangers != before:
                log.error("%s", self._strangers)

    def _leave(self, instance: str) -> None:
        """Give the partitions to others at once: closing does not, for a reader with a name."""
        with suppress(Exception):  # the broker notices by itself, later
            admin, _ = connect(self._options, KafkaAdminClient)
            try:
                admin.remove_group_members(
                    self._group, [MemberToRemove(group_instance_id=instance)]
                )
            finally:
                admin.close()

    def _look_after(self, consumer: KafkaConsumer, idle: bool) -> None:
        """Notice a broker that is gone, a topic that is gone or another, a reader that is stuck."""
        now = self._clock()
        self._read_now = frozenset(self._placed)
        if not idle or (self._answers() and self._has_topic()):
            self._well_at = now
            if self._looks_stuck(consumer, idle):
                log.warning(
                    "reading %s stood still with records to read: starting anew", self._topic
                )
                self._drop()
                return
        else:
            away = now - self._well_at
            if away > max(self._options.stuck_after_s, self._options.session_timeout_s):
                raise StreamUnavailableError(self._problem())
            if away > self._options.connect_timeout_s:
                raise _AwayError(self._problem())
        if idle or self._lag is None or now - self._lag_at >= LAG_EVERY_S:
            self._lag_at = now
            self._lag = self._measured_lag(consumer)

    def _answers(self) -> bool:
        brokers = self._client.cluster.brokers()
        return any(self._client.connected(broker.node_id) for broker in brokers)

    def _has_topic(self) -> bool:
        return bool(self._client.cluster.partitions_for_topic(self._topic))

    def _problem(self) -> str:
        where = ",".join(self._options.bootstrap_servers)
        if self._answers():
            return f"Kafka at {where} has no topic {self._topic}"
        return refused(self._options) or f"Kafka at {where} does not answer"

    def _notice_new_topic(self) -> None:
        now = self._client.cluster.topic_id(self._topic)
        if now is not None:
            known, self._topic_id = self._topic_id, now
            if known not in (None, now):
                log.warning("topic %s was made anew; reading it from its beginning", self._topic)
                # What was read last may have been of the new one, from the middle of it on, so
                # a position whose fingerprint is right says nothing.
                self._anew = self._placed | self._unplaced
                self._unplace(self._placed)

    def _looks_stuck(self, consumer: KafkaConsumer, idle: bool) -> bool:
        """Whether a partition has not read what it had at the last look, which was a while ago.

        What lies behind a transaction without an end is nobody's fault here, and is told.
        """
        patience_s = self._options.stuck_after_s * (1 if idle else BUSY)
        if not self._placed or self._clock() - self._looked_at < patience_s:
            return False
        self._looked_at = self._clock()
        if self._regrouped or self._clock() - self._asked_at > BUSY * self._options.stuck_after_s:
            self._look_for_strangers()
        places = list(self._placed)
        with translated(self._options):
            ends = consumer.end_offsets(places, timeout_ms=CLOSE_MS)
            at = {place: self._at(consumer, place) or 0 for place in places}
            held_up = {
                place: end
                for place, end in ends.items()
                if at[place] == end < (consumer.highwater(place) or 0)
            }
        still = [place for place, end in held_up.items() if self._held_up.get(place) == end]
        for place in set(still) - set(self._open):
            log.warning("%s", self._waits_for_transaction(place))
        self._open, self._held_up = still, held_up
        before, self._ends = self._ends, ends
        return any(at[place] < before.get(place, 0) for place in places)

    def _waits_for_transaction(self, place: TopicPartition) -> str:
        where = ",".join(self._options.bootstrap_servers)
        return (
            f"topic {place.topic} partition {place.partition}: nothing is read behind a "
            "transaction that its sender neither commits nor aborts; `kafka-transactions.sh "
            f"--bootstrap-server {where} describe-producers --topic {place.topic} "
            f"--partition {place.partition}` names it"
        )

    def _measured_lag(self, consumer: KafkaConsumer) -> int | None:
        if self._unplaced or not self._placed:
            return None
        lag = 0
        for place in self._placed:
            try:
                end, at = consumer.highwater(place), self._at(consumer, place)
            except KafkaError:
                return None  # lost meanwhile; without it the sum would flatter
            if end is None or at is None:
                return None
            lag += max(0, end - at)
        return lag

    @staticmethod
    def _at(consumer: KafkaConsumer, place: TopicPartition) -> int | None:
        position: int | None = consumer.position(place, timeout_ms=CLOSE_MS)
        return position

    # -- positions --------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take over what the rebalance listener saw."""
        with suppress(Empty):
            while True:
                assigned, places = self._changes.queue.get_nowait()
                self._placed -= places
                self._unplaced -= places
                self._ends.clear()
                self._regrouped = True
                for place in places:
                    self._unchecked.pop(place, None)
                if assigned:
                    self._unplaced |= places

    def _unplace(self, places: set[TopicPartition]) -> None:
        assert self._consumer is not None
        moved = frozenset(places)
        self._ends.clear()
        with suppress(KafkaError, KeyError):  # lost meanwhile
            self._consumer.pause(*moved)
        self._placed -= moved
        self._unplaced |= moved

    def _place(self, consumer: KafkaConsumer) -> None:
        """Seek the partitions that were assigned to where the store is."""
        self._hear()
        if not self._unplaced:
            return
        places = sorted(self._unplaced)
        cluster = str(self._client.cluster.cluster_id)
        stored = self._restore(cluster, self._topic, [str(place.partition) for place in places])
        with translated(self._options):
            timeout_ms = int(self._options.request_timeout_s * 1000)
            first = consumer.beginning_offsets(places, timeout_ms=timeout_ms)
            end = consumer.end_offsets(places, timeout_ms=timeout_ms)
        for place in places:
            position = stored.get(str(place.partition))
            if position is not None and (position.cluster != cluster or place in self._anew):
                position = None
            start = self._start(place, position, first[place], end[place])
            # Lost meanwhile: the listener has said so, or will at the next poll.
            with suppress(KafkaError, ValueError, KeyError, AttributeError):
                consumer.seek(place, start)
                consumer.resume(place)
                self._unplaced.discard(place)
                self._anew.discard(place)
                self._placed.add(place)
                unchecked = self._unchecked.get(place)
                self._next[place] = unchecked.offset if unchecked else start

    def _start(
        self, place: TopicPartition, position: StreamPosition | None, first: int, end: int
    ) -> int:
        """Where to read from: the record before the stored position, if there can be one."""
        self._unchecked.pop(place, None)
        if position is None:
            return first
        if position.offset > end:
            log.warning("topic %s partition %d was made anew", place.topic, place.partition)
            return first
        if position.offset < first:
            self._tell_deleted(
                place, first - position.offset, "is its retention shorter than this reader was away"
            )
        if position.offset <= first or not position.fingerprint:
            return max(position.offset, first)
        self._unchecked[place] = position
        return position.offset - 1

    def _believed(self, batches: dict[TopicPartition, list[Any]]) -> list[StreamRecord]:
        cluster = str(self._client.cluster.cluster_id)
        records: list[StreamRecord] = []
        for place, raw in batches.items():
            if place not in self._placed:
                continue  # read again after it is restored
            new = [as_record(cluster, raw_record) for raw_record in raw]
            position = self._unchecked.pop(place, None)
            if position is not None and new[0].offset < position.offset:
                if new[0].fingerprint != position.fingerprint:
                    self._begin_again(place)
                    continue
                del new[0]
            # A record before the position that is gone (compacted away) cannot be compared.
            if new:
                self._notice_deleted(place, new[0].offset)
                self._next[place] = new[-1].next_offset
            records += new
        return records

    def _notice_deleted(self, place: TopicPartition, offset: int) -> None:
        """Tell where retention overtook this reader: the client goes on at what is left and says
        nothing. Offsets are also skipped where transactions end, so the topic's start decides."""
        wanted = self._next.get(place, offset)
        if offset <= wanted:
            return
        assert self._consumer is not None
        with suppress(KafkaError):  # what was read is read, and matters more
            first = self._consumer.beginning_offsets([place], timeout_ms=CLOSE_MS)[place]
            if first > wanted:
                self._tell_deleted(
                    place, min(first, offset) - wanted, "is its retention shorter than the lag"
                )

    def _begin_again(self, place: TopicPartition) -> None:
        assert self._consumer is not None
        log.warning("topic %s partition %d was made anew", place.topic, place.partition)
        self._next.pop(place, None)
        with suppress(KafkaError, ValueError):  # lost meanwhile
            self._consumer.seek_to_beginning(place)

    def _tell_deleted(self, place: TopicPartition, count: int, why: str) -> None:
        self._deleted += count
        log.warning(
            "topic %s partition %d: up to %d records were deleted before they were read; %s?",
            place.topic,
            place.partition,
            count,
            why,
        )
