"""What no stage reports, or could not report if it stood still: measured now and then.

So is whether the store is still the one that the daemon holds: a database that was away may have
failed over to one that lacks transactions, or been given to another daemon meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tunerd import telemetry
from tunerd.core.observation import Value
from tunerd.errors import AlreadyRunningError, StoreUnavailableError, StreamUnavailableError
from tunerd.events import from_bytes
from tunerd.service.membership import Membership
from tunerd.service.tuner_process import TunerProcess
from tunerd.stages.ingest import IngestStage
from tunerd.stages.topic_check import why_behind
from tunerd.store import InstanceLock, RecommendationRow, Store
from tunerd.store.signals import shifts_of
from tunerd.streams.base import Stream

__all__ = ["GaugeSampler"]

MOST_CONTEXTS = 20
"""Contexts of a study whose recommended numbers have gauges: those recommended for last."""
MOST_PARAMETERS = 20
FORESEEN_EVERY_S = 60.0
"""How often plans are read. An hour begins so late at most."""
MOST_KEY = 300
"""Characters of a context's key; a longer one has no gauge."""


class _PlannedNow(NamedTuple):
    """What a plan has for the hour that holds."""

    context: str
    """Without its signal: the context key without the study."""
    numbers: dict[str, float]
    """Recommended for the context that is planned for."""
    quantiles: dict[str, dict[str, float]]
    """Of each signal, by feature."""


