"""From quantiles of a signal to probabilities of contexts, whatever the numbers are."""

import numpy as np
import pytest

from tests.stages.tuning import SIGNAL_STUDY as TEXT
from tunerd.core.forecasting.forecaster import SignalForecast
from tunerd.core.forecasting.plan import plan_windows
from tunerd.core.study_file import parse_study
from tunerd.store.json_text import from_json, to_json

LINEAR = 'type = "{}", signal = "rps{{service=$service}}"'


def unknown(key: str) -> None:
    """Nothing is predicted for a context."""
    del key


def probabilities(row: list[float], kind: str = "float", key: str = "") -> dict[str, float]:
    """Of the values in the keys of an hour whose slots all have these quantiles."""
    old = 'type = "float", scale = "log", signal = "rps{service=$service}", over = "10m"'
    assert old in TEXT
    study = parse_study(TEXT.replace(old, LINEAR.format(kind) + key))
    forecast = SignalForecast(6_000_000, 300, np.array([row] * 12, np.float64))
    (window,), contexts = plan_windows(study, study.signals[0], {"service": "a"}, forecast, unknown)
    assert from_json(to_json(contexts, "contexts")) == contexts
    assert sum(window.contexts.values()) == pytest.approx(1.0)
    for name, context in contexts.items():
        assert study.context_key(context) == name
    assert window.key == max(window.contexts, key=window.contexts.__getitem__)
    return {name.split("|")[1].removeprefix("rps="): p for name, p in window.contexts.items()}


def test_a_quantile_below_zero_is_planned_for_as_it_is() -> None:
    old = 'type = "float", scale = "log"'
    study = parse_study(TEXT.replace(old, 'type = "float"') + "[forecast]\nquantile = 0.9\n")
    rows = np.array([[-9.0, -8, -7, -6, -5, -4, -3, -2, -1]] * 12)
    forecast = SignalForecast(6_000_000, 300, rows)
    (window,), _ = plan_windows(study, study.signals[0], {"service": "a"}, forecast, unknown)
    assert window.key == study.context_key({"service": "a", "rps": -3.0})


@pytest.mark.parametrize("row", [[0.0] * 9, [5e-324] * 9, [1e-310 * n for n in range(1, 10)]])
def test_numbers_next_to_nothing_are_zero(row: list[float]) -> None:
    assert probabilities(row) == {"0": pytest.approx(1.0)}


def test_a_signal_may_be_below_zero_and_on_both_sides_of_it() -> None:
    below = probabilities([-9, -8, -7, -6, -5, -4, -3, -2, -1])
    assert all(float(edge) < 0 for edge in below)
    assert len(below) > 5
    both = probabilities([-4, -3, -2, -1, 0, 1, 2, 3, 4])
    negative = sum(p for edge, p in both.items() if float(edge) < 0)
    assert negative == pytest.approx(0.5, abs=0.01)
    assert max(both.values()) < 0.4


def test_zeros_are_a_context_of_their_own() -> None:
    idle = probabilities([0, 0, 0, 0, 5, 10, 20, 30, 40])
    assert idle["0"] == pytest.approx(0.25, abs=0.01)


def test_whole_numbers_are_what_a_job_would_have() -> None:
    assert set(probabilities([0.1 * n for n in range(1, 10)], "int")) == {"0", "1"}
    assert set(probabilities([1e30 * n for n in range(1, 10)], "int")) == {"~"}


@pytest.mark.parametrize("factor", ["1.002", "1e6"])
def test_buckets_of_any_size(factor: str) -> None:
    probabilities([100.0 * n for n in range(1, 10)], key=f", key = {{ bucket = {factor} }}")
