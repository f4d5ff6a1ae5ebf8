"""Foresees one signal: methods side by side, weighted by how well each foresaw, with bands."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.forecasting.bands import LEVELS, ForecastBands
from tunerd.core.forecasting.methods import ForecastMethod, SignalHistory, make_methods
from tunerd.core.forecasting.seasons import DAY_S, WEEK_S, find_own_season
from tunerd.core.forecasting.series import SignalSeries

__all__ = ["SignalForecast", "SignalForecaster"]

LEADS = 12
"""Steps ahead at which methods are scored; between them weights and bands are interpolated."""
MEMORY_S = 10 * DAY_S
"""Half-life of what a method's errors count."""
LEAST_ORIGINS = 30
"""Half-life in origins, at least."""
SHARPNESS = 3.0
"""How fast a method's weight falls with what its errors are above the best method's, in shares of
those and times the root of how many there were: what is not told apart yet weighs the same."""
BLEND_MARGIN = 0.5
"""How much worse than the best method the blend may have done, likewise, before that one speaks
alone."""
WILDEST = 40.0
"""Errors count as so many usual ones at most: one burst says little about who foresees best."""
LEFT_OUT = 0.25
"""Share of the weight that is left out of the blend on either side."""
LEAST_WEIGHT = 0.08
"""A method that weighs less than this share of the weightiest one at every step is not asked for a
forecast, only scored."""
LEAST_SCORED = 10
"""Scored forecasts from which it is known what is usual."""
SEASON_EVERY_S = WEEK_S
SEASON_S = 5 * WEEK_S
"""How far back a season of its own is looked for."""
TELLING = 4.0
"""Errors, in units of the usual one, that move the watch for a shift at most."""
SHIFT_DRIFT = 1.5
SHIFT_ALARM = 12.0
"""Cumulative sum from which a level shift is told."""


@dataclass(frozen=True, slots=True)
class SignalForecast:
    """What a signal will be, slot by slot, as quantiles."""

    made_at: int
    """First slot that is foreseen, as :class:`~.series.SignalSeries` numbers them."""
    resolution_s: int
    quantiles: FloatArray
    """(horizon, levels), each row ascending."""
    levels: tuple[float, ...] = LEVELS

    def quantile(self, level: float) -> FloatArray:
        """(horizon,) one quantile, interpolated between those that are told."""
        return np.array([np.interp(level, self.levels, row) for row in self.quantiles])

    def step_of(self, time_s: float) -> int | None:
        """Place of a time among the slots; None where it is not foreseen."""
        step = math.floor(time_s / self.resolution_s) - self.made_at
        return step if 0 <= step < len(self.quantiles) else None

    def probability_below(self, step: int, value: float) -> float:
        """How probable it is that the signal is below a value; 0 and 1 beyond all quantiles."""
        row = self.quantiles[step]
        if value <= row[0]:
            return 0.0
        return 1.0 if value > row[-1] else float(np.interp(value, row, self.levels))


class _Origin:
    """A forecast that waits for what comes."""

    __slots__ = ("combined", "end", "members", "offsets")

    def __init__(
        self, end: int, members: FloatArray, combined: FloatArray, offsets: FloatArray
    ) -> None:
        self.end, self.members, self.combined, self.offsets = end, members, combined, offsets


