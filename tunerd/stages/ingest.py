"""Ingest: from the jobs topic into history.

One transaction takes a batch's observations, its rejections (into the outbox) and the new
positions in the stream; only then are the positions told to the broker. A crash before the commit
reads the batch again, a crash after it goes on behind it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from tunerd import telemetry
from tunerd.core.observation import Observation
from tunerd.core.request import AdviceRequest
from tunerd.errors import LostPartitionError
from tunerd.events import (
    EventFormat,
    JobHalf,
    Rejection,
    SignalPoint,
    TimeLimits,
    conflict,
    read_job,
    rejected_record,
    unknown_study,
)
from tunerd.settings.model import IngestSettings, TopicSettings
from tunerd.stages.halves import HalfJoiner, JoinedBatch
from tunerd.stages.signal_context import outdated_point, too_many_signals
from tunerd.store import OutboxMessage, Store, Transaction
from tunerd.streams.base import Stream, StreamPosition, StreamRecord, StreamSource

__all__ = ["BatchOutcome", "Event", "IngestStage"]

POLL_S = 0.2
"""Longest wait for records in one step; part of how fast a stop is."""
STUDIES_AGE_S = 2.0
"""How old the list of known studies may be before an event for an unknown one asks again."""

Event = Observation | AdviceRequest
"""What a record was found to say, whole."""

Place = tuple[str, str, str]
"""Cluster, topic and partition."""


@dataclass(frozen=True, slots=True)
class _RecordBatch:
    """Records that were read, and what they turned out to be."""

    events: Mapping[str, Sequence[tuple[Event, StreamRecord]]]
    """By study."""
    halves: Sequence[tuple[JobHalf, StreamRecord]]
    signals: Sequence[tuple[SignalPoint, StreamRecord]]
    rejections: Sequence[tuple[Rejection, StreamRecord]]
    positions: Mapping[Place, StreamPosition]
    """After the batch."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of the events of a batch for one study."""

    fresh: int
    duplicates: int
    conflicts: Sequence[Event]


