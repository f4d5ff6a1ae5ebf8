"""Values that mean failure, in the draft of a study and where a person is asked."""

import random
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.tables.test_draft import NOTHING, drafted, outcomes, written
from tunerd.lab.tables.guess import UserAnswers


def rows(metric: str, failing: Callable[[int], float | None], low: float = 50.0) -> list[Any]:
    """96 runs of a sweep; ``failing`` says what runs with micro_batch = 8 wrote."""
    rng = random.Random(1)
    sweep = [
        {"gpu": gpu, "tp": tp, "micro_batch": mb, metric: round(low * tp**0.5 * mb * spread, 3)}
        for gpu in ("H100", "L4")
        for tp in (1, 2, 4, 8)
        for mb in (1, 2, 4, 8)
        for spread in (rng.lognormvariate(0, 0.03) for _ in range(3))
    ]
    for place, row in enumerate(sweep):
        if row["micro_batch"] == 8 and (wrong := failing(place)) is not None:
            row[metric] = wrong
    return sweep


def objective(path: Path, given: UserAnswers = NOTHING) -> dict[str, Any]:
    text, study, table = drafted(path, given)
    assert set(outcomes(study, table)) == {"succeeded"}  # no row is thrown away
    found: dict[str, Any] = tomllib.loads(text)["objective"]
    return found


@pytest.mark.parametrize(
    ("metric", "value", "meaning"),
    [
        ("latency_ms", -1, "failed"),
        ("latency_ms", 0, "failed"),
        ("latency_ms", -0.35, "failed"),
        ("runtime_s", -1, "failed"),
        ("tokens_per_s", 0, "failed"),
        ("time", 0.0, "failed"),
        ("gflops", -1, "failed"),
        ("energy_j", 0, "ran"),
        ("fom", -999, "failed"),
        ("objective", 0, "failed"),
    ],
)
def test_what_cannot_be_is_a_failure(
    metric: str, value: float, meaning: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "jobs.csv", rows(metric, lambda _: value))
    text, study, _ = drafted(path, UserAnswers(metric))
    found = tomllib.loads(text)["objective"]
    assert (found["scale"], found["impossible"]) == ("log", meaning)
    assert f"{value:.6g} in 24 of 96 rows" in text.replace("\n# ", " ")
    other = {"failed": "ran", "ran": "failed"}[meaning]
    assert f'# impossible = "{other}"' in text
    assert '# scale = "linear"' in text
    assert study.score({study.objective.metric: value}) is None


def test_one_zero_among_speeds_is_one_failure(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.csv", rows("tokens_per_s", lambda p: 0 if p == 9 else None))
    assert objective(path)["scale"] == "log"


@pytest.mark.parametrize("value", [1e20, 999999, 1e10, sys.float_info.max, 2**31 - 1, 3.4e38])
@pytest.mark.parametrize("metric", ["latency_ms", "tokens_per_s", "loss"])
def test_what_many_failed_rows_share_is_no_measurement(
    metric: str, value: float, tmp_path: Path
) -> None:
    path = written(tmp_path / "jobs.csv", rows(metric, lambda _: value, low=1.0))
    found = objective(path, UserAnswers(metric, "minimize" if metric == "loss" else None))
    assert found["failed_values"] == [value]
    assert (found["scale"], found["impossible"]) == ("log", "failed")


@pytest.mark.parametrize(
    ("metric", "values", "low"),
    [
        ("loss_delta", lambda place: -place / 7, None),
        ("cache_misses", lambda _: 0, 0),
        ("accuracy", lambda _: 0, 0),
        ("score", lambda place: -1.5 - place, None),
    ],
)
def test_what_can_be_zero_or_less_is_real(
    metric: str, values: Callable[[int], float], low: float | None, tmp_path: Path
) -> None:
    found = objective(written(tmp_path / "jobs.csv", rows(metric, values)), UserAnswers(metric))
    assert (found["scale"], found.get("min")) == ("linear", low)
    assert "impossible" not in found
    assert "failed_values" not in found


def test_speeds_that_differ_by_a_thousand_are_measurements(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.csv", rows("tokens_per_s", lambda p: 1e6 + p))
    assert "failed_values" not in objective(path)


def test_a_person_may_say_that_they_are_real(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.csv", rows("energy_j", lambda _: 0))
    found = objective(path, UserAnswers("energy_j", meaning="value"))
    assert (found["scale"], found["min"]) == ("linear", 0)
    found = objective(path, UserAnswers("energy_j", meaning="failed"))
    assert (found["scale"], found["impossible"]) == ("log", "failed")
