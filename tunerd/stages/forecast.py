"""Forecast: foresee the signals that studies use, and ask for the contexts that they will bring.

Whoever holds the lease looks every few minutes. Forecasts and plans are made anew once an hour, and
at once where a signal left its band or a context is new. Every few minutes would be a tenth of a
core for a thousand signals, and one more point hardly changes the hours to come.

What it asks, it asks as anybody does, by a request: the tune stage searches the context and
publishes what it finds, before the first job of it has come. The plan of the coming hours is kept
in the store for people and commands.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from tunerd import logs
from tunerd.core.forecasting.context_plan import (
    ContextPlan,
    ForeseenSignal,
    SignalKey,
    make_context_plan,
    plan_document,
)
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
from tunerd.stages.signal_forecasters import MADE_AT_ONCE, RESOLUTION_S, SignalForecasters
from tunerd.store import Store, StudyRow
from tunerd.store.signals import shifts_of

__all__ = ["ForecastStage"]

EVERY_S = 300.0
AGAIN_S = 15.0
"""How soon it looks again where there was nothing to foresee."""
PRUNE_EVERY_S = 3600.0
LEASE, LEASE_S = "forecasts", 900.0
LOOKED_AT = 1_000
"""Contexts of a study with the latest jobs: their signals are foreseen."""
MOST_CONTEXTS = 50
"""Of those without their signals so many: a signal has a context for each bucket of it."""
ASKED_MOST = 20
"""Contexts ahead that are asked about at a time."""
SPEAKING = ("active", "observed", "pending")
"""States of recommendations that say something for a context already."""


class _ActiveContext(msgspec.Struct):
    """What of a context's saved state is read here."""

    context: dict[str, Any]


@dataclass
class _Looked:
    """What was found when a study was looked at last; where nothing changed, nothing is done."""

    document: str
    """The plans as they lie in the store."""
    outside: dict[str, str]
    """Of each context, by key, which signal has left its band."""
    planned: dict[str, ContextPlan]
    """Of each context that has a plan, by key."""
    used: set[SignalKey]


