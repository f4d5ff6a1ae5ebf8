"""Joining halves: they wait in the store until an attempt is whole, or counts while it runs.

All of it happens in the transaction that takes the halves and moves the position in the stream, so
that whatever dies, no half is lost and no attempt counts twice. Rules are in
:mod:`tunerd.events.joining`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from tunerd.core.observation import Observation, corrected
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.events import JobHalf, Rejection, conflict
from tunerd.events.half import AttemptKey
from tunerd.events.joining import AttemptHalves, attempt_event_id
from tunerd.events.rejection import MAX_EVENT_BYTES, kib
from tunerd.settings.model import IngestSettings
from tunerd.stages.signal_context import SignalContext
from tunerd.store import AttemptRow, Store, Transaction
from tunerd.streams.base import StreamRecord

__all__ = ["HalfJoiner", "Joined", "JoinedBatch"]

log = logging.getLogger(__name__)

JOINED_KEPT = timedelta(days=1)
"""How long a joined attempt is remembered whole, for halves that come late and correct it. Later
ones are known by the event that it became, and dropped."""
INCOMPLETE_KEPT = timedelta(days=90)
"""How long an incomplete attempt is kept: a half that comes at last still joins it."""
TIDY_S = 60.0
TIDY_MOST = 1_000
"""Attempts forgotten at a time, so that nobody waits long for it."""
COUNT_S = 10.0
"""How old the number of open attempts may be before another one is opened."""

Joined = Literal["ended", "running", "corrected"]
"""What became of an attempt: it ended, it counts while it runs, it counts otherwise than before."""

_decode = msgspec.json.Decoder(AttemptHalves).decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _JoinedAttempt:
    """An attempt that teaches something."""

    row: AttemptRow
    observation: Observation
    how: Joined
    material: str


@dataclass
class JoinedBatch:
    """What became of a batch's halves."""

    signals: SignalContext = field(default_factory=SignalContext)
    """Fills in what jobs do not bring."""
    duplicates: int = 0
    rejections: list[tuple[Rejection, StreamRecord]] = field(default_factory=list)
    joined: Counter[Joined] = field(default_factory=Counter)
    kept: int = 0
    """Halves that were new."""
    _rows: list[AttemptRow] = field(default_factory=list)
    _ready: dict[str, list[_JoinedAttempt]] = field(default_factory=dict)
    """By study."""

    @property
    def studies(self) -> Iterable[str]:
        """Those to lock, which :meth:`add_to` is to be called for in the order of names."""
        return self._ready.keys()

    def add_to(self, tx: Transaction, study: str, now: datetime) -> None:
        """Add to a study's history what was joined for it."""
        ready = self._ready.get(study, [])
        # History is read again where a topic is: what is known there stays as it is.
        known = tx.event_places([_name(attempt.observation) for attempt in ready])
        fresh = [attempt for attempt in ready if _name(attempt.observation) not in known]
        sequences = [attempt.row.sequence for attempt in fresh if attempt.row.sequence is not None]
        # One that ran for so long that it was pruned meanwhile counts anew.
        earlier = {job.sequence: job for job in tx.observations_left(study, sequences)}
        batch = [
            attempt.observation
            if (before := earlier.get(attempt.row.sequence or 0)) is None
            else corrected(attempt.observation, before)
            for attempt in fresh
        ]
        if batch:
            added = tx.add_observations(study, self.signals.fill_in(tx, study, batch), now)
            assert len(added.fresh) == len(batch), added.conflicts
            for sequence, attempt in enumerate(fresh, start=added.first_sequence):
                attempt.row.sequence = sequence
                self.joined[attempt.how] += 1
        for attempt in ready:
            if (place := known.get(_name(attempt.observation))) is not None:
                attempt.row.study, attempt.row.sequence = place
            attempt.row.ended = attempt.how != "running"
            attempt.row.corrections += (
                attempt.row.material is not None and attempt.how == "corrected"
            )
            attempt.row.material = attempt.material if attempt.row.ended else None

    def save(self, tx: Transaction) -> None:
        """Keep what still waits, and what was joined for a while."""
        tx.save_attempts(self._rows)


