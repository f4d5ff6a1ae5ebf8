"""Signals: their points, each time once, and what is planned on their forecasts."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from tunerd.errors import CorruptDataError
from tunerd.store.access import StoreReads, StoreWrites, chunks
from tunerd.store.json_text import from_json, to_json
from tunerd.store.tables import forecast_plans, signal_points, signals

__all__ = ["MOST_SIGNALS", "AddedPoints", "SignalReads", "SignalWrites", "shifts_of"]

MOST_SIGNALS = 1_000
"""Signals that are kept. A label with a value of its own for each job would make one of each."""
KEPT = timedelta(days=60)
"""How long points are kept: eight weeks show a day and a week."""
_CHUNK = 300

log = logging.getLogger(__name__)

Point = tuple[str, datetime, float]
"""A signal's written name, a time and the value."""


@dataclass(frozen=True, slots=True)
class AddedPoints:
    """What became of a batch of points."""

    fresh: int
    duplicates: int
    """Of a signal and time that are known; the first value stays."""
    refused: tuple[int, ...]
    """Places in the batch of points of further signals than are kept …"""
    outdated: tuple[int, ...]
    """… and of such as are older than points are kept."""


class _KeptHour(msgspec.Struct):
    start_s: float
    end_s: float
    low: float
    median: float
    high: float
    lowest: float
    highest: float
    contexts: dict[str, float]
    key: str
    others: dict[str, tuple[float, float, float, float, float]] = {}
    others_came: dict[str, float | None] = {}


class _KeptSignal(msgspec.Struct):
    signal: str
    methods: dict[str, float]


class _StandingPlan(msgspec.Struct):
    key: str
    sent_s: float
    hours: list[tuple[float, float, str]]


class _KeptShift(msgspec.Struct):
    began_s: float
    noticed_s: float
    up: bool
    feature: str | None = None
    context_keys: list[str] = []


class _KeptPlan(msgspec.Struct):
    signal: str
    context: dict[str, bool | float | str | None]
    state: Literal["active", "withdrawn"]
    why: str
    methods: dict[str, float]
    windows: list[_KeptHour]
    past: list[_KeptHour]
    published: _StandingPlan | None = None
    others: dict[str, _KeptSignal] = {}
    shifts: dict[str, _KeptShift] = {}


class _PlanDocument(msgspec.Struct):
    """What readers of a document rely on."""

    feature: str
    signals: list[_KeptPlan]
    shifts: dict[str, _KeptShift] = {}


