"""The simulated service: queues behave as queues do, and its loads have what they should."""

import numpy as np
import pytest

from tunerd.core.observation import Value
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.service import MOST_MS, STUDY, cost_of, load_of, p99_ms


def config(replicas: int, batch: int = 4, concurrency: int = 2) -> dict[str, Value]:
    return {"replicas": replicas, "batch": batch, "concurrency": concurrency}


def test_more_replicas_wait_less_and_cost_more() -> None:
    waits = [p99_ms(config(replicas), 800.0) for replicas in (4, 6, 8, 16, 24)]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == MOST_MS  # it cannot keep up
    assert [cost_of(config(n)) for n in (4, 24)] == [4.0, 24.0]


def test_a_fuller_service_waits_longer() -> None:
    waits = [p99_ms(config(8, batch=1), rps) for rps in (50.0, 200.0, 300.0, 5_000.0)]
    assert waits == sorted(waits)


def test_larger_batches_carry_more() -> None:
    assert p99_ms(config(4, batch=1), 400.0) > p99_ms(config(4, batch=8), 400.0)


def test_its_study_is_sound_and_its_baseline_keeps_the_guard() -> None:
    study = parse_study(STUDY)
    baseline = dict(study.baseline({"rps": 600.0}) or {})
    assert p99_ms(baseline, float(load_of(28, np.random.default_rng(0)).max())) < 250


@pytest.mark.parametrize("structure", [True, False])
def test_loads_are_positive_and_the_same_for_a_seed(structure: bool) -> None:
    one, other = (load_of(28, np.random.default_rng(3), structure=structure) for _ in range(2))
    assert one.min() > 0
    assert (one == other).all()
    assert len(one) == 28 * 96


def test_a_load_with_structure_repeats_by_the_week_and_one_without_does_not() -> None:
    def alike(structure: bool) -> float:
        rps = np.log(load_of(28, np.random.default_rng(1), structure=structure))
        return float(np.corrcoef(rps[: -7 * 96], rps[7 * 96 :])[0, 1])

    assert alike(True) > 0.9
    assert alike(False) < 0.6