class SignalForecaster:
    """Rolls along one signal. The same points in the same steps give the same forecasts.

    Args:
        resolution_s: length of a slot in seconds.
        horizon: slots that are foreseen.
        every: slots from one scored forecast to the next.
        capacity: slots that are kept; a year at five minutes is 105,120.
        lowest: what the signal cannot be below, such as 0 for a rate; None for any.
        makers: of the methods; all of :data:`~.methods.METHODS` by default.
    """

    def __init__(
        self,
        resolution_s: int = 300,
        horizon: int = 288,
        *,
        every: int = 24,
        capacity: int = 105_120,
        lowest: float | None = None,
        makers: Sequence[Callable[[], ForecastMethod]] | None = None,
    ) -> None:
        if horizon < 1 or every < 1:
            raise ValueError(f"a horizon and a pace are at least one slot: {horizon}, {every}")
        self.series = SignalSeries(resolution_s, capacity)
        self.horizon, self.every, self.lowest = horizon, every, lowest
        self.methods = make_methods(makers)
        self.leads = np.unique(np.geomspace(1, horizon, LEADS).round().astype(np.int64))
        self._overlap = np.maximum(1.0, self.leads / every)
        self.bands = ForecastBands(self._overlap)
        self.shifted_at: int | None = None
        """Slot at which a level shift was told last."""
        self.shifted_up = False
        """Whether the signal was above what was foreseen there."""
        self._filled = np.zeros(0)
        self._filled_end = 0
        self._observed_end = 0
        self._own: int | None = None
        self._own_at = -(10**18)
        shape = (len(self.methods) + 1, len(self.leads))
        self._loss = np.zeros(shape)
        self._count = np.zeros(shape)
        self._pending: dict[int, _Origin] = {}
        """By the slot that was the first to be foreseen."""
        half_life = max(MEMORY_S / (resolution_s * every), LEAST_ORIGINS)
        self._keep = 0.5 ** (1.0 / half_life)
        self._rise = self._fall = 0.0

    def add(self, time_s: float, value: float) -> bool:
        """Take a point in; whether it changed anything."""
        return self.series.add(time_s, value)

    def advance(self, now_s: float) -> None:
        """Time has come to here: every slot before is over. Score what was foreseen, and foresee
        from each origin that was passed. A point that comes for a slot that is over already is
        kept in the series and no longer learned from."""
        end = self.series.slot(now_s)
        if not len(self.series) or end <= self.series.start:
            return
        if end > self.series.end:
            self.series.extend(end)
        if not self._filled_end:
            self._filled_end = self.series.start
        while self._filled_end < end:
            stop = min((self._filled_end // self.every + 1) * self.every, end)
            since = self._filled_end
            self._fill(stop)
            self._score(since, stop)
            if stop % self.every == 0:
                self._take_origin()

    def resume(self, now_s: float) -> None:
        """Take what the series has before ``now_s`` as known, without foreseeing it slot by slot
        first: a year takes minutes, and the latest weeks say as much. For a forecaster that is new
        beside a series that is not."""
        end = min(self.series.slot(now_s), self.series.end)
        if end > self.series.start and not self._filled_end:
            self._filled_end = max(self.series.start, end - self._reach())
            self._fill(end)

    @property
    def nbytes(self) -> int:
        """Memory that slots, errors and what waits to be scored take, about."""
        waiting = sum(o.members.nbytes + o.offsets.nbytes for o in self._pending.values())
        return self.series.nbytes + self._filled.nbytes + self.bands.nbytes + waiting

    def forecast(self) -> SignalForecast | None:
        """What is foreseen from here; None while nothing is known."""
        history = self._history()
        if not len(history.values):
            return None
        steps = np.arange(1, self.horizon + 1)
        self._observe(history)
        weights = self._weights()
        wanted = np.asarray((weights > LEAST_WEIGHT * weights.max(axis=0)).any(axis=1))
        members = self._ask(history, steps, wanted)
        if not np.isfinite(members).any(axis=0).all():
            members = self._ask(history, steps)
        by_step = _between(self.leads, weights.T, steps).T
        middle = _combine(members, by_step)
        offsets = self.bands.offsets()
        known = np.isfinite(offsets[:, 0])
        times = np.asarray((history.end + steps - 1.0) * history.resolution_s, np.float64)
        if known.any():
            offset = _between(self.leads[known], offsets[known], steps)
            scale = self.bands.scale(times)
        else:  # nothing was scored yet: as wide as the signal moves
            spread = float(np.std(history.values[-self.horizon :])) or abs(float(middle[0])) or 1.0
            offset = np.tile(_NORMAL, (len(steps), 1))
            scale = np.full(len(steps), spread)
        quantiles = np.sort(middle[:, None] + offset * scale[:, None], axis=1)
        if self.lowest is not None:
            quantiles = np.maximum(quantiles, self.lowest)
        return SignalForecast(history.end, history.resolution_s, quantiles)

    def shares(self) -> dict[str, float]:
        """What each method weighs, over all steps ahead."""
        mean = self._weights().mean(axis=1)
        return {
            method.name: float(weight) for method, weight in zip(self.methods, mean, strict=True)
        }

    @property
    def seasons(self) -> tuple[int, ...]:
        """Periods in slots that the signal is looked at by."""
        return self._seasons()

    # -- time passes ------------------------------------------------------------------------

    def _fill(self, end: int) -> None:
        """Close slots up to ``end``; a gap is as a season ago, else as the slot before."""
        first = self._filled_end
        fresh = self.series.values[first - self.series.start : end - self.series.start].copy()
        if np.isnan(fresh).any():
            period = (self._seasons() or (0,))[0]
            for i in np.flatnonzero(np.isnan(fresh)).tolist():
                n = len(self._filled)
                if period and n >= period and i < period:
                    fresh[i] = self._filled[n - period + i]
                elif i:
                    fresh[i] = fresh[i - 1]
                elif n:
                    fresh[i] = self._filled[-1]
            fresh = fresh[~np.isnan(fresh)] if not len(self._filled) else fresh
        # Methods look back a few seasons: the year that is kept is for people and other methods.
        kept = self._filled[-self._reach() :]
        self._filled = np.concatenate([kept, fresh])
        self._filled_end = end

    def _reach(self) -> int:
        return 10 * WEEK_S // self.series.resolution_s + 2 * self.horizon + 60

    def _history(self) -> SignalHistory:
        return SignalHistory(
            self._filled, self._filled_end, self.series.resolution_s, self._seasons()
        )

    def _seasons(self) -> tuple[int, ...]:
        resolution = self.series.resolution_s
        usual = [p // resolution for p in (DAY_S, WEEK_S) if p % resolution == 0 and p > resolution]
        own = [self._own] if self._own else []
        return tuple(p for p in (*usual, *own) if len(self._filled) >= 2 * p + 1)

    def _find_own(self) -> None:
        now = self._filled_end * self.series.resolution_s
        if now - self._own_at < SEASON_EVERY_S or len(self._filled) < 48:
            return
        self._own_at = now
        span = self._filled[-SEASON_S // self.series.resolution_s :]
        resolution = self.series.resolution_s
        usual = tuple(p // resolution for p in (DAY_S, WEEK_S) if p > resolution)
        self._own = find_own_season(span, usual)

    # -- scoring ----------------------------------------------------------------------------

    def _score(self, since: int, end: int) -> None:
        """Score what earlier forecasts said of the slots from ``since`` up to ``end``, which are
        over now. Origins lie ``every`` slots apart, so that at most one says something of them at
        each lead."""
        start, values = self.series.start, self.series.values
        for lead, ahead in enumerate(self.leads.tolist()):
            origin = self._pending.get((end - ahead) // self.every * self.every)
            if origin is None or (slot := origin.end + ahead - 1) < max(since, start):
                continue
            came = float(values[slot - start])
            if not math.isnan(came):
                self._learn(origin, lead, came, slot)
        for past in [past for past in self._pending if past + self.horizon <= end]:
            del self._pending[past]

    def _learn(self, origin: _Origin, lead: int, came: float, slot: int) -> None:
        off = np.abs(origin.members[:, lead] - came)
        known = np.isfinite(off)
        if self._count[-1, lead] > LEAST_SCORED:
            usual = self._loss[-1, lead] / self._count[-1, lead]
            off = np.minimum(off, WILDEST * usual) if usual > 0 else off
        self._loss[known, lead] = self._keep * self._loss[known, lead] + off[known]
        self._count[known, lead] = self._keep * self._count[known, lead] + 1.0
        if math.isfinite(origin.combined[lead]):
            error = came - float(origin.combined[lead])
            if lead == 0:
                self._watch(error, slot)
            time_s = float(slot * self.series.resolution_s)
            self.bands.learn(lead, error, time_s, origin.offsets[lead])

    def _watch(self, error: float, slot: int) -> None:
        """A cumulative sum of errors one step ahead: a level that moved makes them one-sided."""
        size = self.bands.usual_error(0)
        step = max(-TELLING, min(TELLING, error / size if size else 0.0))
        self._rise = max(0.0, self._rise + step - SHIFT_DRIFT)
        self._fall = max(0.0, self._fall - step - SHIFT_DRIFT)
        if max(self._rise, self._fall) > SHIFT_ALARM:
            self.shifted_up = self._rise > self._fall
            self._rise = self._fall = 0.0
            self.shifted_at = slot

    # -- foreseeing -------------------------------------------------------------------------

    def _take_origin(self) -> None:
        self._find_own()
        history = self._history()
        if not len(history.values):
            return
        self._observe(history)
        members = self._ask(history, self.leads)
        combined = _combine(members, self._weights())
        scored = np.vstack([members, combined])
        offsets = self.bands.offsets()
        self._pending[history.end] = _Origin(history.end, scored, combined, offsets)

    def _observe(self, history: SignalHistory) -> None:
        """Bring what methods keep up to here."""
        fresh = min(history.end - self._observed_end, len(history.values))
        if fresh:
            for method in self.methods:
                method.observe(history, fresh)
        self._observed_end = history.end

    def _ask(
        self, history: SignalHistory, steps: IntArray, wanted: BoolArray | None = None
    ) -> FloatArray:
        """(methods, k); NaN for a method that cannot say or is not wanted."""
        members = np.full((len(self.methods), len(steps)), math.nan)
        for i, (row, method) in enumerate(zip(members, self.methods, strict=True)):
            if wanted is not None and not wanted[i]:
                continue
            predicted = method.predict(history, steps)
            if predicted is not None:
                row[:] = predicted
        if self.lowest is not None:
            members = np.maximum(members, self.lowest)
        return members

    def _weights(self) -> FloatArray:
        """(methods, leads). By errors; where the blend did worse than a method, that one alone."""
        with np.errstate(invalid="ignore", divide="ignore"):
            loss = self._loss / self._count
        loss = np.where(self._count > 0, loss, math.inf)
        members, blend = loss[:-1], loss[-1]
        best = members.min(axis=0)
        known = np.isfinite(best) & (best > 0)
        with np.errstate(invalid="ignore"):
            behind = np.where(np.isfinite(members), members / np.where(known, best, 1.0) - 1.0, 1e9)
        # Errors of forecasts that overlap are nearly one error.
        told_apart = np.sqrt(self._count[-1] / self._overlap)
        weights = np.where(np.isfinite(members), np.exp(-SHARPNESS * behind * told_apart), 0.0)
        weights[:, ~known] = np.where(members[:, ~known] <= best[~known], 1.0, 0.0)
        weights[:, weights.sum(axis=0) == 0] = 1.0
        with np.errstate(invalid="ignore"):
            worse = (blend / np.where(known, best, 1.0) - 1.0) * told_apart > BLEND_MARGIN
        for lead in np.flatnonzero(known & worse).tolist():
            weights[:, lead] *= members[:, lead] <= best[lead]
        return np.asarray(weights / weights.sum(axis=0))


_NORMAL = np.array([-2.326, -1.645, -1.282, -0.674, 0.0, 0.674, 1.282, 1.645, 2.326])


def _between(leads: IntArray, rows: FloatArray, steps: IntArray) -> FloatArray:
    """(leads, c) rows brought to (k, c) by straight lines between leads."""
    if len(leads) == 1:
        return np.repeat(rows, len(steps), axis=0)
    right = np.clip(np.searchsorted(leads, steps), 1, len(leads) - 1)
    share = np.clip((steps - leads[right - 1]) / (leads[right] - leads[right - 1]), 0.0, 1.0)
    return np.asarray(rows[right - 1] + share[:, None] * (rows[right] - rows[right - 1]))


def _combine(members: FloatArray, weights: FloatArray) -> FloatArray:
    """(k,) weighted median of the methods that said something: halfway between the two in the
    middle where weights are even, so that one method's echo of a burst moves nothing."""
    some = np.isfinite(members).any(axis=1)
    members, weights = members[some], weights[some]
    known = np.isfinite(members)
    shares = np.where(known, weights, 0.0)
    total = shares.sum(axis=0)
    shares = np.where(total > 0, shares / np.where(total > 0, total, 1.0), known)
    order = np.argsort(np.where(known, members, math.inf), axis=0)
    values = np.take_along_axis(np.where(known, members, 0.0), order, axis=0)
    shares = np.take_along_axis(shares, order, axis=0)
    reached = np.cumsum(shares, axis=0)
    # Each method's share of the middle half: a mean without the quarters on either side.
    whole = reached[-1]
    low, high = LEFT_OUT * whole, (1 - LEFT_OUT) * whole
    inner = np.clip(np.minimum(reached, high) - np.maximum(reached - shares, low), 0.0, None)
    return np.asarray((inner * values).sum(axis=0) / inner.sum(axis=0))
