"""The plan of one context without its signals: made once an hour, held against what comes."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tunerd.core.forecasting.forecaster import SignalForecast, SignalForecaster
from tunerd.core.forecasting.plan import WINDOW_S, PlanWindow, plan_windows
from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study.parts import ContextFeature

__all__ = [
    "STOPPED_S",
    "ContextPlan",
    "ForeseenSignal",
    "SignalKey",
    "hour_of",
    "make_context_plan",
    "plan_document",
]

PAST_HOURS = 72
STOPPED_S = 2 * 86_400.0
"""A signal without a point for so long has stopped: nothing is asked on what it was."""
PAUSE_S = 600.0
"""What was foreseen before a longer pause than this does not stand for the hour that has begun."""


SignalKey = tuple[str, bool]
"""Written name, and whether it is on a log scale, where nothing is below 0."""

LatestMeans = Callable[[float], Mapping[str, float]]
"""From a time in seconds since 1970 to the means of all signals from then until now."""


class ForeseenSignal(NamedTuple):
    """A feature's signal, and what it will be."""

    feature: ContextFeature
    signal: SignalKey
    forecast: SignalForecast


class ContextPlan(NamedTuple):
    """What was planned for one context last."""

    hour: int
    """In which it was, since 1970."""
    study: str
    """Content hash."""
    signals: Sequence[str]
    """That it needs."""
    foreseen: Sequence[ForeseenSignal]
    """Of these, as far as they are known."""
    windows: Sequence[Mapping[str, Any]]
    """Empty where one of them is not."""
    contexts: Mapping[str, dict[str, Scalar]]
    """Of the keys in the windows."""
    since_s: float
    """Points from then on are held against the band of the first hour."""

    def stands(
        self,
        study: Study,
        forecasters: Mapping[SignalKey, SignalForecaster],
        means: LatestMeans,
        now_s: float,
    ) -> bool:
        """Whether it was made in this hour, and no signal has left its band or begun since."""
        if (self.hour, self.study) != (hour_of(now_s), study.content_hash):
            return False
        known = {of.signal[0] for of in self.foreseen}
        unknown = [name for name in self.signals if name not in known]
        if unknown and not means(self.hour * WINDOW_S).keys().isdisjoint(unknown):
            return False
        return not self.why_outside(forecasters, means, now_s)

    def why_outside(
        self,
        forecasters: Mapping[SignalKey, SignalForecaster],
        means: LatestMeans,
        now_s: float,
    ) -> str:
        """Which signal is outside of its band in this hour; empty where none is."""
        window = self.windows[0] if self.windows else {}
        for feature, signal, forecast in self.foreseen if window else ():
            spacing = forecasters[signal].spacing  # a point of a slow signal stands as long
            slot = now_s // forecast.resolution_s - max(3, spacing)
            # What came before the hour was foreseen says nothing of it.
            since_s = max(self.since_s, slot * forecast.resolution_s)
            latest = means(since_s).get(signal[0])
            band = window["lowest"], window["highest"]
            lowest, highest = window.get("others", {}).get(feature.name, band)[-2:]
            if latest is not None and not lowest <= latest <= highest:
                name = f"{feature.name}: " if len(self.foreseen) > 1 else ""
                return (
                    f"{name}{latest:.6g} is outside the 98 % band from {lowest:.6g} to"
                    f" {highest:.6g}"
                )
        return ""

    def probable(self) -> dict[str, float]:
        """Of each context the probability at its most probable hour."""
        probable: dict[str, float] = {}
        for window in self.windows:
            for key, probability in window["contexts"].items():
                probable[key] = max(probability, probable.get(key, 0.0))
        return probable