@dataclass
class IngestStage:
    """The stage. Owns its source; shares the store.

    :class:`~tunerd.stages.requests.RequestStage` reads another topic in the same way.
    """

    stream: Stream
    store: Store
    topics: TopicSettings
    group: str
    settings: IngestSettings
    listener: telemetry.TelemetryListener
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Monotonic seconds."""
    overtaken: bool = False
    """Whether the store had another position than this reader left there: another instance went on,
    or the store went back. For whoever looks, and resets it."""
    name: str = "ingest"
    mappings: Sequence[EventFormat] = ()
    """Formats that a settings file describes."""
    _source: StreamSource | None = None
    _positions: dict[Place, StreamPosition] = field(default_factory=dict)
    """As the store has them, for the partitions that this instance reads."""
    _unsaved: _RecordBatch | None = None
    """A batch that the store could not take yet; it is tried again before anything is read."""
    _studies: frozenset[str] = frozenset()
    _studies_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._joiner = HalfJoiner(self.store, self.settings, self.clock)

    def step(self) -> bool:
        """Read a batch and commit it."""
        self.tidy()
        batch = self._unsaved or self._read()
        if batch is None:
            return False
        self._unsaved = batch
        assert self._source is not None
        started = self.clock()
        try:
            with self.store.transaction() as tx:
                report = self._save(tx, batch)
        except LostPartitionError:
            # Another instance moved on in one of our partitions: read again from what is stored.
            self._unsaved = None
            self.overtaken = True
            self._source.reset()
            return True
        self._unsaved = None
        self._positions.update(batch.positions)
        self._source.commit(list(batch.positions.values()))
        self.listener.hear(structs.replace(report, seconds=self.clock() - started))
        return True

    def partitions(self) -> list[str]:
        """Partitions of the topic that this instance reads."""
        return [] if self._source is None else self._source.partitions()

    def lag(self) -> int | None:
        """Records on the topic that are not ingested yet, as far as the stream knows."""
        return None if self._source is None else self._source.lag()

    def remarks(self) -> list[str]:
        """What somebody must see of the topic although it is read, in sentences."""
        return [] if self._source is None else self._source.remarks()

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def tidy(self) -> None:
        """Forget what nobody needs any more."""
        self._joiner.tidy(self.now())

    # -- what is read -----------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """Where the records are."""
        return self.topics.jobs

    def read(
        self, record: StreamRecord, now: datetime, limits: TimeLimits
    ) -> Event | JobHalf | SignalPoint | Rejection:
        """What a record says."""
        return read_job(record.value, record.headers, now, limits, record.size, self.mappings)

    def take(
        self, tx: Transaction, study: str, events: Sequence[Any], now: datetime
    ) -> BatchOutcome:
        """Keep what is new of one study's events."""
        added = tx.add_observations(study, self._joiner.signals.fill_in(tx, study, events), now)
        return BatchOutcome(len(added.fresh), added.duplicates, added.conflicts)

    def report(
        self,
        accepted: dict[str, int],
        duplicates: int,
        rejected: dict[str, int],
        halves: JoinedBatch,
    ) -> telemetry.BatchIngested | telemetry.RequestsIngested:
        """What to say of a batch."""
        return telemetry.BatchIngested(
            accepted=accepted,
            duplicates=duplicates,
            rejected=rejected,
            halves=halves.kept,
            joined={str(how): count for how, count in halves.joined.items()},
            seconds=0.0,
        )

    # -- reading ----------------------------------------------------------------------------

    def _read(self) -> _RecordBatch | None:
        if self._source is None:
            self._source = self.stream.source(self.topic, self.group, self._restore)
        records = self._source.poll(POLL_S, self.settings.batch_records)
        return self._sort(records) if records else None

    def _restore(
        self, cluster: str, topic: str, partitions: Sequence[str]
    ) -> Mapping[str, StreamPosition]:
        """Stored positions of partitions that were assigned; called within ``poll``."""
        positions = self.store.restore_positions(cluster, topic, partitions)
        for partition in partitions:
            self._positions.pop((cluster, topic, partition), None)
        for partition, position in positions.items():
            self._positions[cluster, topic, partition] = position
        return positions

    def _sort(self, records: Sequence[StreamRecord]) -> _RecordBatch:
        now = self.now()
        limits = TimeLimits(
            max_future=timedelta(hours=self.settings.max_future_hours),
            max_age=timedelta(days=self.settings.max_age_days),
        )
        events: dict[str, list[tuple[Event, StreamRecord]]] = {}
        halves: list[tuple[JobHalf, StreamRecord]] = []
        signals: list[tuple[SignalPoint, StreamRecord]] = []
        rejections: list[tuple[Rejection, StreamRecord]] = []
        latest: dict[Place, StreamRecord] = {}
        for record in records:
            read = self.read(record, now, limits)
            if not isinstance(read, Rejection | SignalPoint) and not self._knows(read.study):
                read = unknown_study(read.study or "", self._studies)
            if isinstance(read, SignalPoint):
                signals.append((read, record))
            elif isinstance(read, Rejection):
                rejections.append((read, record))
            elif isinstance(read, JobHalf):
                halves.append((read, record))
            else:
                events.setdefault(read.study, []).append((read, record))
            latest[record.cluster, record.topic, record.partition] = record
        positions = {place: record.position for place, record in latest.items()}
        return _RecordBatch(events, halves, signals, rejections, positions)

    def _knows(self, study: str | None) -> bool:
        if study in self._studies or study is None:  # a half need not name it
            return True
        if self.clock() - self._studies_at > STUDIES_AGE_S:
            self._studies = frozenset(row.name for row in self.store.studies())
            self._studies_at = self.clock()
        return study in self._studies

    # -- saving -----------------------------------------------------------------------------

    def _save(
        self, tx: Transaction, batch: _RecordBatch
    ) -> telemetry.BatchIngested | telemetry.RequestsIngested:
        for place, position in batch.positions.items():
            tx.expect_position(self._positions.get(place), position)
        now = self.now()
        accepted: dict[str, int] = {}
        duplicates = 0
        rejections = list(batch.rejections)
        points = [(point.signal, point.time, point.value) for point, _ in batch.signals]
        added = tx.add_signal_points(points, now)
        duplicates += added.duplicates
        rejections += [(too_many_signals(), batch.signals[i][1]) for i in added.refused]
        rejections += [
            (outdated_point(batch.signals[i][0]), batch.signals[i][1]) for i in added.outdated
        ]
        halves = self._joiner.join(tx, batch.halves, now)
        # In the order of names: two instances that lock the same studies cannot wait in a circle.
        for study in sorted({*batch.events, *halves.studies}):
            halves.add_to(tx, study, now)
            pairs = batch.events.get(study, ())
            if not pairs:
                continue
            taken = self.take(tx, study, [observation for observation, _ in pairs], now)
            if taken.fresh:
                accepted[study] = taken.fresh
            duplicates += taken.duplicates
            if taken.conflicts:
                records = {id(observation): record for observation, record in pairs}
                rejections += [
                    (conflict(conflicting.event_id, conflicting.source), records[id(conflicting)])
                    for conflicting in taken.conflicts
                ]
        halves.save(tx)
        rejections += halves.rejections
        duplicates += halves.duplicates
        tx.enqueue(*[self._message(rejection, record, now) for rejection, record in rejections])
        kinds = Counter(_kind(rejection) for rejection, _ in rejections)
        return self.report(accepted, duplicates, dict(kinds), halves)

    def _message(self, rejection: Rejection, record: StreamRecord, now: datetime) -> OutboxMessage:
        rejected = rejected_record(
            rejection,
            cluster=record.cluster,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            value=record.value,
            size=record.size if record.sha256 else None,
            sha256=record.sha256,
            original=record.headers,
        )
        return OutboxMessage(
            kind="rejected",
            message_id=rejected.id,
            topic=self.topics.rejected,
            key=rejected.key,
            value=rejected.value,
            headers=rejected.headers,
            created_at=now,
        )


def _kind(rejection: Rejection) -> str:
    """A few words for a metric's label: the field without what the sender chose to call it."""
    return rejection.field.partition(".")[0].partition("[")[0]
