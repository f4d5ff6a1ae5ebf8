"""From a forecast to what is planned for each hour."""

import numpy as np
import pytest

from tunerd.core.forecasting.bands import LEVELS
from tunerd.core.forecasting.forecaster import SignalForecast
from tunerd.core.forecasting.plan import plan_windows
from tunerd.core.study import Study
from tunerd.core.study.context_key import bucket_edge
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError

TEXT = """
schema = 1
name = "web"
[objective]
metric = "requests_per_dollar"
goal = "maximize"
[context]
rps = { type = "float", scale = "log", signal = "rps", over = "5m" }
[parameters]
replicas = { type = "int", values = [1, 2, 4, 8] }
[forecast]
"""


def study(more: str = "") -> Study:
    return parse_study(TEXT + more)


def forecast(*middles: float, spread: float = 0.3) -> SignalForecast:
    """Quarters of an hour, each log-normal about its middle."""
    normal = {0.01: -2.326, 0.99: 2.326, 0.1: -1.282, 0.9: 1.282, 0.5: 0.0}
    units = np.interp(LEVELS, sorted(normal), sorted(normal.values()))
    rows = np.array([middle * np.exp(spread * units) for middle in middles])
    return SignalForecast(0, 900, rows)


def planned(chosen: Study, made: SignalForecast) -> list[float]:
    """The lower edge of the bucket that each hour is planned for."""
    (feature,) = chosen.signals
    windows, contexts = plan_windows(chosen, feature, {}, made, lambda _: None)
    values = [contexts[window.key]["rps"] for window in windows]
    return [bucket_edge(float(value), 1.25) for value in values if isinstance(value, int | float)]


def test_an_hour_is_planned_for_its_most_probable_context() -> None:
    made = forecast(*[100.0] * 8, spread=0.05)
    assert planned(study(), made) == [bucket_edge(100.0, 1.25)] * 2


TWO = TEXT.replace(
    "[parameters]", 'queue = { type = "float", scale = "log", signal = "queue" }\n[parameters]'
)


@pytest.mark.parametrize("quantile", ["", "quantile = 0.9"])
def test_two_signals_are_at_the_same_quantile_at_a_time(quantile: str) -> None:
    chosen = parse_study(TWO + quantile)
    rps, queue = chosen.signals
    load, wait = forecast(*[100.0] * 4, spread=0.4), forecast(*[5.0] * 4, spread=1.0)
    (window,), contexts = plan_windows(
        chosen, rps, {}, load, lambda _: None, others=[(queue, wait)]
    )
    assert sum(window.contexts.values()) == pytest.approx(1.0)
    pairs = {key: (float(c["rps"]), float(c["queue"])) for key, c in contexts.items()}  # type: ignore[arg-type]
    ordered = sorted(pairs.values())
    assert [wait for _, wait in ordered] == sorted(wait for _, wait in ordered)
    # Each signal alone is as probable as it is without the other.
    for place, (feature, made) in enumerate(((rps, load), (queue, wait))):
        (alone,), single = plan_windows(parse_study(TWO), feature, {}, made, lambda _: None)
        for key, probability in alone.contexts.items():
            edge = bucket_edge(float(single[key][feature.name]), 1.25)  # type: ignore[arg-type]
            together = [
                window.contexts[k] for k, p in pairs.items() if bucket_edge(p[place], 1.25) == edge
            ]
            assert sum(together) == pytest.approx(probability)
    low, median, high, lowest, highest = window.others["queue"]
    assert lowest < low < median < high < highest
    assert median == pytest.approx(5.0)
    if quantile:
        worst = [float(np.interp(0.9, LEVELS, made.quantiles[0])) for made in (load, wait)]
        planned_for = [bucket_edge(value, 1.25) for value in pairs[window.key]]
        assert planned_for == [bucket_edge(value, 1.25) for value in worst]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_a_quantile_is_that_of_the_worst_slot_of_the_hour(level: float) -> None:
    made = forecast(100.0, 120.0, 300.0, 100.0, *[100.0] * 4)
    worst = [float(np.interp(level, LEVELS, made.quantiles[step])) for step in (2, 4)]
    edges = planned(study(f"quantile = {level}"), made)
    assert edges == [bucket_edge(value, 1.25) for value in worst]


def test_a_signal_of_nothing_is_planned_for_nothing() -> None:
    made = SignalForecast(0, 900, np.zeros((4, len(LEVELS))))
    assert len(planned(study("quantile = 0.9"), made)) == 1


@pytest.mark.parametrize("value", ["0", "1", "1.5", '"high"', "nan"])
def test_a_quantile_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(MisconfiguredError, match=r"forecast\.quantile"):
        study(f"quantile = {value}")


@pytest.mark.parametrize(("cost", "kept"), [(0.0, False), (0.05, True), (0.01, False)])
def test_what_was_planned_before_stays_unless_a_change_is_worth_it(cost: float, kept: bool) -> None:
    chosen = study(f"switching_cost = {cost}")
    (feature,) = chosen.signals
    before, _ = plan_windows(chosen, feature, {}, forecast(*[120.0] * 8), lambda _: None)
    hours = {window.start_s: window.key for window in before}
    now = forecast(*[100.0] * 8)
    fresh, _ = plan_windows(chosen, feature, {}, now, lambda _: 0.02)
    after, _ = plan_windows(chosen, feature, {}, now, lambda _: 0.02, hours)
    assert fresh[0].key != before[0].key
    assert [w.key for w in after] == [w.key for w in (before if kept else fresh)]
    # What cannot come any more is not kept, whatever a change costs.
    far, _ = plan_windows(chosen, feature, {}, forecast(*[9.0] * 8), lambda _: 0.0, hours)
    assert far[0].key not in hours.values()


@pytest.mark.parametrize(
    ("more", "held", "near", "far"),
    [
        ("", 102.0, 109.0, 125.0),
        ("quantile = 0.5", 110.0, 105.0, 95.0),
        ("quantile = 0.5", 105.0, 100.0, 110.0),  # what breaks a guard is planned for at once
    ],
)
def test_an_hour_between_two_buckets_keeps_the_one_it_had(
    more: str, held: float, near: float, far: float
) -> None:
    """Each forecast would name the other one, and each time the plan would go out."""
    chosen = study(more)
    (feature,) = chosen.signals

    def hours(middle: float, earlier: dict[float, str]) -> dict[float, str]:
        made = forecast(*[middle] * 8, spread=0.1)
        windows, _ = plan_windows(chosen, feature, {}, made, lambda _: None, earlier)
        return {window.start_s: window.key for window in windows}

    before = hours(held, {})
    assert hours(near, before) == before
    assert hours(far, before) == hours(far, {}) != before