def hour_of(now_s: float) -> int:
    """Hours since 1970."""
    return int(now_s // WINDOW_S)


def make_context_plan(
    study: Study,
    base: Mapping[str, Scalar],
    foreseen: Sequence[ForeseenSignal],
    worth: Callable[[str], float | None],
    earlier: Mapping[str, Any] | None,
    now_s: float,
) -> ContextPlan:
    """Plan the hours to come for one context; none where one of its signals is not known.

    Args:
        base: the context without its signals.
        worth: as :func:`~.plan.plan_windows` has it.
        earlier: the plan document that was kept for the context before.
    """
    windows: list[dict[str, Any]] = []
    contexts: dict[str, dict[str, Scalar]] = {}
    if len(foreseen) == len(study.signals):
        hours = {hour["start_s"]: hour["key"] for hour in earlier["windows"]} if earlier else {}
        first, *others = [(of.feature, of.forecast) for of in foreseen]
        made, contexts = plan_windows(study, first[0], base, first[1], worth, hours, others)
        windows = [_as_kept(window) for window in made]
    wanted = [study.signal_of(feature, base) for feature in study.signals]
    names = [name for name in wanted if name is not None]
    since_s = _begun_s(foreseen) if windows else math.inf
    return ContextPlan(
        hour_of(now_s), study.content_hash, names, foreseen, windows, contexts, since_s
    )


def plan_document(
    plan: ContextPlan,
    base: Mapping[str, Scalar],
    forecasters: Mapping[SignalKey, SignalForecaster],
    earlier: Mapping[str, Any] | None,
    now_s: float,
    made_s: float,
) -> dict[str, Any]:
    """What is kept of a context's plan: the hours to come, and those that were.

    Args:
        earlier: what was kept of the one before.
        made_s: when that was made under this study file.
    """
    first, *others = plan.foreseen
    state, why = "active", ""
    for each in plan.foreseen:
        if forecasters[each.signal].series.between(now_s - STOPPED_S, now_s) is None:
            state, why = "withdrawn", f"no point has come for {STOPPED_S / 86_400:.0f} days"
    past, begun = _passed(plan, forecasters, earlier, now_s, made_s)
    later = [hour for hour in plan.windows if not begun or hour["start_s"] > begun["start_s"]]
    return {
        "signal": first.signal[0],
        "others": {
            each.feature.name: {
                "signal": each.signal[0],
                "methods": forecasters[each.signal].shares(),
            }
            for each in others
        },
        "context": dict(base),
        "state": state,
        "why": why,
        "methods": forecasters[first.signal].shares(),
        # What was foreseen when the hour began stands until it is over.
        "windows": [begun, *later] if begun else later,
        "past": past[-PAST_HOURS:],
    }


def _passed(
    plan: ContextPlan,
    forecasters: Mapping[SignalKey, SignalForecaster],
    earlier: Mapping[str, Any] | None,
    now_s: float,
    made_s: float,
) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None]:
    """The hours that are over with what came in them, and the earlier plan of the present hour
    where it stands."""
    first, *others = plan.foreseen
    past = list(earlier["past"]) if earlier else []
    for window in earlier["windows"] if earlier else ():
        if past and window["start_s"] <= past[-1]["start_s"]:
            continue
        if window["end_s"] > now_s:
            stands = window["start_s"] < _begun_s(plan.foreseen)
            paused = window["start_s"] > made_s + PAUSE_S
            return past, window if stands and not paused else None
        hour_s = window["start_s"], window["end_s"] - 1
        came = {
            each.feature.name: forecasters[each.signal].series.between(*hour_s) for each in others
        }
        window = {**window, "contexts": {}, "others_came": came}
        past.append({**window, "came": forecasters[first.signal].series.between(*hour_s)})
    return past, None


def _begun_s(foreseen: Sequence[ForeseenSignal]) -> float:
    """From when on the future is foreseen."""
    return float(foreseen[0].forecast.made_at * foreseen[0].forecast.resolution_s)


def _as_kept(window: PlanWindow) -> dict[str, Any]:
    """An hour as it is kept; a deep copy would take longer than the plan."""
    return {part.name: getattr(window, part.name) for part in dataclasses.fields(window)}
