"""Foresees one signal: methods side by side, weighted by how well each foresaw, with bands."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
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
LATE_SLOTS = 3
"""Slots that may be over for so long when their first point comes, and still be learned from."""
SEASON_EVERY_S = WEEK_S
SEASON_S = 5 * WEEK_S
"""How far back a season of its own is looked for."""
TELLING = 4.0
"""Errors, in units of the usual one, that move the watch for a shift at most."""
WATCHED = 1 / 3
"""Part of the horizon after which errors are watched for a shift."""
ROUNDING = 1e-10
"""Of a value, so much may be rounding: errors of a signal of one value tell nothing."""
SHIFT_DRIFT = 1.5
SHIFT_ALARM = 20.0
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

    def first(self, horizon: int) -> "SignalForecast":
        """The first slots of it: who asks may look less far ahead than another."""
        if horizon == len(self.quantiles):
            return self
        return replace(self, quantiles=self.quantiles[:horizon])

    def quantile(self, level: float) -> FloatArray:
        """(horizon,) one quantile, interpolated between those that are told."""
        above = min(max(bisect_left(self.levels, level), 1), len(self.levels) - 1)
        low, high = self.levels[above - 1], self.levels[above]
        share = min(max((level - low) / (high - low), 0.0), 1.0)
        below, beyond = self.quantiles[:, above - 1], self.quantiles[:, above]
        return np.asarray(below + share * (beyond - below), np.float64)

    def probabilities_below(self, values: FloatArray) -> FloatArray:
        """(horizon, k) how probable it is that the signal is below each of k values; 0 and 1 beyond
        all quantiles."""
        rows, levels = self.quantiles, np.array([0.0, *self.levels, 1.0])
        place = (rows[:, None, :] < values[:, None]).sum(axis=2)  # quantiles below each value
        step, last = np.arange(len(rows))[:, None], rows.shape[1] - 1
        low, high = rows[step, np.maximum(place - 1, 0)], rows[step, np.minimum(place, last)]
        between = (place > 0) & (place <= last)
        share = (values - low) / np.where(between, high - low, 1.0)
        below = levels[place] + share * (levels[np.minimum(place + 1, last + 2)] - levels[place])
        return np.asarray(np.where(between, below, place > last), np.float64)


class _Origin:
    """A forecast that waits for what comes. Of each lead it is scored on the first point in a
    window that is as wide as points are apart: where these come every ten minutes or every hour, no
    slot at just that lead may ever have one."""

    __slots__ = (
        "combined",
        "end",
        "factors",
        "leads",
        "members",
        "offsets",
        "scales",
        "starts",
        "steps",
        "width",
    )

    def __init__(self, end: int, leads: IntArray, width: int) -> None:
        self.end = end
        self.width = min(width, int(leads[-1]))
        self.starts = np.minimum(leads, leads[-1] - self.width + 1).tolist()
        """Steps ahead at which the windows of the leads begin."""
        windows = np.add.outer(self.starts, np.arange(self.width))
        self.steps: IntArray = leads if self.width == 1 else np.unique(windows)
        """Steps ahead in any window; what was said of each follows."""
        self.members: FloatArray = np.zeros((0, 0))
        self.combined: FloatArray = np.zeros(0)
        self.offsets: FloatArray = np.zeros((0, 0))
        self.factors: list[float] = []
        self.scales: list[float] = []
        self.leads = list(range(len(leads)))
        """Those that wait to be scored."""

    def window(self, lead: int) -> range:
        """Slots of which the first with a point is scored."""
        first = self.end + int(self.starts[lead]) - 1
        return range(first, first + self.width)


class SignalForecaster:
    """Rolls along one signal. The same points in the same steps give the same forecasts, however
    often one asks.

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
        self._watched = int(np.searchsorted(self.leads, horizon * WATCHED))
        self._overlap = np.maximum(1.0, self.leads / every)
        self.bands = ForecastBands(self._overlap)
        self.shifted_at: int | None = None
        """Slot at which a level shift was told last."""
        self.shifted_up = False
        """Whether the signal was above what was foreseen there."""
        self.spacing = 1
        """Slots from one point to the next, usually."""
        self._filled = np.zeros(0)
        self._filled_end = 0
        self._steps = np.arange(1, horizon + 1)
        self._looked_at: SignalHistory | None = None
        self._answers: FloatArray | None = None
        """(methods, horizon) what all methods say of that, where they were asked."""
        self._weighed: FloatArray | None = None
        """Weights, until something is learned."""
        self._latest = -(10**18)
        """The latest slot with a point, as far as slots are filled."""
        self._guessed: list[int] = []
        """Slots without a point whose point may still come."""
        self._observed_end = 0
        self._knows_season = False
        self._own: int | None = None
        self._own_at = -(10**18)
        shape = (len(self.methods) + 1, len(self.leads))
        self._loss = np.zeros(shape)
        self._count = np.zeros(shape)
        self._pending: list[_Origin] = []
        """The latest first."""
        self._learned = [-(10**18)] * len(self.leads)
        """The latest slot that each lead was scored on."""
        half_life = max(MEMORY_S / (resolution_s * every), LEAST_ORIGINS)
        self._keep = 0.5 ** (1.0 / half_life)
        self._rise = self._fall = 0.0

    def add(self, time_s: float, value: float) -> bool:
        """Take a point in; whether it changed anything."""
        return self.series.add(time_s, value)

    def advance(self, now_s: float) -> None:
        """Time has come to here: every slot before is over. Score what was foreseen, and foresee
        from each origin that was passed. A point that comes when its slot has been over for
        :data:`LATE_SLOTS` is kept in the series and no longer learned from."""
        end = self.series.slot(now_s)
        if not len(self.series) or end <= self.series.start:
            return
        if end > self.series.end:
            self.series.extend(end)
        if not self._filled_end:
            self._filled_end = self.series.start
        self._take_late()
        while self._filled_end < end:
            stop = min((self._filled_end // self.every + 1) * self.every, end)
            self._fill(stop)
            self._score(stop)
            self._observe()
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
        waiting = sum(o.members.nbytes + o.offsets.nbytes for o in self._pending)
        return self.series.nbytes + self._filled.nbytes + self.bands.nbytes + waiting

    def forecast(self) -> SignalForecast | None:
        """What is foreseen from here; None while nothing is known."""
        history, answers = self._history(), self._answers
        self._looked_at = self._answers = None  # what was looked up is not to stay
        if not len(history.values):
            return None
        steps, weights = self._steps, self._weights()
        wanted = np.flatnonzero((weights > LEAST_WEIGHT * weights.max(axis=0)).any(axis=1))
        members = self._ask(history, wanted) if answers is None else answers[wanted]
        if not np.isfinite(members).any(axis=0).all():
            wanted = np.arange(len(self.methods))
            members = self._ask(history, wanted)
        by_step = _between(self.leads, weights[wanted].T, steps).T
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
        """Close slots up to ``end``. A gap is as the slot before, as long as the next point is not
        overdue; then as a season ago."""
        first, n = self._filled_end, len(self._filled)
        fresh = self.series.values[first - self.series.start : end - self.series.start].copy()
        gaps = np.isnan(fresh)
        if self.spacing > 1 or gaps.any():
            self.spacing = self.series.spacing(end)
        period = (self._seasons() or (0,))[0] if gaps.any() else 0
        for slot, gap in enumerate(gaps.tolist() if gaps.any() else (), first):
            i = slot - first
            if not gap:
                self._latest = slot
                continue
            self._guessed.append(slot)
            overdue = slot - self._latest > self.spacing
            if overdue and period and n >= period and i < period:
                fresh[i] = self._filled[n - period + i]
            elif i:
                fresh[i] = fresh[i - 1]
            elif n:
                fresh[i] = self._filled[-1]
        if len(gaps) and not gaps[-1]:
            self._latest = end - 1
        self._guessed = [slot for slot in self._guessed if slot >= end - LATE_SLOTS]
        fresh = fresh[~np.isnan(fresh)] if not n else fresh
        # Methods look back a few seasons: the year that is kept is for people and other methods.
        kept = self._filled[-self._reach() :]
        self._filled = np.concatenate([kept, fresh])
        self._filled_end = end
        self._looked_at = self._answers = None

    def _take_late(self) -> None:
        """Put points that came a little late in the place of guesses: a signal whose points come
        just after their slots are over would else never be learned from."""
        start, values = self.series.start, self.series.values
        late = [at for at in self._guessed if at >= start and not math.isnan(values[at - start])]
        for slot in late:
            if slot - self._filled_end + len(self._filled) >= 0:
                self._filled[slot - self._filled_end] = values[slot - start]
            self._latest = max(self._latest, slot)
            self._guessed.remove(slot)
            self._looked_at = self._answers = None

    def _reach(self) -> int:
        return 10 * WEEK_S // self.series.resolution_s + 2 * self.horizon + 60

    def _history(self) -> SignalHistory:
        """As of now; the same for an origin and a forecast from there."""
        if self._looked_at is None:
            self._looked_at = SignalHistory(
                self._filled, self._filled_end, self.series.resolution_s, self._seasons()
            )
        return self._looked_at

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
        self._looked_at = self._answers = None

    # -- scoring ----------------------------------------------------------------------------

    def _score(self, end: int) -> None:
        """Score what earlier forecasts said of slots that are over now. A lead learns from a point
        once: forecasts may lie closer together than points."""
        points = self._points(end) if self._pending else []
        for origin in self._pending:
            for lead in tuple(origin.leads):
                window = origin.window(lead)
                if window.start >= end:
                    break  # they ascend
                place = bisect_left(points, max(window.start, self._learned[lead] + 1))
                slot = points[place] if place < len(points) else window.stop
                if slot < window.stop:
                    self._learned[lead] = slot
                    self._learn(origin, lead, slot)
                elif window.stop + LATE_SLOTS > end:
                    continue
                origin.leads.remove(lead)
        self._pending = [origin for origin in self._pending if origin.leads]

    def _points(self, end: int) -> list[int]:
        """The slots with a point that a forecast may still wait for, ascending: nobody looks
        through windows of a day slot by slot, again with each slot."""
        start = self.series.start
        first = max(start, end - self.horizon - self.every - LATE_SLOTS)
        fresh = self.series.values[first - start : end - start]
        return (np.flatnonzero(~np.isnan(fresh)) + first).tolist()

    def _learn(self, origin: _Origin, lead: int, slot: int) -> None:
        came = float(self.series.values[slot - self.series.start])
        place = int(origin.steps.searchsorted(slot + 1 - origin.end))
        off = np.abs(origin.members[:, place] - came)
        known = np.isfinite(off)
        if self._count[-1, lead] > LEAST_SCORED:
            usual = self._loss[-1, lead] / self._count[-1, lead]
            off = np.minimum(off, WILDEST * usual) if usual > 0 else off
        loss, count = self._loss[:, lead], self._count[:, lead]
        self._weighed = None
        np.copyto(loss, self._keep * loss + off, where=known)
        np.copyto(count, self._keep * count + 1.0, where=known)
        if math.isfinite(origin.combined[place]):
            error = came - float(origin.combined[place])
            # Before a week is known, a weekend is a shift.
            known_s = len(self._filled) * self.series.resolution_s
            if lead == self._watched and known_s > 2 * WEEK_S:
                self._watch(error, slot)
            time_s = float(slot * self.series.resolution_s)
            self.bands.learn(
                lead,
                error,
                time_s,
                origin.offsets[lead],
                origin.factors[lead],
                origin.scales[place],
            )

    def _watch(self, error: float, slot: int) -> None:
        """A cumulative sum of errors some hours ahead: a level that moved makes them one-sided. One
        step ahead it is followed at once."""
        rounding = ROUNDING * abs(self.series.values[slot - self.series.start])
        size = max(self.bands.usual_error(self._watched), float(rounding))
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
        for method in self.methods:
            method.renew(history, self._steps)
        if history.seasons and not self._knows_season:
            self._begin_anew()
        origin = _Origin(history.end, self.leads, self.spacing)
        self._answers = self._ask(history, np.arange(len(self.methods)))
        members, weights = self._answers[:, origin.steps - 1], self._weights()
        if origin.width > 1:
            weights = _between(self.leads, weights.T, origin.steps).T
        origin.combined = _combine(members, weights)
        origin.members = np.vstack([members, origin.combined])
        origin.offsets, origin.factors = self.bands.offsets(), self.bands.factors()
        times = np.asarray((history.end + origin.steps - 1.0) * history.resolution_s, np.float64)
        origin.scales = self.bands.scale(times).tolist()
        self._pending.insert(0, origin)

    def _begin_anew(self) -> None:
        """The first season is known, and most methods speak from now on. What was said without them
        tells little, and against the record of those that spoke they would wait for a whole
        horizon more."""
        self._knows_season = True
        self._loss[:] = self._count[:] = 0.0
        self._weighed = None
        self._pending.clear()
        self.bands.renew()

    def _observe(self) -> None:
        """Bring what methods keep up to here."""
        history = self._history()
        fresh = min(history.end - self._observed_end, len(history.values))
        self._observed_end = history.end  # whatever fails, no method sees a slot twice
        if fresh:
            for method in self.methods:
                method.observe(history, fresh)

    def _ask(self, history: SignalHistory, wanted: IntArray) -> FloatArray:
        """(wanted, horizon) of the wanted methods; NaN for one that cannot say."""
        members = np.full((len(wanted), self.horizon), math.nan)
        for row, method in zip(members, wanted.tolist(), strict=True):
            predicted = self.methods[method].predict(history, self._steps)
            if predicted is not None:
                row[:] = predicted
        if self.lowest is not None:
            members = np.maximum(members, self.lowest)
        return members

    def _weights(self) -> FloatArray:
        """(methods, leads). By errors; where the blend did worse than a method, that one alone."""
        if self._weighed is not None:
            return self._weighed
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
        self._weighed = np.asarray(weights / weights.sum(axis=0))
        return self._weighed


_NORMAL = np.array([-2.326, -1.645, -1.282, -0.674, 0.0, 0.674, 1.282, 1.645, 2.326])


def _between(leads: IntArray, rows: FloatArray, steps: IntArray) -> FloatArray:
    """(leads, c) rows brought to (k, c) by straight lines between leads."""
    if len(leads) == 1:
        return np.repeat(rows, len(steps), axis=0)
    left, share = _neighbours(leads.tobytes(), steps.tobytes())
    return np.asarray(rows[left] + share * (rows[left + 1] - rows[left]))


@lru_cache(64)
def _neighbours(leads: bytes, steps: bytes) -> tuple[IntArray, FloatArray]:
    """(k,) place of the lead below each step, and (k, 1) the share of the way to the next."""
    known, ahead = np.frombuffer(leads, np.int64), np.frombuffer(steps, np.int64)
    left = np.clip(np.searchsorted(known, ahead), 1, len(known) - 1) - 1
    share = np.clip((ahead - known[left]) / (known[left + 1] - known[left]), 0.0, 1.0)
    return left, share[:, None]


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