class _Gains:
    """What is predicted to be gained in each context that something is said for. Most of the
    messages are never asked for: they are decoded where they are."""

    def __init__(self, store: Store, study: str) -> None:
        rows = store.recommendations(study, states=SPEAKING)
        self._messages = {row.context_key: row.value for row in rows}
        self._known: dict[str, float | None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._messages

    def get(self, key: str) -> float | None:
        """None where nothing is said, or no gain is known."""
        if key not in self._known:
            message = self._messages.get(key)
            candidates = from_bytes(message.encode()).candidates if message else ()
            gain = candidates[0].gain if candidates else None
            self._known[key] = None if gain is None else gain.median
        return self._known[key]


@dataclass
class _Before:
    """What was kept of a study."""

    document: Mapping[str, Any]
    """Empty where there was nothing."""
    made_s: float
    """When it was planned under this study file; else long ago: the same load may have another
    key."""
    plans: Mapping[str, Mapping[str, Any]]
    """By context without signals, where they are for the same feature."""

    @staticmethod
    def of(study: Study, kept: tuple[datetime, dict[str, Any]] | None) -> "_Before":
        """Of what the store has."""
        if kept is None:
            return _Before({}, -math.inf, {})
        made_at, document = kept
        same = document.get("study") == study.content_hash
        plans = document["signals"] if document["feature"] == study.signals[0].name else ()
        return _Before(
            document,
            made_at.timestamp() if same else -math.inf,
            {study.context_key(plan["context"]): plan for plan in plans},
        )


@dataclass
class ForecastStage:
    """The stage. Keeps a forecaster for each signal in memory; the store has the points. Also drops
    points that are older than are kept, whether or not a study uses them.

    A look takes several steps where forecasters are to be made. A study waits for all of its own:
    with some of its plans missing, those that stand would be withdrawn."""

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
    _waiting: deque[str] = field(default_factory=deque)
    """Studies that this look has not come to yet."""
    _used: set[SignalKey] = field(default_factory=set)
    """Signals that it has found in use."""
    _looked: dict[str, _Looked] = field(default_factory=dict)
    _contexts: dict[str, tuple[str, dict[str, tuple[str, dict[str, Scalar]]]]] = field(
        default_factory=dict
    )
    """By study: content hash, and the contexts with the latest jobs by key: each without what
    signals say, after the key of that."""
    _means: dict[float, dict[str, float]] = field(default_factory=dict)
    """Means of all signals since a time, as of this step."""

    def __post_init__(self) -> None:
        self._forecasters = SignalForecasters(self.store)

    def step(self) -> bool:
        """Foresee what is due, as far as few forecasters are to be made; whether anything was."""
        now = self.now()
        if not self._waiting and not self._begin_look(now):
            return False
        if self.store.take_lease(LEASE, self.owner, LEASE_S) is None:
            self._waiting.clear()
            return False
        self._means, self._forecasters.room = {}, MADE_AT_ONCE
        while self._waiting:
            name = self._waiting[0]
            try:
                if not self._look_at(name, now):
                    return True
            except StoreUnavailableError:
                raise
            except Exception:
                # What one study's signals do keeps no other from being foreseen.
                self._looked.pop(name, None)
                self.log.exception("forecasting failed", study=name)
            self._waiting.popleft()
        self._end_look(now)
        return any(study for _, study in self._studies.values())

    def close(self) -> None:
        """Leave it to others at once."""
        with self.store.transaction() as tx:
            tx.release_leases(self.owner, [LEASE])

    def _begin_look(self, now: datetime) -> bool:
        """Whether a look is due, and there is anything to look at."""
        if self._at is not None and (now - self._at).total_seconds() < EVERY_S:
            return False
        self._studies = {row.name: self._study(row) for row in self.store.studies()}
        self._at, self._used = now, set()
        if not any(study for _, study in self._studies.values()) and not self.store.signal_names():
            return False
        self._waiting.extend(self._studies)
        return True

    def _end_look(self, now: datetime) -> None:
        if self._pruned_at is None or (now - self._pruned_at).total_seconds() >= PRUNE_EVERY_S:
            with self.store.transaction() as tx:
                tx.prune_signals(tx.no_later(now))
            self._pruned_at = now
        studies = {name for name, (_, study) in self._studies.items() if study is not None}
        if studies and not self._used:  # the first points or jobs may come in this very moment
            self._at = now - timedelta(seconds=EVERY_S - AGAIN_S)
        for known in (self._looked, self._contexts):
            for name in known.keys() - studies:
                del known[name]
        self._forecasters.keep(self._used)

    def _look_at(self, name: str, now: datetime) -> bool:
        """Bring a study's plans up to date; False where more forecasters are to be made first."""
        study = self._studies[name][1]
        if study is None:
            self._end_plans(name, now)
            return True
        used = self._foresee(study, now)
        self._used |= used or set()
        return used is not None

    def _study(self, row: StudyRow) -> tuple[int, Study | None]:
        """The study, where its features from signals are in buckets, and it wants them foreseen;
        after its generation."""
        known = self._studies.get(row.name)
        if known is not None and known[0] == row.generation:
            return known
        current, study = self.store.generation(row.name), None
        if current is not None and "signal" in current.text:
            try:
                parsed = parse_study(current.text)
            except MisconfiguredError:  # the tune stage says so
                parsed = None
            if parsed is not None and parsed.forecast.ahead and parsed.signals:
                keys = [feature.key for feature in parsed.signals]
                study = parsed if all(isinstance(key, BucketKey) for key in keys) else None
        return row.generation, study

    # -- one study --------------------------------------------------------------------------

    def _foresee(self, study: Study, now: datetime) -> set[SignalKey] | None:
        """Make a study's plan, and ask for what it brings; the signals that it uses. None where
        more forecasters are to be made first."""
        looked, bases = self._looked.get(study.name), self._bases(study)
        standing = self._standing(study, bases, now)
        if (
            looked is not None
            and looked.planned.keys() == standing.keys() == bases.keys()
            and not any(looked.outside.values())
            # Others may have written to the store meanwhile.
            and self.store.forecast_document(study.name) == looked.document
        ):
            return looked.used
        for _ in range(2):  # what is read may leave the band of another context that shares it
            fresh = [base for key, base in bases.items() if key not in standing]
            if not self._forecasters.read(self._signals(study, fresh), now):
                return None
            standing = self._standing(study, bases, now)
        before = _Before.of(study, self.store.forecast_plan(study.name))
        gains = _Gains(self.store, study.name)
        made = _Looked("", {}, {}, set())
        documents: list[dict[str, Any]] = []
        alarms: dict[str, SignalAlarm] = {}
        ahead: dict[str, tuple[float, dict[str, Scalar]]] = {}
        for key, base in bases.items():
            plan = standing.get(key)
            if plan is None:
                foreseen = self._forecasts(study, base)
                earlier = before.plans.get(key)
                seconds = now.timestamp()
                plan = make_context_plan(study, base, foreseen, gains.get, earlier, seconds)
            made.used.update(of.signal for of in plan.foreseen)
            self._note_alarms(alarms, key, plan.foreseen)
            made.planned[key] = plan
            if plan.windows:
                documents.append(self._document(key, base, before, made, now))
                if documents[-1]["state"] == "active":
                    _add_ahead(ahead, study, made.planned[key])
        asked = {key: ahead[key] for key in ahead if key not in gains}
        made.document = self._save(study, before.document, documents, alarms, asked, now)
        self._looked[study.name] = made
        return made.used

    def _document(
        self,
        key: str,
        base: Mapping[str, Scalar],
        before: _Before,
        made: _Looked,
        now: datetime,
    ) -> dict[str, Any]:
        """What is kept of a context's plan, which follows the hour that has begun."""
        plan, earlier, seconds = made.planned[key], before.plans.get(key), now.timestamp()
        document = plan_document(plan, base, self._forecasters, earlier, seconds, before.made_s)
        if document["windows"][0] is not plan.windows[0]:  # as it was foreseen when it began
            since_s = document["windows"][0]["start_s"]
            plan = plan._replace(windows=document["windows"], since_s=since_s)
            made.planned[key] = plan
        made.outside[key] = plan.why_outside(self._forecasters, self._latest(now), seconds)
        if made.outside[key]:
            document.update(state="withdrawn", why=made.outside[key])
        return document

    def _save(
        self,
        study: Study,
        before: Mapping[str, Any],
        plans: list[dict[str, Any]],
        alarms: Mapping[str, SignalAlarm],
        ahead: Mapping[str, tuple[float, dict[str, Scalar]]],
        now: datetime,
    ) -> str:
        """Keep and publish plans, tell shifts, and ask about contexts ahead; the document that is
        kept."""
        published = before["signals"] if before else ()
        known_shifts = shifts_of(before) if before else {}
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

    def _standing(
        self, study: Study, bases: Mapping[str, Mapping[str, Scalar]], now: datetime
    ) -> dict[str, ContextPlan]:
        """What was planned for these contexts, by key, where it stands."""
        looked = self._looked.get(study.name)
        planned = {} if looked is None else looked.planned
        latest, seconds = self._latest(now), now.timestamp()
        return {
            key: planned[key]
            for key in bases
            if key in planned and planned[key].stands(study, self._forecasters, latest, seconds)
        }

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

    def _signals(self, study: Study, bases: Sequence[Mapping[str, Scalar]]) -> dict[SignalKey, int]:
        """The signals of contexts, and how many slots ahead the study looks."""
        horizon = int(study.forecast.horizon_hours * 3600 / RESOLUTION_S)
        keys = (_signal(study, feature, base) for base in bases for feature in study.signals)
        return dict.fromkeys((key for key in keys if key is not None), horizon)

    def _forecasts(self, study: Study, base: Mapping[str, Scalar]) -> list[ForeseenSignal]:
        """Of the study's signals in a context; those that nothing is known of are left out."""
        horizon = int(study.forecast.horizon_hours * 3600 / RESOLUTION_S)
        foreseen = []
        for feature in study.signals:
            signal = _signal(study, feature, base)
            forecaster = None if signal is None else self._forecasters.get(signal)
            forecast = None if forecaster is None else forecaster.forecast()
            if signal is not None and forecast is not None:
                foreseen.append(ForeseenSignal(feature, signal, forecast.first(horizon)))
        return foreseen

    def _note_alarms(
        self, alarms: dict[str, SignalAlarm], context_key: str, foreseen: Sequence[ForeseenSignal]
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

    def _latest(self, now: datetime) -> Callable[[float], Mapping[str, float]]:
        """Means of all signals from a time until now."""

        def means(since_s: float) -> Mapping[str, float]:
            if since_s not in self._means:
                since = datetime.fromtimestamp(since_s, UTC)
                self._means[since_s] = self.store.signal_means(since, now)
            return self._means[since_s]

        return means


def _signal(study: Study, feature: ContextFeature, base: Mapping[str, Scalar]) -> SignalKey | None:
    """Which one a feature of a context comes from; None where the context does not say it."""
    name = study.signal_of(feature, base)
    return None if name is None else (name, feature.scale == "log")


def _add_ahead(
    ahead: dict[str, tuple[float, dict[str, Scalar]]], study: Study, plan: ContextPlan
) -> None:
    """Note the contexts that are likely to come, by key, with the highest probability."""
    for key, probability in plan.probable().items():
        known, _ = ahead.get(key, (0.0, {}))
        # Of an hour that was foreseen earlier, contexts are not known, nor to come.
        likely = probability >= max(study.forecast.min_probability, known)
        if likely and key in plan.contexts:
            ahead[key] = probability, plan.contexts[key]


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
