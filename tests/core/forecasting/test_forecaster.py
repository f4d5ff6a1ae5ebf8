"""Foreseeing a signal: seasons, bands that hold, and no harm where nothing can be foreseen."""

import contextlib
import math

import numpy as np
import pytest

from tunerd.core.arrays import FloatArray
from tunerd.core.forecasting.bands import ForecastBands
from tunerd.core.forecasting.forecaster import SignalForecaster
from tunerd.core.forecasting.methods import Persistence, SignalHistory, make_methods
from tunerd.core.forecasting.seasons import find_own_season

HOUR = 3600
DAY, WEEK = 24, 168


def weekly(weeks: int, *, noise: float = 3.0, seed: int = 0) -> FloatArray:
    """Hourly load by day and night, less on weekends."""
    hour = np.arange(weeks * WEEK)
    day = 1 + 0.5 * np.sin(2 * np.pi * (hour % DAY) / DAY)
    weekend = np.where(hour // DAY % 7 >= 5, 0.5, 1.0)
    rng = np.random.default_rng(seed)
    return np.asarray(100 * day * weekend + rng.normal(0, noise, len(hour)))


def rolled(values: FloatArray, *, until: int | None = None) -> SignalForecaster:
    """A forecaster that has seen hourly values, one by one."""
    forecaster = SignalForecaster(HOUR, DAY, every=3)
    for hour in range(len(values) if until is None else until):
        if math.isfinite(values[hour]):
            forecaster.add(hour * HOUR, float(values[hour]))
        forecaster.advance((hour + 1) * HOUR)
    return forecaster


def scored(values: FloatArray, first: int) -> tuple[float, float, float]:
    """Mean error of the middle, of the better of yesterday and last week, and the share inside."""
    forecaster = rolled(values, until=first)
    errors, naive, inside = [], [], []
    for hour in range(first, len(values) - DAY, 6):
        for place in range(hour, hour + 6):
            forecast = forecaster.forecast() if place == hour else None
            if forecast is not None:
                came = values[hour : hour + DAY]
                errors.append(np.abs(forecast.quantile(0.5) - came).mean())
                a_day = np.abs(values[hour - DAY : hour] - came).mean()
                a_week = np.abs(values[hour - WEEK : hour - WEEK + DAY] - came).mean()
                naive.append((a_day, a_week))
                low, high = forecast.quantile(0.1), forecast.quantile(0.9)
                inside.append(((came >= low) & (came <= high)).mean())
            forecaster.add(place * HOUR, float(values[place]))
            forecaster.advance((place + 1) * HOUR)
    return float(np.mean(errors)), float(np.mean(naive, axis=0).min()), float(np.mean(inside))


@pytest.mark.slow
def test_a_week_is_foreseen_better_than_as_a_week_ago_within_bands_that_hold() -> None:
    error, naive, inside = scored(weekly(12), 8 * WEEK)
    assert error < 0.9 * naive
    assert 0.72 <= inside <= 0.88


def test_a_point_is_inside_where_the_band_that_was_told_has_it() -> None:
    """Errors tell how large they are by now. By that a burst looked usual, and bands of forecasts
    from before it were held to be right."""
    factors = []
    for told_scale in (1.0, 0.5):
        bands = ForecastBands(np.ones(1))
        for error in np.random.default_rng(0).normal(0, 1, 80):
            offsets, factor = bands.offsets()[0], bands.factors()[0]
            bands.learn(0, float(error), 0.0, offsets, factor, told_scale)
        factors.append(bands.factors()[0])
    assert factors[1] > 1.05 * factors[0]


@pytest.mark.slow
def test_where_nothing_can_be_foreseen_it_does_no_harm() -> None:
    walk = np.cumsum(np.random.default_rng(3).normal(0, 1.0, 8 * WEEK)) + 200
    forecaster = rolled(walk, until=6 * WEEK)
    errors, last = [], []
    for hour in range(6 * WEEK, 8 * WEEK - DAY):
        if hour % 6 == 0:
            forecast = forecaster.forecast()
            assert forecast is not None
            came = walk[hour : hour + DAY]
            errors.append(np.abs(forecast.quantile(0.5) - came).mean())
            last.append(np.abs(walk[hour - 1] - came).mean())
        forecaster.add(hour * HOUR, float(walk[hour]))
        forecaster.advance((hour + 1) * HOUR)
    assert np.mean(errors) < 1.1 * np.mean(last)


@pytest.mark.slow
def test_a_level_that_moved_is_followed_and_told() -> None:
    values = weekly(10, noise=2.0)
    values[8 * WEEK :] += 150
    forecaster = rolled(values, until=8 * WEEK + 2 * DAY)
    forecast = forecaster.forecast()
    assert forecast is not None
    came = values[8 * WEEK + 2 * DAY : 8 * WEEK + 3 * DAY]
    assert np.abs(forecast.quantile(0.5) - came).mean() < 50
    assert forecaster.shifted_at is not None
    assert 8 * WEEK <= forecaster.shifted_at <= 8 * WEEK + 2 * DAY


@pytest.mark.slow
def test_a_quiet_signal_tells_no_shift() -> None:
    assert rolled(weekly(10)).shifted_at is None


@pytest.mark.slow
def test_an_outage_is_not_foreseen_again_a_day_later() -> None:
    values = weekly(8, noise=1.0)
    values[7 * WEEK + 40 : 7 * WEEK + 50] = 0.0
    forecaster = rolled(values, until=7 * WEEK + 64)
    forecast = forecaster.forecast()
    assert forecast is not None
    came = values[7 * WEEK + 64 : 7 * WEEK + 74]
    assert np.all(forecast.quantile(0.5)[:10] > 0.6 * came)


@pytest.mark.slow
def test_gaps_are_bridged() -> None:
    values = weekly(8)
    values[6 * WEEK : 6 * WEEK + 30] = math.nan
    values[::17] = math.nan
    forecast = rolled(values).forecast()
    assert forecast is not None
    assert np.isfinite(forecast.quantiles).all()
    assert np.all(np.diff(forecast.quantiles, axis=1) >= 0)


@pytest.mark.slow
def test_the_same_points_give_the_same_forecast() -> None:
    first, second = rolled(weekly(4)).forecast(), rolled(weekly(4)).forecast()
    assert first is not None
    assert second is not None
    assert first.quantiles.tobytes() == second.quantiles.tobytes()


@pytest.mark.slow
def test_who_asks_more_often_gets_the_same_forecasts() -> None:
    """Trees were fitted and seasons begun when somebody asked; later forecasts were others then."""
    values, rarely, often = weekly(5), SignalForecaster(HOUR, DAY), SignalForecaster(HOUR, DAY)
    for hour, value in enumerate(values.tolist()):
        for forecaster in (rarely, often):
            forecaster.add(hour * HOUR, value)
            forecaster.advance((hour + 1) * HOUR)
        asked = often.forecast()
        if hour % 100 == 99:
            expected = rarely.forecast()
            assert expected is not None
            assert asked is not None
            assert expected.quantiles.tobytes() == asked.quantiles.tobytes()


@pytest.mark.slow
def test_a_signal_of_one_value_is_foreseen_as_that() -> None:
    forecast = rolled(np.full(3 * WEEK, 7.0)).forecast()
    assert forecast is not None
    np.testing.assert_allclose(forecast.quantiles, 7.0)


@pytest.mark.slow
@pytest.mark.parametrize("value", [5.0, 0.1, 100.3, 1 / 3])
def test_a_signal_of_one_value_tells_no_shift(value: float) -> None:
    assert rolled(np.full(4 * WEEK, value)).shifted_at is None


@pytest.mark.slow
@pytest.mark.parametrize("period", [10, 15, 26])
def test_a_season_of_its_own_may_be_shorter_than_a_week(period: int) -> None:
    hour = np.arange(5 * WEEK)
    wave = 100 + 30 * np.sin(2 * np.pi * hour / period)
    noise = np.random.default_rng(3).normal(0, 2, len(hour))
    forecaster = rolled((wave + noise)[: 4 * WEEK])
    assert forecaster.seasons[:2] == (DAY, WEEK)
    assert forecaster.seasons[2] < WEEK
    forecast = forecaster.forecast()
    assert forecast is not None
    assert np.abs(forecast.quantile(0.5) - wave[4 * WEEK :][:DAY]).mean() < 5


def test_where_a_method_fails_no_other_sees_a_slot_twice() -> None:
    class Sees(Persistence):
        times_shown = 0

        def observe(self, history: SignalHistory, fresh: int) -> None:  # noqa: ARG002
            self.times_shown += fresh

    class Fails(Persistence):
        def observe(self, history: SignalHistory, fresh: int) -> None:  # noqa: ARG002
            raise IndexError

    sees = Sees()
    forecaster = SignalForecaster(HOUR, DAY, every=3, makers=(lambda: sees, Fails))
    for hour in range(9):
        forecaster.add(hour * HOUR, float(hour))
        with contextlib.suppress(IndexError):
            forecaster.advance((hour + 1) * HOUR)
        with contextlib.suppress(IndexError):
            forecaster.forecast()
    assert sees.times_shown == 9


def test_nothing_is_foreseen_of_a_signal_without_points() -> None:
    forecaster = SignalForecaster(HOUR, DAY)
    forecaster.advance(1e9)
    assert forecaster.forecast() is None


@pytest.mark.slow
def test_a_rate_is_not_foreseen_below_nothing() -> None:
    rng = np.random.default_rng(0)
    forecaster = SignalForecaster(HOUR, DAY, every=3, lowest=0.0)
    for hour in range(4 * WEEK):
        forecaster.add(hour * HOUR, float(rng.poisson(0.3)))
    forecaster.advance(4 * WEEK * HOUR)
    forecast = forecaster.forecast()
    assert forecast is not None
    assert forecast.quantiles.min() >= 0.0


@pytest.mark.slow
def test_a_probability_is_read_off_the_quantiles() -> None:
    forecast = rolled(weekly(6)).forecast()
    assert forecast is not None
    middle = float(forecast.quantile(0.5)[3])
    values = np.array([-1e9, middle, 1e9])
    below = forecast.probabilities_below(values)
    assert below[3] == pytest.approx([0.0, 0.5, 1.0], abs=0.01)
    row, levels = forecast.quantiles[3], forecast.levels
    between = np.linspace(row[0], row[-1], 40)[1:-1]
    expected = np.interp(between, row, levels)
    assert forecast.probabilities_below(between)[3] == pytest.approx(expected)
    for level in (0.01, 0.07, 0.5, 0.99, 0.999):
        assert forecast.quantile(level)[3] == pytest.approx(np.interp(level, levels, row))


@pytest.mark.slow
def test_one_that_resumes_beside_a_long_series_foresees_like_one_that_was_there() -> None:
    values = weekly(16)
    late = SignalForecaster(HOUR, DAY, every=3)
    for hour, value in enumerate(values):
        late.add(hour * HOUR, float(value))
    late.resume(12 * WEEK * HOUR)
    late.advance(16 * WEEK * HOUR)
    ours, theirs = late.forecast(), rolled(values).forecast()
    assert ours is not None
    assert theirs is not None
    np.testing.assert_allclose(ours.quantile(0.5), theirs.quantile(0.5), rtol=0.1)


def test_a_season_of_its_own_is_discovered() -> None:
    rng = np.random.default_rng(0)
    slot = np.arange(1500)
    values = 10 * (slot % 37 < 9) + rng.normal(0, 1, 1500)
    assert find_own_season(values, (DAY, WEEK)) == 37
    assert find_own_season(rng.normal(0, 1, 1500), (DAY, WEEK)) is None
    assert find_own_season(weekly(8), (DAY, WEEK)) is None
    assert find_own_season(np.ones(500), (DAY, WEEK)) is None


@pytest.mark.parametrize("method", make_methods(), ids=lambda method: method.name)
def test_every_method_answers_each_step_or_says_that_it_cannot(method: object) -> None:
    """The contract of what stands in METHODS."""
    [fresh] = [other for other in make_methods() if other.name == getattr(method, "name", None)]
    steps = np.array([1, 5, 24, 200])
    short = SignalHistory(np.ones(1), 1, HOUR, ())
    fresh.observe(short, 1)
    early = fresh.predict(short, steps)
    assert early is None or early.shape == (4,)
    values = weekly(10)
    history = SignalHistory(values, len(values), HOUR, (DAY, WEEK, 37))
    fresh.observe(history, len(values))
    fresh.renew(history, steps)
    answer = fresh.predict(history, steps)
    assert answer is not None
    assert answer.shape == (4,)
    assert np.isfinite(answer).all()
    assert np.all(np.abs(answer) < 1000)
