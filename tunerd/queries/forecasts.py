"""What a study's signals will be, what is planned on that, and what came: as the daemon kept it.
And which contexts are to come by the study's own jobs, as the daemon foresaw it."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from tunerd.core.decisions.context_state import UNREADABLE
from tunerd.core.forecasting.rhythm import ContextForecast
from tunerd.core.observation import Scalar
from tunerd.core.study_file import parse_study
from tunerd.errors import CorruptDataError, MisconfiguredError
from tunerd.store import Store

__all__ = [
    "ContextToCome",
    "ForecastBand",
    "ForecastHour",
    "PlanSignal",
    "SignalPlan",
    "StudyForecast",
    "study_forecast",
]


class ForecastBand(msgspec.Struct, frozen=True, kw_only=True):
    """What a further signal of a study is in an hour."""

    low: float
    """The 10, 50 and 90 % quantiles."""
    median: float
    high: float
    lowest: float
    """The 1 and 99 % quantiles."""
    highest: float
    came: float | None = None
    """The signal's mean, of an hour that was and has points."""


class ForecastHour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour to come, or one that was."""

    start_s: float
    end_s: float
    low: float
    """Of the signal: the 10, 50 and 90 % quantiles."""
    median: float
    high: float
    lowest: float | None = None
    """The 1 and 99 % quantiles: beyond these the forecast has failed."""
    highest: float | None = None
    contexts: dict[str, float]
    """Probability of each context key that may come."""
    key: str
    """The context that is planned for."""
    recommended: str | None = None
    """State of what is recommended there now; None: nothing."""
    came: float | None = None
    """The signal's mean, of an hour that was and has points."""
    others: dict[str, ForecastBand] = {}
    """Of the study's further signals, by the feature that each fills in."""

    def of(self, feature: str) -> "ForecastHour":
        """The same hour with the numbers of a further signal."""
        numbers = msgspec.structs.asdict(self.others[feature])
        return msgspec.structs.replace(self, **numbers, others={})


class PlanSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A further signal that a plan stands on."""

    signal: str
    methods: dict[str, float]
    """Weight of each method."""


class SignalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned for one context, and the signals that this stands on."""

    signal: str
    """The first of them."""
    context: dict[str, Scalar]
    """Without what the signal says."""
    state: Literal["active", "withdrawn"]
    why: str
    """It is withdrawn."""
    methods: dict[str, float]
    """Weight of each method."""
    windows: list[ForecastHour]
    past: list[ForecastHour]
    others: dict[str, PlanSignal] = {}
    """The others, by the feature that each fills in."""

    def by_signal(self) -> "list[SignalPlan]":
        """The plan once for each of its signals, with the numbers of that one in its hours."""
        return [self, *(self._of(feature) for feature in self.others)]

    def _of(self, feature: str) -> "SignalPlan":
        windows, past = (
            [hour.of(feature) for hour in hours if feature in hour.others]
            for hours in (self.windows, self.past)
        )
        numbers = msgspec.structs.asdict(self.others[feature])
        more = {"windows": windows, "past": past, "others": {}, "why": ""}
        return msgspec.structs.replace(self, **numbers, **more)


class ContextToCome(msgspec.Struct, frozen=True, kw_only=True):
    """A context of which jobs are to come, by the rhythm of those that came or by what grows."""

    key: str
    comes_at: datetime | None
    """The first hour within the horizon; None where nobody knows when."""
    probability: float | None
    """At its most probable hour."""
    why: Literal["rhythm", "growth"]
    recommended: str | None = None
    """State of what is recommended there now; None: nothing."""


class StudyForecast(msgspec.Struct, frozen=True, kw_only=True):
    """All of a study."""

    schema: Literal["tunerd.forecast/1"] = "tunerd.forecast/1"
    study: str
    made_at: datetime | None
    """None: there is no forecast."""
    feature: str | None
    signals: list[SignalPlan]
    contexts: list[ContextToCome] = []
    """In the order in which they come."""


class _ForeseenContext(msgspec.Struct):
    """What of a context's saved state is read here; a tunerd before this one kept none."""

    foreseen: Any = None


class _StudyAhead(msgspec.Struct):
    """What of a study's saved state is read here."""

    ahead: list[str] | None = None
    """Keys of the contexts that are foreseen. A tunerd before this one kept none: all are read."""


def study_forecast(store: Store, study: str, now: datetime) -> StudyForecast:
    """What is kept of a study's forecasts, with what is recommended in each hour's context; and
    which contexts are foreseen by the study's own jobs, and not missed by ``now``."""
    kept, contexts = store.forecast_plan(study), _contexts(store, study, now)
    if kept is None:
        return StudyForecast(study=study, made_at=None, feature=None, signals=[], contexts=contexts)
    made_at, plan = kept
    # A study may have thousands of recommendations, and a plan names a few contexts.
    keys = {window["key"] for signal in plan["signals"] for window in signal["windows"]}
    rows = {key: store.recommendation(study, key) for key in keys}

    def coming(window: dict[str, Any]) -> dict[str, Any]:
        row = rows[window["key"]]
        return {**_hour(window), "recommended": (row.state or None) if row else None}

    signals = [
        {
            **signal,
            "windows": list(map(coming, signal["windows"])),
            "past": list(map(_hour, signal["past"])),
        }
        for signal in plan["signals"]
    ]
    return StudyForecast(
        study=study,
        made_at=made_at,
        feature=plan["feature"],
        signals=msgspec.convert(signals, list[SignalPlan]),
        contexts=contexts,
    )


def _contexts(store: Store, name: str, now: datetime) -> list[ContextToCome]:
    generation = store.generation(name)
    if generation is None:
        return []
    try:
        options = parse_study(generation.text, name).forecast
        saved = store.study_part(name, _StudyAhead)
        parts = store.context_parts(name, _ForeseenContext, saved.ahead if saved else None)
    except (MisconfiguredError, msgspec.ValidationError, CorruptDataError):
        return []  # of another version, or damaged: the daemon says so
    if not options.ahead:
        return []
    contexts = []
    for key, past in parts.items():
        if past.foreseen is None:
            continue
        try:
            forecast = ContextForecast.load(past.foreseen)
        except UNREADABLE:
            continue
        wanted = options.growth if forecast.why == "growth" else options.rhythm
        if not wanted or forecast.until <= now:
            continue
        row = store.recommendation(name, key)
        contexts.append(
            ContextToCome(
                key=key,
                comes_at=forecast.comes_at,
                probability=forecast.probability,
                why=forecast.why,
                recommended=(row.state or None) if row else None,
            )
        )
    last = datetime.max.replace(tzinfo=UTC)
    return sorted(contexts, key=lambda context: (context.comes_at or last, context.key))


def _hour(window: dict[str, Any]) -> dict[str, Any]:
    """An hour as it is kept, with names for the numbers of further signals."""
    came, names = window.get("others_came", {}), ("low", "median", "high", "lowest", "highest")
    others = {
        feature: {**dict(zip(names, numbers, strict=True)), "came": came.get(feature)}
        for feature, numbers in window.get("others", {}).items()
    }
    return {**window, "others": others}
