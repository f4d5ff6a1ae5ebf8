"""What a study's signals will be, what is planned on that, and what came: as the daemon kept it."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from tunerd.core.observation import Scalar
from tunerd.store import Store

__all__ = ["ForecastHour", "SignalPlan", "StudyForecast", "study_forecast"]


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


class SignalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One signal of one context."""

    signal: str
    context: dict[str, Scalar]
    """Without what the signal says."""
    state: Literal["active", "withdrawn"]
    why: str
    """It is withdrawn."""
    methods: dict[str, float]
    """Weight of each method."""
    windows: list[ForecastHour]
    past: list[ForecastHour]


class StudyForecast(msgspec.Struct, frozen=True, kw_only=True):
    """All of a study."""

    schema: Literal["tunerd.forecast/1"] = "tunerd.forecast/1"
    study: str
    made_at: datetime | None
    """None: there is no forecast."""
    feature: str | None
    signals: list[SignalPlan]


def study_forecast(store: Store, study: str) -> StudyForecast:
    """What is kept of a study's forecasts, with what is recommended in each hour's context."""
    kept = store.forecast_plan(study)
    if kept is None:
        return StudyForecast(study=study, made_at=None, feature=None, signals=[])
    made_at, plan = kept
    # A study may have thousands of recommendations, and a plan names a few contexts.
    keys = {window["key"] for signal in plan["signals"] for window in signal["windows"]}
    rows = {key: store.recommendation(study, key) for key in keys}

    def hour(window: dict[str, Any]) -> dict[str, Any]:
        row = rows[window["key"]]
        return {**window, "recommended": (row.state or None) if row else None}

    signals = [
        {**signal, "windows": list(map(hour, signal["windows"]))} for signal in plan["signals"]
    ]
    return StudyForecast(
        study=study,
        made_at=made_at,
        feature=plan["feature"],
        signals=msgspec.convert(signals, list[SignalPlan]),
    )
