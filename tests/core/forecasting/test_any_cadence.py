"""A signal is foreseen alike on whichever minutes its points lie, however far they are apart."""

import math
from collections.abc import Callable
from cProfile import Profile

import numpy as np
import pytest

from tunerd.core.arrays import FloatArray
from tunerd.core.forecasting.forecaster import SignalForecast, SignalForecaster
from tunerd.core.forecasting.methods import Persistence, SeasonalMean, SeasonalNaive

MINUTE, DAY = 60.0, 86_400.0
SLOT_S, HORIZON = 300, 288
BEGIN = 20_000 * DAY
NOISE = 20.0
SIMPLE = (Persistence, lambda: SeasonalNaive(0), lambda: SeasonalMean(0, 0.02, 0.1))
"""A few of the methods: the question is what of the signal they are shown and scored on."""

Times = Callable[[np.random.Generator, float], FloatArray]


def every(
    minutes: float, *, jitter: float = 0.0, drift: float = 0.0, missing: float = 0.0
) -> Times:
    """Times in seconds, over so many days: a clock may go wrong by a share, points may miss."""

    def times(rng: np.random.Generator, days: float) -> FloatArray:
        number = np.arange(days * DAY / (minutes * MINUTE))
        made = number * minutes * MINUTE * (1 + drift)
        made = made + rng.uniform(0, jitter * MINUTE, len(number))
        return np.asarray(made[rng.random(len(number)) >= missing])

    return times


def foreseen(times: Times, shift_s: float, days: float = 9, late_s: float = 0.0) -> SignalForecast:
    """What is foreseen of a day that is up and down, all of it ``shift_s`` later."""
    rng = np.random.default_rng(7)
    at = times(rng, days)
    values = 500 + 100 * np.sin(2 * np.pi * at / DAY) + rng.normal(0, NOISE, len(at))
    forecaster = SignalForecaster(SLOT_S, HORIZON, makers=SIMPLE)
    end, sent = BEGIN + shift_s + days * DAY, 0
    comes = at + BEGIN + shift_s + late_s
    for now in np.arange(BEGIN + shift_s + SLOT_S, end + 1, SLOT_S):
        while sent < len(at) and comes[sent] <= now:
            forecaster.add(float(comes[sent] - late_s), float(values[sent]))
            sent += 1
        forecaster.advance(float(now))
    made = forecaster.forecast()
    assert made is not None
    return made


def off(made: SignalForecast, shift_s: float) -> float:
    """How far the middle is from what comes, on the mean."""
    at = (made.made_at + np.arange(HORIZON) + 0.5) * SLOT_S - BEGIN - shift_s
    came = 500 + 100 * np.sin(2 * np.pi * at / DAY)
    return float(np.abs(made.quantile(0.5) - came).mean())


def width(made: SignalForecast) -> float:
    """Of the 80 % band, on the mean."""
    return float((made.quantile(0.9) - made.quantile(0.1)).mean())


CADENCES = {
    "1": every(1),
    "5": every(5),
    "7": every(7),
    "10": every(10),
    "15": every(15),
    "60": every(60),
    "5, one in ten missing": every(5, missing=0.1),
    "5, jitter": every(5, jitter=2),
    "10, jitter": every(10, jitter=4),
    "15, a fifth missing": every(15, missing=0.2),
    "10, a clock that drifts": every(10, drift=0.001),
}


@pytest.mark.slow
@pytest.mark.parametrize("cadence", CADENCES)
def test_a_shift_of_all_times_changes_a_forecast_within_noise(cadence: str) -> None:
    shifts = [MINUTE * m for m in (0, 6, 8)] + [DAY * 3 + 4321]  # within a slot: 0, 1, 3, 2
    made = [foreseen(CADENCES[cadence], shift_s) for shift_s in shifts]
    widths = [width(each) for each in made]
    assert max(widths) < 1.6 * min(widths)
    assert max(widths) < 8 * NOISE
    for shift_s, each in zip(shifts, made, strict=True):
        assert off(each, shift_s) < 1.5 * NOISE


@pytest.mark.slow
@pytest.mark.parametrize("late_s", [30.0, 330.0])
def test_points_that_come_when_their_slots_are_over_are_learned_from(late_s: float) -> None:
    """The daemon looks every five minutes, and so may just miss each of them."""
    just_missed = every(5)
    made = foreseen(lambda rng, days: just_missed(rng, days) + SLOT_S - 10.0, 0.0, late_s=late_s)
    assert off(made, 0.0) < 1.5 * NOISE
    assert width(made) < 8 * NOISE


@pytest.mark.parametrize("phase", range(0, 60, 7))
def test_slots_between_points_follow_them(phase: int) -> None:
    """Those of the first two days were repeated for ever."""
    forecaster = SignalForecaster(SLOT_S, HORIZON, makers=SIMPLE)
    for number in range(24 * 8):
        level = 100.0 if number < 24 * 3 else 400.0
        forecaster.add(BEGIN + 3600 * number + phase * MINUTE, level)
        forecaster.advance(BEGIN + 3600 * number + phase * MINUTE + SLOT_S)
    made = forecaster.forecast()
    assert made is not None
    assert math.isclose(float(made.quantile(0.5).min()), 400.0, rel_tol=0.05)


@pytest.mark.slow
def test_a_signal_that_repeats_exactly_is_foreseen_narrowly_from_its_fourth_day_on() -> None:
    """Before its second day only the last value could speak, and errors of that were kept."""
    forecaster = SignalForecaster(SLOT_S, HORIZON)
    for slot in range(4 * HORIZON):
        busy = 9 <= slot // 12 % 24 < 18
        forecaster.add(BEGIN + slot * SLOT_S, 800.0 if busy else 100.0)
        forecaster.advance(BEGIN + (slot + 1) * SLOT_S)
    made = forecaster.forecast()
    assert made is not None
    assert width(made) < 100.0


def test_a_slot_without_a_point_costs_the_same_however_far_points_are_apart() -> None:
    """Windows in which a point is waited for are as wide as points are apart."""
    forecaster = SignalForecaster(SLOT_S, HORIZON, makers=SIMPLE)
    for day in range(6):
        forecaster.add(BEGIN + day * DAY, 500.0 + day)
        forecaster.advance(BEGIN + (day + 1) * DAY - 2 * SLOT_S)
    assert forecaster.spacing == HORIZON
    calls = Profile()
    with calls:
        forecaster.advance(BEGIN + 6 * DAY - SLOT_S)
    assert sum(entry.callcount for entry in calls.getstats()) < 5_000