@dataclass
class HalfJoiner:
    """Joins what ingest reads."""

    store: Store
    settings: IngestSettings
    clock: Callable[[], float]
    """Monotonic seconds."""
    signals: SignalContext = field(default_factory=SignalContext)
    _studies: dict[str, tuple[int, Study | None]] = field(default_factory=dict)
    """By name, the generation and what it says; None where this version cannot read it."""
    _looked_at: dict[str, Study | None] = field(default_factory=dict)
    """The same of this batch, as it is now."""
    _open: int = 0
    _counted_at: float = float("-inf")
    _tidied_at: float = float("-inf")

    def join(
        self, tx: Transaction, halves: Sequence[tuple[JobHalf, StreamRecord]], now: datetime
    ) -> JoinedBatch:
        """Put halves to those that are known. Nothing is kept before :meth:`JoinedBatch.save`."""
        batch = JoinedBatch(self.signals)
        if not halves:
            return batch
        self._looked_at = {}
        rows = tx.take_attempts([half.key for half, _ in halves], now)
        turned_away = self._turned_away(tx, rows.values(), now)
        states: dict[AttemptKey, AttemptHalves] = {}
        last: dict[AttemptKey, StreamRecord] = {}
        for half, record in halves:
            key = half.key
            if key in turned_away:
                if (why := turned_away[key]) is None:
                    batch.duplicates += 1
                else:
                    batch.rejections.append((why, record))
                continue
            if key not in states:
                states[key] = _halves_of(rows[key])
            match states[key].add(half):
                case "fresh":
                    batch.kept += 1
                    last[key] = record
                case "duplicate":
                    batch.duplicates += 1
                case "conflict":
                    batch.rejections.append((conflict(half.event_id, half.source), record))
                case "too large":
                    why = Rejection(
                        "value",
                        f"with it the halves of this attempt are more than {kib(MAX_EVENT_BYTES)}",
                    )
                    batch.rejections.append((why, record))
        for key, record in last.items():
            self._settle(tx, batch, key, rows[key], states[key], record, now)
        nothing = [key for key, row in rows.items() if row.is_new and key not in last]
        tx.drop_attempts(nothing)
        return batch

    def tidy(self, now: datetime) -> None:
        """Forget, now and then, what was joined or kept for long enough."""
        if self.clock() - self._tidied_at < TIDY_S:
            return
        waits = timedelta(days=self.settings.halves_wait_days)
        with self.store.transaction() as tx:
            now = tx.no_later(now)
            pruned = tx.prune_attempts(ended=True, before=now - JOINED_KEPT, limit=TIDY_MOST)
            pruned += tx.prune_attempts(
                ended=False, before=now - waits - INCOMPLETE_KEPT, limit=TIDY_MOST
            )
        if pruned < TIDY_MOST:
            self._tidied_at = self.clock()

    def _settle(
        self,
        tx: Transaction,
        batch: JoinedBatch,
        key: AttemptKey,
        row: AttemptRow,
        halves: AttemptHalves,
        record: StreamRecord,
        now: datetime,
    ) -> None:
        """See what an attempt teaches, with what has come."""
        if row.sequence is None:
            row.study = halves.study  # what counts already stays where it counts
        missing = halves.missing
        row.missing, row.last_at = ",".join(missing), now
        row.halves = _encode(halves).decode()
        batch._rows.append(row)
        if (how := self._teaches(tx, row, halves, missing)) is None:
            return
        assert row.study is not None
        event_id = attempt_event_id(key)
        if how == "running":
            event_id += "#running"
        elif row.ended:
            event_id += f"#{row.corrections + 1}"
        running_at = now if how == "running" else None
        read = halves.observation(key, event_id, running_at=running_at)
        if isinstance(read, Rejection):
            batch.rejections.append((read, record))
            return
        read = msgspec.structs.replace(read, study=row.study)
        joined = _JoinedAttempt(row, read, how, halves.material)
        batch._ready.setdefault(row.study, []).append(joined)

    def _teaches(
        self, tx: Transaction, row: AttemptRow, halves: AttemptHalves, missing: Sequence[str]
    ) -> Joined | None:
        """As what an attempt counts anew; None where it does not."""
        if not missing:
            if row.sequence is None:
                return "ended"
            changed = not row.ended or row.material != halves.material
            return "corrected" if changed else None
        if row.sequence is not None or list(missing) != ["completed"] or halves.history:
            return None
        study = self._study(tx, row.study or "")
        if study is None or not study.running.counts:
            return None
        options = study.running
        enough = halves.measured(study.objective.metric, options.min_steps, options.min_hours)
        return "running" if enough else None

    def _study(self, tx: Transaction, name: str) -> Study | None:
        if name not in self._looked_at:
            self._looked_at[name] = self._read(tx, name)
        return self._looked_at[name]

    def _read(self, tx: Transaction, name: str) -> Study | None:
        row = tx.study(name)
        if row is None:
            return None
        known = self._studies.get(name)
        if known is None or known[0] != row.generation:
            generation = tx.generation(name)
            study = None
            if generation is not None:
                try:
                    study = parse_study(generation.text, name)
                except MisconfiguredError:
                    study = None  # of another version of tunerd: only ends count
            known = self._studies[name] = (row.generation, study)
        return known[1]

    def _turned_away(
        self, tx: Transaction, rows: Iterable[AttemptRow], now: datetime
    ) -> dict[AttemptKey, Rejection | None]:
        """Attempts that are opened no more: None for those that history has, with why for those
        that are too many."""
        opened = [AttemptKey(*row.key) for row in rows if row.is_new]
        if not opened:
            return {}
        names = {(key.cluster, attempt_event_id(key)): key for key in opened}
        known = tx.event_places(list(names))
        rejections: dict[AttemptKey, Rejection | None] = {names[name]: None for name in known}
        if self.clock() - self._counted_at > COUNT_S:
            counts = tx.attempt_counts(now)
            self._open = counts.waiting + counts.incomplete - len(opened)
            self._counted_at = self.clock()
        self._open += len(opened) - len(rejections)
        most = self.settings.max_waiting_attempts
        if self._open > most:
            why = Rejection(
                "job_id",
                f"{most:,} attempts wait for their halves already (ingest.max_waiting_attempts)",
            )
            rejections |= {key: why for key in opened if key not in rejections}
            self._open -= len(opened)
        return rejections


def _halves_of(row: AttemptRow) -> AttemptHalves:
    """What was kept of an attempt; nothing where that is damaged, with a line in the log."""
    if row.is_new:
        return AttemptHalves()
    try:
        return _decode(row.halves)
    except (msgspec.MsgspecError, ValueError) as error:
        log.error("what was kept of attempt %s is damaged and forgotten: %s", row.key, error)
        return AttemptHalves()


def _name(observation: Observation) -> tuple[str, str]:
    return observation.source, observation.event_id