def shifts_of(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The level shifts in a document of plans that are not over, by signal. An earlier tunerd kept
    them with each context's plan."""
    usual = {"feature": document["feature"], "context_keys": []}
    by_context = [plan.get("shifts", {}) for plan in document["signals"]]
    shifts = [*by_context, document.get("shifts", {})]
    return {name: {**usual, **shift} for some in shifts for name, shift in some.items()}


class SignalReads(StoreReads):
    """Looking at signals."""

    def signal_names(self) -> dict[str, datetime]:
        """All signals, with the time of their latest point."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(signals.c.name, signals.c.last_at))
            return {row.name: row.last_at for row in rows}

    def signal_points(
        self, name: str, since: datetime, until: datetime | None = None
    ) -> list[tuple[float, float]]:
        """(seconds since 1970, value) of a signal from a time on, in the order of times."""
        return self.points_by_signal([name], since, until)[name]

    def points_by_signal(
        self, names: Collection[str], since: datetime, until: datetime | None = None
    ) -> dict[str, list[tuple[float, float]]]:
        """The same of several signals, by name; an empty list for one without points."""
        wanted = [signals.c.name.in_(names), signal_points.c.at_ms >= _ms(since)]
        if until is not None:
            wanted.append(signal_points.c.at_ms < _ms(until))
        statement = (
            sa.select(signals.c.name, signal_points.c.at_ms, signal_points.c.value)
            .join(signals, signals.c.id == signal_points.c.signal_id)
            .where(*wanted)
            .order_by(signal_points.c.signal_id, signal_points.c.at_ms)
        )
        points: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        with self._reading() as connection:
            for name, at_ms, value in connection.execute(statement):
                points[name].append((at_ms / 1000, value))
        return points

    def signal_mean(self, name: str, start: datetime, end: datetime) -> float | None:
        """Mean of a signal's points in an interval, its ends included; None without any."""
        statement = (
            sa.select(sa.func.avg(signal_points.c.value))
            .join(signals, signals.c.id == signal_points.c.signal_id)
            .where(signals.c.name == name, signal_points.c.at_ms.between(_ms(start), _ms(end)))
        )
        with self._reading() as connection:
            mean = connection.execute(statement).scalar_one_or_none()
            return None if mean is None else float(mean)

    def signal_means(self, since: datetime, until: datetime) -> dict[str, float]:
        """Of each signal with points in a time the mean of these, by name."""
        statement = (
            sa.select(signals.c.name, sa.func.avg(signal_points.c.value))
            .join(signals, signals.c.id == signal_points.c.signal_id)
            .where(
                signal_points.c.signal_id.in_(sa.select(signals.c.id)),  # by the index, not a scan
                signal_points.c.at_ms >= _ms(since),
                signal_points.c.at_ms < _ms(until),
            )
            .group_by(signals.c.name)
        )
        with self._reading() as connection:
            return {name: float(mean) for name, mean in connection.execute(statement)}

    def count_signal_points(
        self, names: Collection[str], since: datetime, until: datetime
    ) -> dict[str, int]:
        """How many points of each signal there are from one time to another, which is left out."""
        statement = (
            sa.select(signals.c.name, sa.func.count())
            .join(signal_points, signals.c.id == signal_points.c.signal_id)
            .where(
                signals.c.name.in_(names),
                signal_points.c.at_ms >= _ms(since),
                signal_points.c.at_ms < _ms(until),
            )
            .group_by(signals.c.name)
        )
        with self._reading() as connection:
            counts = {name: int(count) for name, count in connection.execute(statement)}
        return {name: counts.get(name, 0) for name in names}

    def forecast_plan(self, study: str) -> tuple[datetime, dict[str, Any]] | None:
        """When a study's plan was made, and the plan; None where there is none, or a damaged one,
        which the log tells: the next forecast takes its place."""
        row = self._forecast_row(study)
        if row is None:
            return None
        try:
            document = from_json(row.document, f"the forecast of study {study}")
            msgspec.convert(document, _PlanDocument)
        except (CorruptDataError, msgspec.ValidationError) as error:
            log.error("the forecast of study %s is damaged, and made anew: %s", study, error)
            return None
        return row.made_at, document

    def forecast_document(self, study: str) -> str | None:
        """A study's plan as it is written: to see whether it is still the same."""
        row = self._forecast_row(study)
        return None if row is None else row.document

    def _forecast_row(self, study: str) -> sa.Row[Any] | None:
        statement = sa.select(forecast_plans).where(forecast_plans.c.study == study)
        with self._reading() as connection:
            return connection.execute(statement).one_or_none()


class SignalWrites(SignalReads, StoreWrites):
    """Keeping points and plans."""

    def add_signal_points(self, batch: Sequence[Point], now: datetime) -> AddedPoints:
        """Keep what is new."""
        if not batch:
            return AddedPoints(0, 0, (), ())
        latest: dict[str, datetime] = {}
        for name, at, _ in batch:
            if at > now - KEPT:  # what is older takes no signal's place
                latest[name] = max(at, latest.get(name, at))
        ids = self._signal_ids(latest)
        rows = {
            (ids[name], _ms(at)): value
            for name, at, value in reversed(batch)  # of one time in a batch the first stays
            if name in ids and at > now - KEPT
        }
        fresh = 0
        if rows:
            # As parameters, and not within the statement: to make that anew takes most of the time.
            statement = self._database.insert(signal_points).on_conflict_do_nothing()
            fresh = self._connection.execute(
                statement,
                [  # in the order of names, as above: late points lock no signal first
                    {"signal_id": key[0], "at_ms": key[1], "value": rows[key]}
                    for key in sorted(rows)
                ],
            ).rowcount
        refused = tuple(
            i for i, (name, _, _) in enumerate(batch) if name in latest and name not in ids
        )
        outdated = tuple(i for i, (_, at, _) in enumerate(batch) if at <= now - KEPT)
        refused = tuple(i for i in refused if batch[i][1] > now - KEPT)
        duplicates = len(batch) - fresh - len(refused) - len(outdated)
        return AddedPoints(fresh, duplicates, refused, outdated)

    def prune_signals(self, now: datetime) -> int:
        """Drop points that are older than are kept, and signals without any; returns how many
        points."""
        before = now - KEPT
        dropped = self._connection.execute(
            sa.delete(signal_points).where(
                signal_points.c.signal_id.in_(sa.select(signals.c.id)),  # by the index, not a scan
                signal_points.c.at_ms < _ms(before),
            )
        ).rowcount
        self._connection.execute(sa.delete(signals).where(signals.c.last_at < before))
        return dropped

    def save_forecast_plan(self, study: str, plan: dict[str, Any], now: datetime) -> str:
        """Take the place of a study's plan. Returns the document as it is written."""
        values = {"made_at": now, "document": to_json(plan, "a plan")}
        self._connection.execute(
            self._database.insert(forecast_plans)
            .values(study=study, **values)
            .on_conflict_do_update(index_elements=["study"], set_=values)
        )
        return str(values["document"])

    def _signal_ids(self, latest: dict[str, datetime]) -> dict[str, int]:
        """Ids of signals by name; new ones are added while there is room."""
        names = sorted(latest)  # two instances cannot wait for each other in a circle
        known = self._known_signals(names)
        fresh = [name for name in names if name not in known]
        if fresh:
            count = self._connection.execute(sa.select(sa.func.count()).select_from(signals))
            room = MOST_SIGNALS - int(count.scalar_one())
            for name in fresh[: max(0, room)]:
                self._connection.execute(
                    self._database.insert(signals)
                    .values(name=name, last_at=latest[name])
                    .on_conflict_do_nothing(index_elements=["name"])
                )
            known = self._known_signals(names)
        later = [{"number": known[name], "at": latest[name]} for name in names if name in known]
        if later:
            self._connection.execute(
                sa.update(signals)
                .where(signals.c.id == sa.bindparam("number"))
                .where(signals.c.last_at < sa.bindparam("at"))
                .values(last_at=sa.bindparam("at")),
                later,
            )
        return known

    def _known_signals(self, names: Sequence[str]) -> dict[str, int]:
        known: dict[str, int] = {}
        for chunk in chunks(names, _CHUNK):
            statement = sa.select(signals.c.id, signals.c.name).where(signals.c.name.in_(chunk))
            known |= {name: number for number, name in self._connection.execute(statement)}
        return known


def _ms(at: datetime) -> int:
    return round(at.astimezone(UTC).timestamp() * 1000)
