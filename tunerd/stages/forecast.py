"""Forecast: foresee the signals that studies use, and ask for the contexts that they will bring.

Whoever holds the lease looks every few minutes. Forecasts and plans are made anew once an hour, and
at once where a signal left its band or a context is new. Every few minutes would be a tenth of a
core for a thousand signals, and one more point hardly changes the hours to come.

What it asks, it asks as anybody does, by a request: the tune stage searches the context and
publishes what it finds, before the first job of it has come. The plan of the coming hours is kept
in the store for people and commands.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tunerd import logs
from tunerd.core.forecasting.forecaster import SignalForecast, SignalForecaster
from tunerd.core.forecasting.plan import WINDOW_S, PlanWindow, plan_windows
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
LOOKED_BACK = timedelta(hours=6)
"""How often it is looked whether points came late, at least; more often for a forecaster that is
younger. To count two months of points takes as long as a forecast."""
MADE_AGAIN = timedelta(minutes=50)
"""How old a forecaster is, at least, that is made anew for late points: it takes about a second."""
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


class _Planned(NamedTuple):
    """What was planned for one context last."""

    hour: int
    """In which it was, since 1970."""
    study: str
    """Content hash."""
    signals: list[str]
    """That it needs."""
    foreseen: list[_Foreseen]
    """Of these, as far as they are known."""
    windows: list[dict[str, Any]]
    """Empty where one of them is not."""
    contexts: dict[str, dict[str, Scalar]]
    """Of the keys in the windows."""
    since_s: float
    """Points from then on are held against the band of the first hour."""


@dataclass
class _Looked:
    """What was found when a study was looked at last; where nothing changed, nothing is done."""

    document: str
    """The plans as they lie in the store."""
    outside: dict[str, str]
    """Of each context, by key, which signal has left its band."""
    planned: dict[str, _Planned]
    """Of each context that has a plan, by key."""
    used: set[_SignalKey]


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
    _looked: dict[str, _Looked] = field(default_factory=dict)
    _contexts: dict[str, tuple[str, dict[str, tuple[str, dict[str, Scalar]]]]] = field(
        default_factory=dict
    )
    """By study: content hash, and the contexts with the latest jobs by key: each without what
    signals say, after the key of that."""
    _means: dict[float, dict[str, float]] = field(default_factory=dict)
    """Means of all signals since a time, as of this step."""

    def step(self) -> bool:
        """Foresee what is due; whether anything was."""
        now = self.now()
        if self._at is not None and (now - self._at).total_seconds() < EVERY_S:
            return False
        self._at, self._means = now, {}
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
            except Exception:
                # What one study's signals do keeps no other from being foreseen.
                self._looked.pop(name, None)
                self.log.exception("forecasting failed", study=name)
        if studies and not used:  # the first points or jobs may come in this very moment
            self._at = now - timedelta(seconds=EVERY_S - AGAIN_S)
        for name in self._looked.keys() - {study.name for study in studies}:
            del self._looked[name]
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
        looked, bases = self._looked.get(study.name), self._bases(study)
        standing = {} if looked is None else self._still_planned(study, looked, bases, now)
        if (
            looked is not None
            and looked.planned.keys() == standing.keys() == bases.keys()
            and not any(looked.outside.values())
            # Others may have written to the store meanwhile.
            and self.store.forecast_document(study.name) == looked.document
        ):
            return looked.used
        feature, gains = study.signals[0], self._gains(study)
        before = self.store.forecast_plan(study.name)
        # Under another study file the same load may have another key.
        same = before is not None and before[1].get("study") == study.content_hash
        made_s = before[0].timestamp() if before is not None and same else -math.inf
        # Contexts may share a signal. What was planned for a feature of another name is no help.
        earlier = (
            {study.context_key(signal["context"]): signal for signal in before[1]["signals"]}
            if before is not None and before[1]["feature"] == feature.name
            else {}
        )
        made = _Looked("", {}, {}, set())
        plans: list[dict[str, Any]] = []
        alarms: dict[str, SignalAlarm] = {}
        ahead: dict[str, tuple[float, dict[str, Scalar]]] = {}
        for key, base in bases.items():
            last = earlier.get(key)
            planned = standing.get(key)
            if planned is None:
                foreseen = self._forecasts(study, base, now)
                planned = self._planned(study, base, foreseen, gains, last, now)
            made.used.update(ahead_of.signal for ahead_of in planned.foreseen)
            self._note_alarms(alarms, key, planned.foreseen)
            made.planned[key] = planned
            if not planned.windows:
                continue
            plan = self._plan(planned, base, last, now, made_s)
            if plan["windows"][0] is not planned.windows[0]:  # as it was foreseen when it began
                since_s = plan["windows"][0]["start_s"]
                planned = planned._replace(windows=plan["windows"], since_s=since_s)
            made.planned[key] = planned
            made.outside[key] = self._outside(planned, now)
            if made.outside[key]:
                plan.update(state="withdrawn", why=made.outside[key])
            plans.append(plan)
            if plan["state"] == "active":
                for at, probability in _probable(planned.windows).items():
                    known, _ = ahead.get(at, (0.0, {}))
                    # Of an hour that was foreseen earlier, contexts are not known, nor to come.
                    likely = probability >= max(study.forecast.min_probability, known)
                    if likely and at in planned.contexts:
                        ahead[at] = probability, planned.contexts[at]
        fresh = {key: ahead[key] for key in ahead if key not in gains}
        made.document = self._save(study, before, plans, alarms, fresh, now)
        self._looked[study.name] = made
        return made.used

    def _save(
        self,
        study: Study,
        before: tuple[datetime, dict[str, Any]] | None,
        plans: list[dict[str, Any]],
        alarms: Mapping[str, SignalAlarm],
        ahead: Mapping[str, tuple[float, dict[str, Scalar]]],
        now: datetime,
    ) -> str:
        """Keep and publish plans, tell shifts, and ask about contexts ahead; the document that is
        kept."""
        published = [] if before is None else before[1]["signals"]
        known_shifts = {} if before is None else shifts_of(before[1])
        shifts, events = follow_shifts(study.name, known_shifts, alarms, now.timestamp())
        with self.store.transaction() as tx:
            document = {
                "feature": study.signals[0].name,
                "study": study.content_hash,
                "signals": plans,
                "shifts": shifts,
            }
            speaks = None if study.mode == "observe" else study
            tx.enqueue(*publish_plans(study.name, speaks, plans, published, self.topic, now))
            written = tx.save_forecast_plan(study.name, document, now)
            asked = tx.add_requests(_requests(study, ahead, now), now)
            lines = [tell(tx, event, self.drift_topic, now) for event in events]
        for line in lines:
            self.log.info(line.event, study=study.name, **line.detail)
        if asked.fresh:
            self.log.info("contexts ahead", study=study.name, asked=len(asked.fresh))
        return written

    def _still_planned(
        self, study: Study, looked: _Looked, bases: Collection[str], now: datetime
    ) -> dict[str, _Planned]:
        """What was planned for these contexts, by key, where it was in this hour and no signal has
        left its band or begun since."""
        standing: dict[str, _Planned] = {}
        for key in bases:
            planned = looked.planned.get(key)
            if planned is None or (planned.hour, planned.study) != (_hour(now), study.content_hash):
                continue
            known = {of.signal[0] for of in planned.foreseen}
            begun = any(
                name not in known and name in self._means_since(planned.hour * WINDOW_S, now)
                for name in planned.signals
            )
            if not (begun or self._outside(planned, now)):
                standing[key] = planned
        return standing

    def _planned(
        self,
        study: Study,
        base: Mapping[str, Scalar],
        foreseen: list[_Foreseen],
        gains: Mapping[str, float | None],
        earlier: Mapping[str, Any] | None,
        now: datetime,
    ) -> _Planned:
        """Plan the hours to come for one context; none where one of its signals is not known."""
        windows: list[dict[str, Any]] = []
        contexts: dict[str, dict[str, Scalar]] = {}
        if len(foreseen) == len(study.signals):
            hours = {hour["start_s"]: hour["key"] for hour in earlier["windows"]} if earlier else {}
            first, *others = [(of.feature, of.forecast) for of in foreseen]
            made, contexts = plan_windows(study, first[0], base, first[1], gains.get, hours, others)
            windows = [_as_kept(window) for window in made]
        wanted = [study.signal_of(feature, base) for feature in study.signals]
        names = [name for name in wanted if name is not None]
        since_s = float(foreseen[0].forecast.made_at * RESOLUTION_S) if windows else math.inf
        return _Planned(_hour(now), study.content_hash, names, foreseen, windows, contexts, since_s)

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

    def _bases(self, study: Study) -> dict[str, dict[str, Scalar]]:
        """Contexts without what signals say, by key, those with the latest jobs first."""
        keys = self.store.latest_contexts(study.name, LOOKED_AT)
        content_hash, known = self._contexts.get(study.name, ("", {}))
        if content_hash != study.content_hash:
            known = {}
        unknown = [key for key in keys if key not in known]
        states = self.store.context_parts(study.name, _ActiveContext, unknown) if unknown else {}
        names = {name for feature in study.signals for name in (feature.name, *feature.was)}
        for key, state in states.items():
            base = {k: v for k, v in state.context.items() if k not in names}
            known[key] = study.context_key(base), base
        known = {key: known[key] for key in keys if key in known}
        self._contexts[study.name] = study.content_hash, known
        bases: dict[str, dict[str, Scalar]] = {}
        for base_key, base in known.values():
            bases.setdefault(base_key, base)
        return dict(islice(bases.items(), MOST_CONTEXTS))

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
            reading, until = self._readings[signal], now - IN_TIME
            points = self.store.signal_points(signal[0], reading.until - READ_AGAIN, now)
            forecaster.series.add_all(points)
            counted = reading.until.timestamp(), until.timestamp()
            reading.count += sum([counted[0] <= at_s < counted[1] for at_s, _ in points])
            reading.until = until
            if reading.since < now - KEPT:  # some are dropped by now
                reading.since = now - KEPT + COUNTED
                reading.count = self._count(signal)
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
        self._readings[signal] = _Reading(now, now - KEPT + COUNTED, now - IN_TIME, now)
        self._readings[signal].count = self._count(signal)
        return forecaster

    def _was_late(self, signal: _SignalKey, now: datetime) -> bool:
        """Whether points came of a time that was over: methods and bands have not learned from
        them, so the forecaster is made anew, now and then."""
        reading = self._readings[signal]
        often = min(max((now - reading.made_at) / 4, MADE_AGAIN), LOOKED_BACK)
        if now - reading.looked_at < often:
            return False
        reading.looked_at = now
        return self._count(signal) > reading.count

    def _count(self, signal: _SignalKey) -> int:
        reading = self._readings[signal]
        return self.store.count_signal_points(signal[0], reading.since, reading.until)

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
        planned: _Planned,
        base: Mapping[str, Scalar],
        earlier: Mapping[str, Any] | None,
        now: datetime,
        made_s: float,
    ) -> dict[str, Any]:
        """What is kept of a context's signals: the hours to come, and those that were.

        ``made_s`` is when the earlier plan was made under this study file."""
        foreseen, hours = planned.foreseen, planned.windows
        signal = foreseen[0].signal
        series = self._forecasters[signal].series
        past = list(earlier["past"]) if earlier else []
        state, why = "active", ""
        seconds = now.timestamp()
        stopped_s = (now - STOPPED).timestamp()
        for each in foreseen:
            if self._forecasters[each.signal].series.between(stopped_s, seconds) is None:
                state, why = "withdrawn", f"no point has come for {STOPPED.days} days"
        begun_s = foreseen[0].forecast.made_at * RESOLUTION_S
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
            elif window["start_s"] < begun_s and window["start_s"] <= made_s + 2 * EVERY_S:
                # What was foreseen when the hour began stands until it is over; after a pause, what
                # was foreseen long before does not.
                hours = [window, *(hour for hour in hours if hour["start_s"] > window["start_s"])]
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

    def _outside(self, planned: _Planned, now: datetime) -> str:
        """Which signal is outside of its band in this hour; empty where none is."""
        window = planned.windows[0] if planned.windows else {}
        for feature, signal, _ in planned.foreseen if window else ():
            spacing = self._forecasters[signal].spacing  # a point of a slow signal stands as long
            slot = now.timestamp() // RESOLUTION_S - max(3, spacing)
            # What came before the hour was foreseen says nothing of it.
            since_s = max(planned.since_s, slot * RESOLUTION_S)
            latest = self._means_since(since_s, now).get(signal[0])
            band = window["lowest"], window["highest"]
            lowest, highest = window.get("others", {}).get(feature.name, band)[-2:]
            if latest is not None and not lowest <= latest <= highest:
                name = f"{feature.name}: " if len(planned.foreseen) > 1 else ""
                return (
                    f"{name}{latest:.6g} is outside the 98 % band from {lowest:.6g} to"
                    f" {highest:.6g}"
                )
        return ""

    def _means_since(self, since_s: float, now: datetime) -> dict[str, float]:
        if since_s not in self._means:
            since = datetime.fromtimestamp(since_s, UTC)
            self._means[since_s] = self.store.signal_means(since, now)
        return self._means[since_s]


def _hour(now: datetime) -> int:
    return int(now.timestamp() // WINDOW_S)


def _as_kept(window: PlanWindow) -> dict[str, Any]:
    """An hour as it is kept; a deep copy would take longer than the plan."""
    return {part.name: getattr(window, part.name) for part in dataclasses.fields(window)}


def _probable(windows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of each context the probability at its most probable hour."""
    probable: dict[str, float] = {}
    for window in windows:
        for key, probability in window["contexts"].items():
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