@dataclass
class GaugeSampler:
    """Those of one daemon. In a thread of their own: a database that does not answer must keep no
    signal waiting."""

    store: Store
    stream: Stream
    guards: Mapping[str, InstanceLock]
    """What the daemon has claimed: the ``store``, and the ``folder`` of its streams if it has one.
    """
    topic: str
    """Of the recommendations."""
    ingest: IngestStage | None
    tuner: TunerProcess | None
    is_away: Callable[[str], bool]
    """Whether a stage waits for what it cannot reach."""
    hear: Callable[[telemetry.Report], None]
    note: Callable[[str, str], None]
    """Told what keeps the daemon from being ready, by subject; an empty text says that it is over.
    """
    now: Callable[[], datetime]
    members: Membership | None = None
    """Where several instances share the store: a study has gauges where its lease is."""
    _recommended: Mapping[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """By study, as of ``_issued_at``."""
    _issued_at: datetime | None = None
    _planned: Mapping[str, list[_PlannedNow]] = field(default_factory=dict)
    """By study, as of ``_planned_at``."""
    _shifted: Mapping[str, int] = field(default_factory=dict)
    """Signals at another level than was foreseen, by study, as of ``_planned_at``."""
    _planned_at: datetime | None = None
    _held: frozenset[str] = frozenset()
    """Studies of this instance, of several, when it was last looked."""
    _unsure: bool = False
    """Whether the store may have lost what it knew since it was last compared with the topic."""

    def measure(self) -> Iterator[tuple[str, str]]:
        """Tell everything; yields what the daemon has to end for: an event, and the problem."""
        if self.ingest is not None:
            lag = None if self.is_away("ingest") else self.ingest.lag()
            self.hear(telemetry.ConsumerLag(records=lag))
            if self.ingest.overtaken:
                self._unsure, self.ingest.overtaken = True, False
        self._let_go()
        if self.tuner is not None:
            self.hear(telemetry.TunerMemory(resident_bytes=self.tuner.resident_bytes))
        yield from self._check()
        try:
            self._count()
        except StoreUnavailableError:
            self.hear(telemetry.OutboxBacklog(waiting=None))
            self.hear(telemetry.RequestBacklog(requests=None))
            self.hear(telemetry.AttemptBacklog(waiting=None))
        if problem := self._lost():
            yield "the store lost what it knew", problem

    def _let_go(self) -> None:
        """Another instance shows a study that is its now. A tuner process that was cut off from the
        store, or has just been started, knows nothing of what it had."""
        held = frozenset() if self.members is None else self.members.studies
        for study in sorted(self._held - held):
            self.hear(telemetry.StudyReleased(study=study))
        self._held = held

    def _check(self) -> Iterator[tuple[str, str]]:
        """See whether what was claimed is there and still ours. A stage with nothing to do would
        not notice."""
        for what, guard in self.guards.items():
            problem = ""
            try:
                self._unsure = guard.check() or self._unsure
            except StoreUnavailableError as error:
                problem = f"{what}: {error}"
            except AlreadyRunningError as error:
                yield f"another daemon took the {what} while it was away", str(error)
            self.note(what, problem)

    def _count(self) -> None:
        waiting = self.store.outbox_depths().values()
        progress = self.store.progress() if self.tuner is not None else []
        if self.members is not None:
            progress = [study for study in progress if study.name in self.members.studies]
        asked = sum(self.store.requests_waiting().values())
        now = self.now()
        oldest_s = max(((now - queue.oldest_at).total_seconds() for queue in waiting), default=0.0)
        unsent = sum(queue.unsent for queue in waiting)
        self.hear(telemetry.OutboxBacklog(waiting=unsent, oldest_s=oldest_s))
        self.hear(telemetry.RequestBacklog(requests=asked))
        if self.ingest is not None:
            waits = timedelta(days=self.ingest.settings.halves_wait_days)
            attempts = self.store.attempt_counts(now - waits)
            self.hear(
                telemetry.AttemptBacklog(waiting=attempts.waiting, incomplete=attempts.incomplete)
            )
        held = self._recommended.keys() >= {study.name for study in progress}
        issued_at = self.store.last_issued_at() if progress else self._issued_at
        if issued_at != self._issued_at or not held:
            self._recommended = {
                queue.name: _numbers(
                    self.store.recommendations(queue.name, states=("active",), latest=MOST_CONTEXTS)
                )
                for queue in progress
            }
            self._issued_at = issued_at
        age_s = (
            float("inf") if self._planned_at is None else (now - self._planned_at).total_seconds()
        )
        if age_s >= FORESEEN_EVERY_S or not held:
            kept = {queue.name: self.store.forecast_plan(queue.name) for queue in progress}
            documents = {name: plan[1] for name, plan in kept.items() if plan is not None}
            self._planned = {
                name: self._plans(name, document["feature"], document["signals"], now)
                for name, document in documents.items()
            }
            self._shifted = {name: len(shifts_of(of)) for name, of in documents.items()}
            self._planned_at = now
        for queue in progress:
            planned = self._planned.get(queue.name, [])
            self.hear(
                telemetry.StudyBacklog(
                    study=queue.name,
                    sequence=queue.learned_sequence,
                    waiting=queue.last_sequence - queue.learned_sequence,
                    last_at=queue.last_received_at.timestamp() if queue.last_received_at else None,
                    recommended={
                        **self._recommended.get(queue.name, {}),
                        # Where nothing is recommended for the hour, what the context has itself.
                        **{plan.context: plan.numbers for plan in planned if plan.numbers},
                    },
                    foreseen={plan.context: plan.quantiles for plan in planned},
                    signals_shifted=self._shifted.get(queue.name, 0),
                )
            )

    def _plans(
        self, study: str, feature: str, kept: Sequence[Mapping[str, Any]], now: datetime
    ) -> list[_PlannedNow]:
        """What is planned for this hour, and recommended there, of so many contexts at most."""
        planned: list[_PlannedNow] = []
        for plan in kept:
            key = (plan.get("published") or {}).get("key", "")
            hours = [
                hour
                for hour in plan["windows"]
                if hour["start_s"] <= now.timestamp() < hour["end_s"]
            ]
            if not key or len(key) > MOST_KEY or not hours:
                continue  # withdrawn, or not published
            if len(planned) == MOST_CONTEXTS:
                break
            row = self.store.recommendation(study, hours[0]["key"])
            active = row is not None and row.state == "active"
            numbers = _numbers([row]) if row and active else {}
            bands = {feature: [hours[0][name] for name in ("low", "median", "high")]}
            bands |= {name: band[:3] for name, band in hours[0].get("others", {}).items()}
            quantiles = {
                name: dict(zip(("0.1", "0.5", "0.9"), map(float, band), strict=True))
                for name, band in bands.items()
            }
            planned.append(
                _PlannedNow(key.partition("|")[2], next(iter(numbers.values()), {}), quantiles)
            )
        return planned

    def _lost(self) -> str | None:
        """What the topic knows and the store does not, where that may be. A start says what to do
        about it."""
        if not self._unsure:
            return None
        try:
            problem = why_behind(self.store, self.stream, self.topic)
        except (StreamUnavailableError, StoreUnavailableError):
            return None  # the stages say what is wrong
        self._unsure = False
        return problem


def _numbers(rows: Sequence[RecommendationRow]) -> dict[str, dict[str, float]]:
    """What most jobs of a context are told: the incumbent's numbers, else the baseline's."""
    numbers: dict[str, dict[str, float]] = {}
    for row in rows:
        values = {
            name: float(value)
            for name, value in list(_launched(row).items())[:MOST_PARAMETERS]
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        if values and len(row.context_key) <= MOST_KEY:
            numbers[row.context_key.partition("|")[2]] = values
    return numbers


def _launched(row: RecommendationRow) -> Mapping[str, Value]:
    """What most jobs of a context are launched with; nothing where the row is damaged, which who
    tunes the study says."""
    try:
        message = from_bytes(row.value.encode())
    except (ValueError, TypeError):
        return {}
    incumbent = message.incumbent
    return (incumbent.config if incumbent else message.baseline) or {}
