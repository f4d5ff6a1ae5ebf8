"""Forecast: foresee the signals that studies use, and ask for the contexts that they will bring.

Whoever holds the lease does so every few minutes. What it asks, it asks as anybody does, by a
request: the tune stage searches the context and publishes what it finds, before the first job of
it has come. The plan of the coming hours is kept in the store for people and commands.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from tunerd import logs
from tunerd.core.forecasting.forecaster import SignalForecast, SignalForecaster
from tunerd.core.forecasting.plan import PlanWindow, plan_windows
from tunerd.core.observation import Scalar
from tunerd.core.request import AdviceRequest
from tunerd.core.study import Study
from tunerd.core.study.context_key import BucketKey
from tunerd.core.study.parts import ContextFeature
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError, StoreUnavailableError
from tunerd.events import from_bytes
from tunerd.stages.drift_events import SignalAlarm, follow_shifts, tell
from tunerd.stages.plans import FORECAST_SOURCE, publish_plans
from tunerd.store import Store, StudyRow
from tunerd.store.signals import KEPT, shifts_of

__all__ = ["ForecastStage"]

EVERY_S = 300.0
AGAIN_S = 15.0
"""How soon it looks again where there was nothing to foresee."""
PRUNE_EVERY_S = 3600.0
LEASE, LEASE_S = "forecasts", 900.0
RESOLUTION_S = 300
REPLAYED = timedelta(days=21)
"""Latest points over which methods are scored after a start, about a second a signal."""
LOOKED_AT = 1_000
"""Contexts of a study with the latest jobs: their signals are foreseen."""
MOST_CONTEXTS = 50
"""Of those without their signals so many: a signal has a context for each bucket of it."""
ASKED_MOST = 20
"""Contexts ahead that are asked about at a time."""
PAST_HOURS = 72
STOPPED = timedelta(days=2)
"""A signal without a point for so long has stopped: nothing is asked on what it was."""
READ_AT_ONCE = timedelta(days=2)
"""A point each second for as long as they are kept would take a gigabyte at once."""
IN_TIME = timedelta(minutes=15)
"""A point that comes later than this is late: it is not learned from as time goes on."""
READ_AGAIN = timedelta(minutes=45)
"""How much of what is over is read again, so that late points show in the plan's hours at once."""
MADE_AGAIN = timedelta(hours=1)
"""A forecaster is made anew for late points so often at most: it takes about a second."""
COUNTED = timedelta(days=7)
"""How much later than the oldest point counting begins: those are dropped meanwhile."""
SPEAKING = ("active", "observed", "pending")
"""States of recommendations that say something for a context already."""


_SignalKey = tuple[str, bool]
"""Written name, and whether it is on a log scale, where nothing is below 0."""


class _ActiveContext(msgspec.Struct):
    """What of a context's saved state is read here."""

    context: dict[str, Any]


class _Foreseen(NamedTuple):
    feature: ContextFeature
    signal: _SignalKey
    forecast: SignalForecast


@dataclass
class _Reading:
    """What a forecaster has read of its signal."""

    made_at: datetime
    """When the forecaster was made."""
    since: datetime
    until: datetime
    """Points from then until then are counted: a further one came late."""
    count: int = 0


