"""The forecasters of the signals that studies use, brought up to date from the store."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from tunerd.core.forecasting.context_plan import SignalKey
from tunerd.core.forecasting.forecaster import SignalForecaster
from tunerd.store import Store
from tunerd.store.access import chunks
from tunerd.store.signals import KEPT

__all__ = ["SignalForecasters"]

T = TypeVar("T")

RESOLUTION_S = 300
MADE_AT_ONCE = 5
"""Forecasters that are made in a step, at most: each takes half a second and more."""
REPLAYED = timedelta(days=21)
"""Latest points over which methods are scored after a start: most of the half second."""
READ_AT_ONCE = timedelta(days=2)
"""A point each second for as long as they are kept would take a gigabyte at once."""
SIGNALS_AT_ONCE = 100
"""Of a statement. They are read once an hour; more would take no fewer seconds."""
IN_TIME = timedelta(minutes=15)
"""A point that comes later than this is late: it is not learned from as time goes on."""
READ_AGAIN = timedelta(minutes=45)
"""How much of what is over is read again, so that late points show in the plan's hours at once."""
LOOKED_BACK = timedelta(hours=6)
"""How often it is looked whether points came late, at least; more often for a forecaster that is
younger. To count two months of points takes as long as a forecast."""
MADE_AGAIN = timedelta(minutes=50)
"""How old a forecaster is, at least, that is made anew for late points."""
COUNTED = timedelta(days=7)
"""How much later than the oldest point counting begins: those are dropped meanwhile."""


@dataclass
class _Reading:
    """What a forecaster has read of its signal."""

    made_at: datetime
    """When the forecaster was made."""
    since: datetime
    until: datetime
    """Points from then until then are counted: a further one came late."""
    looked_at: datetime
    """When it was counted again last."""
    count: int
    is_late: bool = False
    """Methods and bands have not learned from late points, so the forecaster is to be made anew."""


class SignalForecasters(Mapping[SignalKey, SignalForecaster]):
    """By signal; in memory only, the store has the points."""

    def __init__(self, store: Store) -> None:
        self.room = MADE_AT_ONCE
        """How many may still be made in this step."""
        self._store = store
        self._made: dict[SignalKey, SignalForecaster] = {}
        self._readings: dict[SignalKey, _Reading] = {}

    def __getitem__(self, signal: SignalKey) -> SignalForecaster:
        return self._made[signal]

    def __iter__(self) -> Iterator[SignalKey]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def keep(self, used: Collection[SignalKey]) -> None:
        """Forget all others."""
        for signal in self._made.keys() - used:
            del self._made[signal], self._readings[signal]

    def read(self, wanted: Mapping[SignalKey, int], now: datetime) -> bool:
        """Bring these to now, each with so many slots ahead at least. False where more of them are
        to be made than there is room for in this step: nothing is read then but what was made."""
        self._look_for_late_points(wanted, now)
        unmade = [
            signal
            for signal, horizon in wanted.items()
            if signal not in self._made
            or self._made[signal].horizon < horizon
            or self._readings[signal].is_late
        ]
        made = unmade[: self.room]
        for signal in made:
            self._make(signal, wanted[signal], now)
        self.room -= len(made)
        if len(made) < len(unmade):
            return False
        self._read_on(wanted, now)
        return True

    def _make(self, signal: SignalKey, horizon: int, now: datetime) -> None:
        capacity = int(KEPT.total_seconds() / RESOLUTION_S)
        lowest = 0.0 if signal[1] else None
        if signal in self._made:
            horizon = max(horizon, self._made[signal].horizon)
        forecaster = SignalForecaster(RESOLUTION_S, horizon, capacity=capacity, lowest=lowest)
        since = now - KEPT
        while since < now:
            until = min(since + READ_AT_ONCE, now)
            forecaster.series.add_all(self._store.signal_points(signal[0], since, until))
            since = until
        forecaster.resume((now - REPLAYED).timestamp())
        forecaster.advance(now.timestamp())
        counted = _counted_since(now), now - IN_TIME
        count = self._store.count_signal_points([signal[0]], *counted)[signal[0]]
        self._made[signal] = forecaster
        self._readings[signal] = _Reading(now, *counted, now, count)

    def _read_on(self, signals: Collection[SignalKey], now: datetime) -> None:
        """Read what came since, many signals with a statement."""
        until = now - IN_TIME
        behind = [signal for signal in signals if self._readings[signal].until != until]
        for since, some in _by(behind, lambda signal: self._readings[signal].until):
            names = {name for name, _ in some}
            points = self._store.points_by_signal(names, since - READ_AGAIN, now)
            for signal in some:
                came, reading = points[signal[0]], self._readings[signal]
                self._made[signal].series.add_all(came)
                if until > since:  # a clock may be set back
                    first, last = (bisect_left(came, (at.timestamp(),)) for at in (since, until))
                    reading.count += last - first
                    reading.until = until
                self._made[signal].advance(now.timestamp())
        dropped = [s for s in behind if self._readings[s].since < now - KEPT]
        for signal in dropped:
            self._readings[signal].since = _counted_since(now)
        for signal, count in self._counts(dropped).items():
            self._readings[signal].count = count

    def _look_for_late_points(self, signals: Collection[SignalKey], now: datetime) -> None:
        """Whether points came of a time that was over; now and then."""
        due = []
        for signal in signals:
            reading = self._readings.get(signal)
            if reading is None or reading.until == now - IN_TIME:
                continue
            often = min(max((now - reading.made_at) / 4, MADE_AGAIN), LOOKED_BACK)
            if now - reading.looked_at >= often:
                reading.looked_at = now
                due.append(signal)
        for signal, count in self._counts(due).items():
            self._readings[signal].is_late |= count > self._readings[signal].count

    def _counts(self, signals: Collection[SignalKey]) -> dict[SignalKey, int]:
        """How many points there are where those of each signal are counted."""
        counts: dict[SignalKey, int] = {}
        readings = self._readings
        for times, some in _by(signals, lambda s: (readings[s].since, readings[s].until)):
            names = self._store.count_signal_points({name for name, _ in some}, *times)
            counts |= {signal: names[signal[0]] for signal in some}
        return counts


def _counted_since(now: datetime) -> datetime:
    """On the hour, so that one statement counts for all that were made in it."""
    return (now - KEPT + COUNTED).replace(minute=0, second=0, microsecond=0)


def _by(
    signals: Collection[SignalKey], key: Callable[[SignalKey], T]
) -> Iterator[tuple[T, Sequence[SignalKey]]]:
    """Signals that share something, as many as a statement takes."""
    alike: dict[T, list[SignalKey]] = {}
    for signal in signals:
        alike.setdefault(key(signal), []).append(signal)
    for shared, some in alike.items():
        for chunk in chunks(some, SIGNALS_AT_ONCE):
            yield shared, chunk
