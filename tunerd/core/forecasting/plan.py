"""From forecasts of signals to the contexts that they bring: which, when, how probable."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tunerd.core.forecasting.forecaster import SignalForecast
from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study.context_key import BucketKey, bucket_edge, clean_value
from tunerd.core.study.parts import ContextFeature

__all__ = ["PlanWindow", "bucket_value", "plan_windows"]

WINDOW_S = 3600
MOST_BUCKETS = 60
"""Buckets between a slot's lowest and highest quantile that are looked at."""
AS_PROBABLE = 0.8
"""An hour keeps the context that was planned for it while that is so probable beside the best."""
AS_HIGH = 0.05
"""A plan for a quantile goes up at once, and down only where this share of it is to spare."""
SMALLEST = 1e-150
"""What is nearer to 0 than this is 0: beyond, floats run out of digits."""


@dataclass(frozen=True, slots=True)
class PlanWindow:
    """An hour of the horizon."""

    start_s: float
    end_s: float
    low: float
    median: float
    high: float
    """Of the signal: the 10, 50 and 90 % quantiles, on the mean of the hour."""
    lowest: float
    highest: float
    """The 1 and 99 % quantiles, over all of the hour: beyond these the forecast has failed."""
    contexts: Mapping[str, float]
    """Probability of each context key that may come."""
    key: str
    """The context that is planned for."""
    others: Mapping[str, tuple[float, float, float, float, float]] = field(default_factory=dict)
    """Of further signals, by feature: low, median, high, lowest and highest, likewise."""


def bucket_value(feature: ContextFeature, value: float) -> Scalar:
    """The number that stands for a value's bucket: its middle on a log scale, which lies in the
    same bucket for any number in it."""
    if value < 0:
        mirrored = bucket_value(feature, -value)
        return -mirrored if isinstance(mirrored, int | float) else mirrored
    factor = _factor(feature)
    edge = bucket_edge(value, factor)
    middle = edge * math.sqrt(factor)
    if feature.type == "int":
        whole = round(middle) if bucket_edge(round(middle), factor) == edge else math.ceil(edge)
        return clean_value(whole, "int")  # beyond 64 bits it is missing, as in a job
    return middle