@dataclass
class ForecastStage:
    """The stage. Keeps a forecaster for each signal in memory; the store has the points. Also drops
    points that are older than are kept, whether or not a study uses them."""

    store: Store
    owner: str
    log: logs.Log
    now: Callable[[], datetime]
    topic: str = "tunerd.recommendations"
    drift_topic: str = "tunerd.drift"
    name: str = "forecast"
    _at: datetime | None = None
    _pruned_at: datetime | None = None
    _studies: dict[str, tuple[int, Study | None]] = field(default_factory=dict)
    _forecasters: dict[_SignalKey, SignalForecaster] = field(default_factory=dict)
    _readings: dict[_SignalKey, _Reading] = field(default_factory=dict)

    def step(self) -> bool:
        """Foresee what is due; whether anything was."""
        now = self.now()
        if self._at is not None and (now - self._at).total_seconds() < EVERY_S:
            return False
        self._at = now
        rows = {row.name: self._study(row) for row in self.store.studies()}
        studies = [study for study in rows.values() if study is not None]
        if not studies and not self.store.signal_names():
            return False
        if self.store.take_lease(LEASE, self.owner, LEASE_S) is None:
            return False
        if self._pruned_at is None or (now - self._pruned_at).total_seconds() >= PRUNE_EVERY_S:
            with self.store.transaction() as tx:
                tx.prune_signals(tx.no_later(now))
            self._pruned_at = now
        used: set[_SignalKey] = set()
        for name, study in rows.items():
            try:
                if study is None:
                    self._end_plans(name, now)
                else:
                    used |= self._foresee(study, now)
            except StoreUnavailableError:
                raise
            except Exception:  # what one study's signals do keeps no other from being foreseen
                self.log.exception("forecasting failed", study=name)
        if studies and not used:  # the first points or jobs may come in this very moment
            self._at = now - timedelta(seconds=EVERY_S - AGAIN_S)
        for signal in self._forecasters.keys() - used:
            del self._forecasters[signal]
            del self._readings[signal]
        return bool(studies)

    def close(self) -> None:
        """Leave it to others at once."""
        with self.store.transaction() as tx:
            tx.release_leases(self.owner, [LEASE])

    def _study(self, row: StudyRow) -> Study | None:
        """The study, where its features from signals are in buckets, and it wants them foreseen."""
        generation, study = self._studies.get(row.name, (-1, None))
        if generation != row.generation:
            current, study = self.store.generation(row.name), None
            if current is not None and "signal" in current.text:
                try:
                    parsed = parse_study(current.text)
                except MisconfiguredError:  # the tune stage says so
                    parsed = None
                if parsed is not None and parsed.forecast.ahead and parsed.signals:
                    keys = [feature.key for feature in parsed.signals]
                    study = parsed if all(isinstance(key, BucketKey) for key in keys) else None
            self._studies[row.name] = row.generation, study
        return study

    # -- one study --------------------------------------------------------------------------

    def _foresee(self, study: Study, now: datetime) -> set[_SignalKey]:
        """Make a study's plan, and ask for what it brings; the signals that it uses."""
        feature, gains = study.signals[0], self._gains(study)
        before = self.store.forecast_plan(study.name)
        published = [] if before is None else before[1]["signals"]
        # Under another study file the same load may have another key.
        same = before is not None and before[1].get("study") == study.content_hash
        made_s = before[0].timestamp() if before is not None and same else -math.inf
        # Contexts may share a signal. What was planned for a feature of another name is no help.
        earlier = (
            {study.context_key(signal["context"]): signal for signal in before[1]["signals"]}
            if before is not None and before[1]["feature"] == feature.name
            else {}
        )
        used: set[_SignalKey] = set()
        plans: list[dict[str, Any]] = []
        alarms: dict[str, SignalAlarm] = {}
        ahead: dict[str, tuple[float, dict[str, Scalar]]] = {}
        for base in self._bases(study):
            foreseen = self._forecasts(study, base, now)
            used.update(ahead_of.signal for ahead_of in foreseen)
            self._note_alarms(alarms, study.context_key(base), foreseen)
            if len(foreseen) < len(study.signals):
                continue
            last = earlier.get(study.context_key(base))
            hours = {window["start_s"]: window["key"] for window in last["windows"]} if last else {}
            others = [(other.feature, other.forecast) for other in foreseen[1:]]
            forecast = foreseen[0].forecast
            windows, contexts = plan_windows(
                study, feature, base, forecast, gains.get, hours, others
            )
            plan = self._plan(foreseen, base, windows, last, now, made_s)
            plans.append(plan)
            if plan["state"] == "active":
                for key, probability in _probable(windows).items():
                    known, _ = ahead.get(key, (0.0, {}))
                    if probability >= max(study.forecast.min_probability, known):
                        ahead[key] = probability, contexts[key]
        fresh = {key: ahead[key] for key in ahead if key not in gains}
        known_shifts = {} if before is None else shifts_of(before[1])
        shifts, events = follow_shifts(study.name, known_shifts, alarms, now.timestamp())
        with self.store.transaction() as tx:
            document = {
                "feature": feature.name,
                "study": study.content_hash,
                "signals": plans,
                "shifts": shifts,
            }
            speaks = None if study.mode == "observe" else study
            tx.enqueue(*publish_plans(study.name, speaks, plans, published, self.topic, now))
            tx.save_forecast_plan(study.name, document, now)
            asked = tx.add_requests(_requests(study, fresh, now), now)
            lines = [tell(tx, event, self.drift_topic, now) for event in events]
        for line in lines:
            self.log.info(line.event, study=study.name, **line.detail)
        if asked.fresh:
            self.log.info("contexts ahead", study=study.name, asked=len(asked.fresh))
        return used

    def _gains(self, study: Study) -> dict[str, float | None]:
        """What is predicted to be gained in each context that something is said for."""
        gains: dict[str, float | None] = {}
        for row in self.store.recommendations(study.name, states=SPEAKING):
            candidates = from_bytes(row.value.encode()).candidates
            gain = candidates[0].gain if candidates else None
            gains[row.context_key] = None if gain is None else gain.median
        return gains

    def _end_plans(self, study: str, now: datetime) -> None:
        """Withdraw the plans of a study whose signals are foreseen no longer, and see the shifts of
        these to their end."""
        kept = self.store.forecast_plan(study)
        if kept is None:
            return
        shifts, events = follow_shifts(study, shifts_of(kept[1]), {}, now.timestamp())
        if not events and not any(plan.get("published") for plan in kept[1]["signals"]):
            return
        with self.store.transaction() as tx:
            tx.enqueue(*publish_plans(study, None, (), kept[1]["signals"], self.topic, now))
            tx.save_forecast_plan(study, {**kept[1], "signals": [], "shifts": shifts}, now)
            lines = [tell(tx, event, self.drift_topic, now) for event in events]
        for line in lines:
            self.log.info(line.event, study=study, **line.detail)

    def _bases(self, study: Study) -> list[dict[str, Scalar]]:
        """Contexts without what signals say, those with the latest jobs first."""
        keys = self.store.latest_contexts(study.name, LOOKED_AT)
        states = self.store.context_parts(study.name, _ActiveContext, keys)
        names = {name for feature in study.signals for name in (feature.name, *feature.was)}
        bases: dict[str, dict[str, Scalar]] = {}
        for key in keys:
            if key not in states:
                continue
            base = {k: v for k, v in states[key].context.items() if k not in names}
            bases.setdefault(study.context_key(base), base)
            if len(bases) >= MOST_CONTEXTS:
                break
        return list(bases.values())

    def _forecasts(
        self, study: Study, base: Mapping[str, Scalar], now: datetime
    ) -> list[_Foreseen]:
        """Of the study's signals in a context; those that nothing is known of are left out."""
        foreseen = []
        for feature in study.signals:
            name = study.signal_of(feature, base)
            signal = None if name is None else (name, feature.scale == "log")
            forecast = None if signal is None else self._forecast(signal, study, now)
            if signal is not None and forecast is not None:
                foreseen.append(_Foreseen(feature, signal, forecast))
        return foreseen

    def _forecast(self, signal: _SignalKey, study: Study, now: datetime) -> SignalForecast | None:
        horizon = int(study.forecast.horizon_hours * 3600 / RESOLUTION_S)
        forecaster = self._forecasters.get(signal)
        ready = forecaster is not None and forecaster.horizon >= horizon
        # Contexts may share a signal, which is read once a step.
        if forecaster is None or not ready or self._readings[signal].until != now - IN_TIME:
            forecaster = self._read(signal, horizon, now)
        forecast = forecaster.forecast()
        if forecast is None or forecaster.horizon == horizon:
            return forecast
        # Another study looks farther ahead.
        return dataclasses.replace(forecast, quantiles=forecast.quantiles[:horizon])

    def _read(self, signal: _SignalKey, horizon: int, now: datetime) -> SignalForecaster:
        """The forecaster of a signal, with all points until now."""
        forecaster = self._forecasters.get(signal)
        if forecaster is None or forecaster.horizon < horizon or self._was_late(signal, now):
            forecaster = self._make_forecaster(signal, horizon, now)
        else:
            since = self._readings[signal].until - READ_AGAIN
            forecaster.series.add_all(self.store.signal_points(signal[0], since, now))
        self._count(signal, now)
        forecaster.advance(now.timestamp())
        return forecaster

    def _make_forecaster(self, signal: _SignalKey, horizon: int, now: datetime) -> SignalForecaster:
        capacity = int(KEPT.total_seconds() / RESOLUTION_S)
        lowest = 0.0 if signal[1] else None
        forecaster = SignalForecaster(RESOLUTION_S, horizon, capacity=capacity, lowest=lowest)
        since = now - KEPT
        while since < now:
            until = min(since + READ_AT_ONCE, now)
            forecaster.series.add_all(self.store.signal_points(signal[0], since, until))
            since = until
        forecaster.resume((now - REPLAYED).timestamp())
        self._forecasters[signal] = forecaster
        begin = now - KEPT + COUNTED
        self._readings[signal] = _Reading(now, begin, begin)
        return forecaster

    def _was_late(self, signal: _SignalKey, now: datetime) -> bool:
        """Whether points came of a time that was over: methods and bands have not learned from
        them, so the forecaster is made anew, now and then."""
        reading = self._readings[signal]
        if now - reading.made_at < MADE_AGAIN:
            return False
        count = self.store.count_signal_points(signal[0], reading.since, reading.until)
        return count > reading.count

    def _count(self, signal: _SignalKey, now: datetime) -> None:
        """Count the points that came in time; a late one stays one too many."""
        reading, until = self._readings[signal], now - IN_TIME
        reading.count += self.store.count_signal_points(signal[0], reading.until, until)
        reading.until = until
        if reading.since < now - KEPT:  # some are dropped by now
            reading.since = now - KEPT + COUNTED
            reading.count = self.store.count_signal_points(signal[0], reading.since, until)

    def _note_alarms(
        self, alarms: dict[str, SignalAlarm], context_key: str, foreseen: Sequence[_Foreseen]
    ) -> None:
        """What the forecasters of a context's signals say of their levels; contexts may share
        one."""
        for feature, signal, _ in foreseen:
            forecaster = self._forecasters[signal]
            at = forecaster.shifted_at
            at_s = -math.inf if at is None else float(at * RESOLUTION_S)
            alarm = alarms.get(signal[0])
            if alarm is None or at_s > alarm.at_s:
                keys = [] if alarm is None else alarm.context_keys
                alarm = SignalAlarm(feature.name, at_s, forecaster.shifted_up, keys)
                alarms[signal[0]] = alarm
            if context_key not in alarm.context_keys:
                alarm.context_keys.append(context_key)

    def _plan(
        self,
        foreseen: Sequence[_Foreseen],
        base: Mapping[str, Scalar],
        windows: Sequence[PlanWindow],
        earlier: Mapping[str, Any] | None,
        now: datetime,
        made_s: float,
    ) -> dict[str, Any]:
        """What is kept of a context's signals: the hours to come, and those that were.

        ``made_s`` is when the earlier plan was made under this study file."""
        signal = foreseen[0].signal
        series = self._forecasters[signal].series
        past = list(earlier["past"]) if earlier else []
        state, why = "active", ""
        seconds = now.timestamp()
        stopped_s = (now - STOPPED).timestamp()
        for each in foreseen:
            if self._forecasters[each.signal].series.between(stopped_s, seconds) is None:
                state, why = "withdrawn", f"no point has come for {STOPPED.days} days"
        hours = [asdict(window) for window in windows]
        for window in earlier["windows"] if earlier else ():
            if past and window["start_s"] <= past[-1]["start_s"]:
                continue
            if window["end_s"] <= seconds:
                hour_s = window["start_s"], window["end_s"] - 1
                came = {
                    each.feature.name: self._forecasters[each.signal].series.between(*hour_s)
                    for each in foreseen[1:]
                }
                window = {**window, "contexts": {}, "others_came": came}
                past.append({**window, "came": series.between(*hour_s)})
            elif window["start_s"] <= seconds and window["start_s"] <= made_s + 2 * EVERY_S:
                # What was foreseen when the hour began stands until it is over; after a pause, what
                # was foreseen long before does not.
                hours = [window, *(hour for hour in hours if hour["start_s"] > window["start_s"])]
                if outside := self._outside(foreseen, window, seconds):
                    state, why = "withdrawn", outside
        return {
            "signal": signal[0],
            "others": {
                each.feature.name: {
                    "signal": each.signal[0],
                    "methods": self._forecasters[each.signal].shares(),
                }
                for each in foreseen[1:]
            },
            "context": dict(base),
            "state": state,
            "why": why,
            "methods": self._forecasters[signal].shares(),
            "windows": hours,
            "past": past[-PAST_HOURS:],
        }

    def _outside(
        self, foreseen: Sequence[_Foreseen], window: Mapping[str, Any], now_s: float
    ) -> str:
        """Which signal is outside of its band in this hour; empty where none is."""
        for feature, signal, _ in foreseen:
            forecaster = self._forecasters[signal]
            slots = max(3, forecaster.spacing)  # a point of a slow signal stands for as long
            latest = forecaster.series.between(now_s - slots * RESOLUTION_S, now_s - 1)
            band = window["lowest"], window["highest"]
            lowest, highest = window.get("others", {}).get(feature.name, band)[-2:]
            if latest is not None and not lowest <= latest <= highest:
                name = f"{feature.name}: " if len(foreseen) > 1 else ""
                return (
                    f"{name}{latest:.6g} is outside the 98 % band from {lowest:.6g} to"
                    f" {highest:.6g}"
                )
        return ""


def _probable(windows: Sequence[PlanWindow]) -> dict[str, float]:
    """Of each context the probability at its most probable hour."""
    probable: dict[str, float] = {}
    for window in windows:
        for key, probability in window.contexts.items():
            probable[key] = max(probability, probable.get(key, 0.0))
    return probable


def _requests(
    study: Study, ahead: Mapping[str, tuple[float, dict[str, Scalar]]], now: datetime
) -> list[AdviceRequest]:
    """Questions about contexts ahead, the most probable first; of each one a day at most."""
    order = sorted(ahead, key=lambda key: (-ahead[key][0], key))[:ASKED_MOST]
    day = now.astimezone(UTC).date().isoformat()
    requests = []
    for key in order:
        text = f"{study.content_hash} {key} {day}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        requests.append(
            AdviceRequest(
                study=study.name,
                source=FORECAST_SOURCE,
                event_id=digest[:32],
                context=ahead[key][1],
                content_hash=f"sha256:{digest}",
            )
        )
    return requests
