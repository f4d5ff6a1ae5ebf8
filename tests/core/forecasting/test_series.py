"""A signal in slots: what is kept, what is a gap, and what is no news."""

import math

import numpy as np
import pytest

from tunerd.core.forecasting.series import SignalSeries


def test_points_of_a_slot_are_averaged_and_a_slot_without_any_is_a_gap() -> None:
    series = SignalSeries(300, 100)
    assert series.add_all([(600.0, 1.0), (700.0, 3.0), (1200.0, 5.0)]) == 3
    assert (series.start, series.end) == (2, 5)
    np.testing.assert_array_equal(series.values, [2.0, math.nan, 5.0])


def test_a_duplicate_changes_nothing() -> None:
    series = SignalSeries(300, 100)
    assert series.add(600.0, 1.0)
    assert not series.add(600.0, 9.0)
    assert series.values.tolist() == [1.0]


def test_a_late_point_counts_and_one_that_is_very_late_only_fills_a_gap() -> None:
    series = SignalSeries(300, 1000)
    series.add_all([(0.0, 1.0), (600.0, 1.0)])
    assert series.add(330.0, 7.0)
    series.add(300.0 * 100, 1.0)
    assert not series.add(340.0, 9.0)  # the slot is filled; whose times are no longer known
    assert series.add(300.0 * 50, 4.0)
    assert series.values[:3].tolist() == [1.0, 7.0, 1.0]
    assert series.values[50] == 4.0


def test_what_is_older_than_the_series_is_dropped() -> None:
    series = SignalSeries(1, 10)
    for second in range(100):
        series.add(float(second), float(second))
    assert not series.add(5.0, 1.0)
    assert len(series) <= 13
    assert series.values[-10:].tolist() == [float(x) for x in range(90, 100)]


def test_memory_is_bounded_and_a_long_silence_costs_nothing() -> None:
    series = SignalSeries(1, 50)
    size = series.nbytes
    for second in range(1000):
        series.add(float(second), 1.0)
    series.add(1e12, 2.0)
    assert series.nbytes == size
    assert series.values[-1] == 2.0


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_what_is_no_measurement_is_dropped(value: float) -> None:
    series = SignalSeries(300, 10)
    assert not series.add(0.0, value)
    assert len(series) == 0


def test_an_interval_has_the_mean_of_the_slots_it_touches() -> None:
    series = SignalSeries(300, 100)
    series.add_all([(0.0, 1.0), (300.0, 3.0), (900.0, 8.0)])
    assert series.between(0.0, 599.0) == 2.0
    assert series.between(600.0, 899.0) is None
    assert series.between(-1e6, -1e5) is None
    assert series.between(1e6, 2e6) is None
