"""From forecasts of signals to the contexts that they bring: which, when, how probable."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.forecasting.forecaster import SignalForecast
from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study.context_key import BucketKey, bucket_edge, clean_value
from tunerd.core.study.parts import ContextFeature

__all__ = ["WINDOW_S", "PlanWindow", "bucket_value", "plan_windows"]

WINDOW_S = 3600
MOST_BUCKETS = 60
"""Buckets between a slot's lowest and highest quantile that are looked at."""
MOST_IN_ALL = 4_000
"""Likewise between those of all slots."""
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
    windows: list[PlanWindow] = []
    cost = study.forecast.switching_cost
    planned = ""
    per_window = max(1, WINDOW_S // forecast.resolution_s)
    begun = forecast.made_at % per_window  # windows are whole hours; the first has begun
    starts = [0, *range(per_window - begun, len(forecast.quantiles), per_window)]
    hours, contexts = _probable(study, base, signals, starts)
    bands = {of.name: _bands(ahead, starts) for of, ahead in signals}
    for place, (first, probable) in enumerate(zip(starts, hours, strict=True)):
        start_s = (forecast.made_at + first) // per_window * per_window * forecast.resolution_s
        before = earlier.get(float(start_s))
        if study.forecast.quantile is None:
            best = max(sorted(probable), key=probable.__getitem__)
            if before and probable.get(before, 0.0) >= AS_PROBABLE * probable[best]:
                best = before
        else:
            steps = slice(first, (*starts, None)[place + 1])
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
        band = bands[feature.name][place]
        further = {of.name: bands[of.name][place] for of, _ in others}
        windows.append(PlanWindow(float(start_s), end_s, *band, probable, planned, further))
    return windows, contexts


def _probable(
    study: Study,
    base: Mapping[str, Scalar],
    signals: Sequence[tuple[ContextFeature, SignalForecast]],
    starts: Sequence[int],
) -> tuple[list[dict[str, float]], dict[str, dict[str, Scalar]]]:
    """The probability of each context key in each window, and the context of each key. Windows
    begin at these steps. All steps are taken together: a plan has hundreds."""
    ladders = [_ladder(feature, forecast) for feature, forecast in signals]
    share, places = _joint([until for _, until in ladders])
    step, rung = np.nonzero(share > 0)
    window = np.searchsorted(starts, step, side="right") - 1
    steps = np.diff([*starts, len(share)])
    joint = [place[step, rung] for place in places]
    sizes = (len(starts), *(until.shape[1] for _, until in ladders))
    codes, inverse = np.unique(np.ravel_multi_index((window, *joint), sizes), return_inverse=True)
    probability = np.bincount(inverse, share[step, rung] / steps[window]).tolist()
    probable: list[dict[str, float]] = [{} for _ in starts]
    contexts: dict[str, dict[str, Scalar]] = {}
    keys: dict[tuple[int, ...], str] = {}
    indices = np.stack(np.unravel_index(codes, sizes), axis=1).tolist()
    for (at, *rungs), more in zip(indices, probability, strict=True):
        key = keys.get(tuple(rungs))
        if key is None:
            context = dict(base)
            for (feature, _), (values, _), place in zip(signals, ladders, rungs, strict=True):
                context[feature.name] = values[place]
            key = keys[tuple(rungs)] = study.context_key(context)
            contexts.setdefault(key, context)
        probable[at][key] = probable[at].get(key, 0.0) + more
    return probable, contexts


def _joint(untils: Sequence[FloatArray]) -> tuple[FloatArray, list[IntArray]]:
    """Ranges of quantiles in which no signal changes its bucket, at each step: (steps, ranges) how
    wide each is, and the place of each signal's bucket in it.

    Args:
        untils: of each signal (steps, buckets), the quantile up to which each bucket reaches.
    """
    ends = untils[0] if len(untils) == 1 else np.sort(np.concatenate(untils, axis=1), axis=1)
    begins = np.concatenate([np.zeros((len(ends), 1)), ends[:, :-1]], axis=1)
    if len(untils) == 1:
        return ends - begins, [np.broadcast_to(np.arange(ends.shape[1]), ends.shape)]
    places = [
        np.array(
            [np.searchsorted(row, at, side="right") for row, at in zip(until, begins, strict=True)]
        )
        for until in untils
    ]
    last = [until.shape[1] - 1 for until in untils]
    return ends - begins, [np.minimum(*pair) for pair in zip(places, last, strict=True)]


def _worst(
    base: Mapping[str, Scalar],
    signals: Sequence[tuple[ContextFeature, SignalForecast]],
    steps: slice,
    quantile: float,
    more: float,
) -> dict[str, Scalar]:
    """The context of the highest such quantile of each signal over some steps, and a share more."""
    context = dict(base)
    for feature, forecast in signals:
        worst = float(forecast.quantile(quantile)[steps].max())
        context[feature.name] = bucket_value(feature, worst + more * abs(worst))
    return context


def _bands(
    forecast: SignalForecast, starts: Sequence[int]
) -> list[tuple[float, float, float, float, float]]:
    """Of each window the means of the 10, 50 and 90 % quantiles, and the lowest and highest
    quantile of all."""
    rows = forecast.quantiles
    steps = np.diff([*starts, len(rows)])
    middles = [
        np.add.reduceat(forecast.quantile(level), starts) / steps for level in (0.1, 0.5, 0.9)
    ]
    lowest, highest = (
        np.minimum.reduceat(rows[:, 0], starts),
        np.maximum.reduceat(rows[:, -1], starts),
    )
    return list(zip(*(column.tolist() for column in (*middles, lowest, highest)), strict=True))


def _ladder(feature: ContextFeature, forecast: SignalForecast) -> tuple[list[Scalar], FloatArray]:
    """Values that stand for buckets, ascending, and (steps, buckets) the probability up to the end
    of each at a step; that of the last is 1."""
    factor = _factor(feature)
    least = 0.5 if feature.type == "int" else SMALLEST  # what is nearer to 0 counts as 0
    low, high = forecast.quantiles[:, 0], forecast.quantiles[:, -1]
    above, under = _edges(low, high, factor, least), _edges(-high, -low, factor, least)
    # Where each bucket ends, in the order of the signal; what is between the two sides is 0.
    ends = [(-edge, bucket_value(feature, -edge * math.sqrt(factor))) for edge in reversed(under)]
    if ((low < least) & (high > -least)).any():
        ends.append((above[0] if above else math.inf, 0 if feature.type == "int" else 0.0))
    ends += [(edge * factor, bucket_value(feature, edge * math.sqrt(factor))) for edge in above]
    until = forecast.probabilities_below(np.array([end for end, _ in ends]))
    # Of what is far nearer to 0 than a step's largest number, a step has no buckets of their own.
    zero, ratio = len(under), _largest_ratio(factor, MOST_BUCKETS)
    many = np.flatnonzero(high / ratio > np.maximum(low, least))
    for step, first in zip(
        many, len(ends) - len(above) + _places(above, high[many] / ratio), strict=True
    ):
        if low[step] < least:
            until[step, zero:first] = until[step, first - 1]
        else:
            until[step, :first] = 0.0
    many = np.flatnonzero(-low / ratio > np.maximum(-high, least))
    for step, last in zip(many, zero - 1 - _places(under, -low[many] / ratio), strict=True):
        if high[step] > -least:
            until[step, last:zero] = until[step, last]
        else:
            until[step, last:] = 1.0
    until[:, -1] = 1.0
    return [value for _, value in ends], until


def _places(edges: Sequence[float], values: FloatArray) -> IntArray:
    """The bucket, of those with these lower edges, that each positive number lies in."""
    return np.maximum(np.searchsorted(edges, values * (1 + 1e-9), side="right") - 1, 0)


def _edges(low: FloatArray, high: FloatArray, factor: float, least: float) -> list[float]:
    """Lower edges of the buckets of positive numbers between two at each step, ascending."""
    steps = high >= least
    if not steps.any():
        return []
    low, high = low[steps], high[steps]
    lowest = np.maximum(low, high / _largest_ratio(factor, MOST_BUCKETS)).min()
    top = float(high.max())
    edges = [
        bucket_edge(max(float(lowest), least, top / _largest_ratio(factor, MOST_IN_ALL)), factor)
    ]
    while edges[-1] * factor <= top:
        edges.append(edges[-1] * factor)
    return edges


def _largest_ratio(factor: float, buckets: int) -> float:
    return math.exp(min(buckets * math.log(factor), 600.0))


def _factor(feature: ContextFeature) -> float:
    return feature.key.factor if isinstance(feature.key, BucketKey) else 1.25