def plan_windows(
    study: Study,
    feature: ContextFeature,
    base: Mapping[str, Scalar],
    forecast: SignalForecast,
    worth: Callable[[str], float | None],
    earlier: Mapping[float, str] = MappingProxyType({}),
    others: Sequence[tuple[ContextFeature, SignalForecast]] = (),
) -> tuple[list[PlanWindow], dict[str, dict[str, Scalar]]]:
    """The hours of a forecast's horizon for one context without its signal.

    Args:
        feature: of the study, in buckets; what the signal is.
        base: the other features.
        worth: predicted gain of what is recommended in a context; None where nothing is known. A
            change of the plan that brings less than the study's ``switching_cost`` is not made.
        earlier: the key that was planned before, by the start of its hour. It stays where another
            is hardly better: between two buckets the plan would change with every forecast.
        others: further features from signals, and their forecasts of the same slots. Signals count
            as comonotone: all are at the same quantile at a time.

    Returns:
        The hours in order, and the context of each key that stands in them.
    """
    signals = [(feature, forecast), *others]
    contexts: dict[str, dict[str, Scalar]] = {}
    windows: list[PlanWindow] = []
    cost = study.forecast.switching_cost
    planned = ""
    per_window = max(1, WINDOW_S // forecast.resolution_s)
    begun = forecast.made_at % per_window  # windows are whole hours; the first has begun
    starts = [0, *range(per_window - begun, len(forecast.quantiles), per_window)]
    for first, end in zip(starts, [*starts[1:], len(forecast.quantiles)], strict=True):
        steps = range(first, end)
        probable = _probable(study, base, signals, steps, contexts)
        start_s = (forecast.made_at + first) // per_window * per_window * forecast.resolution_s
        before = earlier.get(float(start_s))
        if study.forecast.quantile is None:
            best = max(sorted(probable), key=probable.__getitem__)
            if before and probable.get(before, 0.0) >= AS_PROBABLE * probable[best]:
                best = before
        else:
            context = _worst(base, signals, steps, study.forecast.quantile, 0.0)
            higher = _worst(base, signals, steps, study.forecast.quantile, AS_HIGH)
            if before == study.context_key(higher):
                context = higher
            best = study.context_key(context)
            contexts.setdefault(best, context)
            probable.setdefault(best, 0.0)
        gain, planned = worth(best), before or planned
        if planned not in probable or cost <= 0.0 or gain is None or gain >= cost:
            planned = best
        end_s = float(start_s + per_window * forecast.resolution_s)
        bands = {of.name: _band(ahead, steps) for of, ahead in others}
        windows.append(
            PlanWindow(float(start_s), end_s, *_band(forecast, steps), probable, planned, bands)
        )
    return windows, contexts


def _probable(
    study: Study,
    base: Mapping[str, Scalar],
    signals: Sequence[tuple[ContextFeature, SignalForecast]],
    steps: range,
    contexts: dict[str, dict[str, Scalar]],
) -> dict[str, float]:
    """Probability of each context key over some steps; puts the context of each into contexts."""
    probable: dict[str, float] = {}
    for step in steps:
        for values, probability in _joint(signals, step):
            context = {**base, **values}
            key = study.context_key(context)
            contexts.setdefault(key, context)
            probable[key] = probable.get(key, 0.0) + probability / len(steps)
    return probable


def _joint(
    signals: Sequence[tuple[ContextFeature, SignalForecast]], step: int
) -> list[tuple[dict[str, Scalar], float]]:
    """Values of all features at a step, and the probability that they hold together: those that
    share a range of quantiles."""
    ladders = [(feature.name, _buckets(feature, forecast, step)) for feature, forecast in signals]
    places = [0] * len(ladders)
    joint: list[tuple[dict[str, Scalar], float]] = []
    below = 0.0
    while below < 1.0:
        rungs = [ladder[place] for (_, ladder), place in zip(ladders, places, strict=True)]
        until = min(end for _, end in rungs)
        values = {name: value for (name, _), (value, _) in zip(ladders, rungs, strict=True)}
        joint.append((values, until - below))
        places = [place + (end <= until) for (_, end), place in zip(rungs, places, strict=True)]
        below = until
    return joint


def _worst(
    base: Mapping[str, Scalar],
    signals: Sequence[tuple[ContextFeature, SignalForecast]],
    steps: range,
    quantile: float,
    more: float,
) -> dict[str, Scalar]:
    """The context of the highest such quantile of each signal over some steps, and a share more."""
    context = dict(base)
    for feature, forecast in signals:
        rows = forecast.quantiles[steps.start : steps.stop]
        worst = max(float(np.interp(quantile, forecast.levels, row)) for row in rows)
        context[feature.name] = bucket_value(feature, worst + more * abs(worst))
    return context


def _band(forecast: SignalForecast, steps: range) -> tuple[float, float, float, float, float]:
    """Means of the 10, 50 and 90 % quantiles, and the lowest and highest quantile of all."""
    rows = forecast.quantiles[steps.start : steps.stop]
    low, median, high = (
        float(np.mean([np.interp(level, forecast.levels, row) for row in rows]))
        for level in (0.1, 0.5, 0.9)
    )
    return low, median, high, float(rows[:, 0].min()), float(rows[:, -1].max())


def _buckets(
    feature: ContextFeature, forecast: SignalForecast, step: int
) -> Sequence[tuple[Scalar, float]]:
    """Values that stand for buckets, ascending, with the probability up to the end of each at a
    step; that of the last is 1."""
    factor = _factor(feature)
    low, high = map(float, forecast.quantiles[step][[0, -1]])
    least = 0.5 if feature.type == "int" else SMALLEST  # what is nearer to 0 counts as 0
    above, under = _edges(low, high, factor, least), _edges(-high, -low, factor, least)
    # Where each bucket ends, in the order of the signal; what is between the two sides is 0.
    ends: list[tuple[float, Scalar]] = [
        (-edge, bucket_value(feature, -edge * math.sqrt(factor))) for edge in reversed(under)
    ]
    if above and low < least:
        ends.append((above[0], 0 if feature.type == "int" else 0.0))
    ends += [(edge * factor, bucket_value(feature, edge * math.sqrt(factor))) for edge in above]
    if not above and high > -least:
        ends.append((math.inf, 0 if feature.type == "int" else 0.0))
    values: list[tuple[Scalar, float]] = []
    below = 0.0
    for number, (end, value) in enumerate(ends, 1):
        until = 1.0 if number == len(ends) else forecast.probability_below(step, end)
        if until > below:
            values.append((value, until))
        below = until
    return values


def _edges(low: float, high: float, factor: float, least: float) -> list[float]:
    """Lower edges of the buckets of positive numbers between two, ascending, at most so many."""
    if high < least:
        return []
    lowest = max(low, least, high / _largest_ratio(factor))
    edges = [bucket_edge(lowest, factor)]
    while edges[-1] * factor <= high:
        edges.append(edges[-1] * factor)
    return edges


def _largest_ratio(factor: float) -> float:
    return math.exp(min(MOST_BUCKETS * math.log(factor), 600.0))


def _factor(feature: ContextFeature) -> float:
    return feature.key.factor if isinstance(feature.key, BucketKey) else 1.25
