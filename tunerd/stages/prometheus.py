"""Signals from Prometheus: what is not known yet is asked for, window by window.

Whoever holds the lease asks. A question begins where the store's points of that name end. So
neither a start nor an outage loses what Prometheus still has, and what comes twice changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter

from tunerd import logs, telemetry
from tunerd.errors import StreamUnavailableError
from tunerd.events import Rejection, SignalPoint, TimeLimits
from tunerd.events.signal import SIGNAL_SCHEMA, read_signal
from tunerd.settings.model import PrometheusSettings
from tunerd.stages.signal_context import too_many_signals
from tunerd.store import Store
from tunerd.store.signals import KEPT, Point
from tunerd.streams.prometheus import PrometheusClient, PrometheusSeries

__all__ = ["PrometheusStage"]

LEASE, LEASE_S = "signals", 120.0
LATE_S = 30.0
"""So long after its time a value is asked for: samples are scraped and sent on until then."""
OVERLAP_S = 300.0
"""So much of what is known is asked for again, for series whose samples came late."""
MOST_STEPS = 300
"""Of a question."""
AGAIN_S = 30.0
"""How soon a question that failed is asked again."""
BATCH_POINTS = 20_000
"""Of a transaction, about: nobody else writes meanwhile."""


@dataclass
class PrometheusStage:
    """The stage."""

    store: Store
    settings: PrometheusSettings
    owner: str
    listener: telemetry.TelemetryListener
    log: logs.Log
    remark: Callable[[str, str], None]
    """Told what somebody must see, by subject; an empty text says that it is over."""
    now: Callable[[], datetime]
    name: str = "prometheus"
    _until: dict[str, float] = field(default_factory=dict)
    """Up to when there are values of each query, in seconds since 1970 …"""
    _asked: dict[str, float] = field(default_factory=dict)
    """… and up to when it was asked. What answers may lag behind, without the latest of them."""
    _failed_at: dict[str, datetime] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._client = PrometheusClient(self.settings)

    def step(self) -> bool:
        """Ask one question; whether any was due."""
        now = self.now()
        step_s = self.settings.step_s
        end_s = (now.timestamp() - LATE_S) // step_s * step_s
        for name, query in self.settings.queries.items():
            failed_at = self._failed_at.get(name)
            if failed_at is not None and (now - failed_at).total_seconds() < AGAIN_S:
                continue
            if self._asked.get(name, 0.0) > end_s:  # the clock was ahead
                del self._asked[name], self._until[name]
            if self._asked.get(name, 0.0) >= end_s:
                continue
            if self.store.take_lease(LEASE, self.owner, LEASE_S) is None:
                self._leave_it(now)
                return False
            if name not in self._until:
                self._until[name] = min(self._stored_until(name), end_s)
            self._ask(name, query, end_s, now)
            return True
        return False

    def close(self) -> None:
        """Leave it to others at once."""
        with self.store.transaction() as tx:
            tx.release_leases(self.owner, [LEASE])

    def _leave_it(self, now: datetime) -> None:
        """Another instance asks, and says what is wrong."""
        self._until.clear()
        self._asked.clear()
        self._failed_at = dict.fromkeys(self.settings.queries, now)
        for name in list(self._problems):
            self._tell(name, "")

    def _stored_until(self, name: str) -> float:
        """Time of the latest point of a name, whatever its labels; 0 without any."""
        times = self.store.signal_names().items()
        mine = [at.timestamp() for signal, at in times if signal.partition("{")[0] == name]
        return max(mine, default=0.0)

    def _ask(self, name: str, query: str, end_s: float, now: datetime) -> None:
        step_s = self.settings.step_s
        oldest = now - min(timedelta(days=self.settings.backfill_days), KEPT)
        since_s = max(self._until[name] - OVERLAP_S, oldest.timestamp())
        start_s = -(-since_s // step_s) * step_s
        stop_s = min(end_s, start_s + (MOST_STEPS - 1) * step_s)
        try:
            answer = self._client.ask(query, start_s, stop_s)
        except StreamUnavailableError as error:
            self._failed_at[name] = now
            self.listener.hear(telemetry.PrometheusAsked(failed=True))
            self._tell(name, str(error))
            return
        points, refused = _points(name, answer.series, start_s, stop_s, now)
        fresh, without_room = self._save(points, now)
        if without_room:
            refused.append(too_many_signals())
        latest = max((at.timestamp() for _, at, _ in points), default=0.0)
        behind = stop_s < end_s  # of older times nothing more is coming
        self._until[name] = stop_s if behind else max(self._until[name], latest)
        self._asked[name] = stop_s
        self._failed_at.pop(name, None)
        self.listener.hear(telemetry.PrometheusAsked(points=fresh))
        warning = f"it warns: {answer.warning}" if answer.warning else ""
        self._tell(name, refused[0].reason if refused else warning)

    def _save(self, points: list[Point], now: datetime) -> tuple[int, bool]:
        """Keep points; how many are new, and whether there was no room for some. In the order of
        times: whatever the latest point is after a crash, all before it are there."""
        fresh, without_room = 0, False
        batch: list[Point] = []
        points = sorted(points, key=itemgetter(1))
        moments = [list(same) for _, same in groupby(points, itemgetter(1))]
        for place, moment in enumerate(moments, 1):
            batch += moment
            if len(batch) < BATCH_POINTS and place < len(moments):
                continue
            with self.store.transaction() as tx:
                added = tx.add_signal_points(batch, now)
            fresh += added.fresh
            without_room |= bool(added.refused)
            batch = []
        return fresh, without_room

    def _tell(self, name: str, problem: str) -> None:
        """Say what is wrong with a query, or that nothing is any more; once."""
        if self._problems.get(name, "") == problem:
            return
        self._problems[name] = problem
        sentence = f"signal {name} from Prometheus: {problem}"
        self.remark(f"prometheus {name}", sentence if problem else "")
        if problem:
            self.log.warning("signal not read from Prometheus", signal=name, problem=problem)
        else:
            self.log.info("signal read from Prometheus again", signal=name)


def _points(
    name: str, series: Sequence[PrometheusSeries], start_s: float, stop_s: float, now: datetime
) -> tuple[list[Point], list[Rejection]]:
    """What can be kept of an answer, and why the rest of its series cannot."""
    points: list[Point] = []
    refused: list[Rejection] = []
    taken: set[frozenset[tuple[str, str]]] = set()
    for each in series:
        kept = [point for point in each.points if start_s <= point[0] <= stop_s]
        if not kept:
            continue
        labels = frozenset(each.labels.items())
        if labels in taken:  # of two metrics: their points would be duplicates of each other
            refused.append(Rejection("labels", "several series have the same: sum by them"))
            continue
        taken.add(labels)
        read = [_read(name, each.labels, at_s, value, now) for at_s, value in kept]
        points += [(p.signal, p.time, p.value) for p in read if isinstance(p, SignalPoint)]
        refused += [p for p in read if isinstance(p, Rejection)][:1]
    return points, refused


def _read(
    name: str, labels: dict[str, str], at_s: float, value: float, now: datetime
) -> SignalPoint | Rejection:
    """A value as the record that somebody would have sent."""
    record = {"schema": SIGNAL_SCHEMA, "name": name, "labels": labels, "value": value}
    record["time"] = datetime.fromtimestamp(at_s, UTC)
    return read_signal(record, now, TimeLimits())
