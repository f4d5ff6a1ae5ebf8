"""The rise of evidence, and the levels at which it is an alarm."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerd.core.drift.calibration import AlarmThreshold, permuted_level, safe_level
from tunerd.core.drift.shiryaev_roberts import ShiryaevRoberts

DELTAS = (0.5, 1.0, 2.0, -0.5, -1.0, -2.0)


def gains(u: float) -> list[float]:
    return [d * u - d * d / 2 for d in DELTAS]


def alarms(numbers: np.ndarray, level: float) -> int:
    rise, count = ShiryaevRoberts.of(len(DELTAS)), 0
    for sequence, u in enumerate(numbers.tolist()):
        if rise.add(gains(u), (sequence, 0.0)) > level:
            rise.reset()
            count += 1
    return count


@pytest.mark.parametrize("budget", [100, 500])
def test_quiet_numbers_keep_to_the_budget(budget: int) -> None:
    numbers = np.random.default_rng(budget).normal(size=30 * budget)
    expected = len(numbers) / budget
    assert alarms(numbers, safe_level(budget)) <= expected


@pytest.mark.slow
@pytest.mark.parametrize("tails", [3, 5])
def test_wilder_numbers_get_a_higher_level_that_keeps_to_it(tails: int) -> None:
    rng = np.random.default_rng(tails)
    history = np.clip(1.6 * rng.standard_t(tails, 512), -3, 3)
    rows = np.array([gains(u) for u in history.tolist()])
    level = permuted_level(rows, np.zeros(512, np.int64), 2_000, seed=0)
    assert level > safe_level(2_000)
    later = np.clip(1.6 * rng.standard_t(tails, 60_000), -3, 3)
    assert alarms(later, safe_level(2_000)) > 60
    assert alarms(later, level) <= 60


def test_what_hangs_together_gets_a_higher_level() -> None:
    rng = np.random.default_rng(1)
    together = np.clip(np.repeat(rng.normal(size=128), 4), -3, 3)
    apart = rng.permutation(together)
    levels = [
        permuted_level(
            np.array([gains(u) for u in numbers.tolist()]), np.zeros(512, np.int64), 10_000, 0
        )
        for numbers in (together, apart)
    ]
    assert levels[0] > levels[1] + 1


@given(st.integers(0, 2**32), st.integers(5, 40), st.sampled_from([0.7, -1.2, 2.5]))
@settings(max_examples=20, deadline=None)
def test_a_change_is_found_and_dated(seed: int, before: int, moved: float) -> None:
    rng = np.random.default_rng(seed)
    rise, level = ShiryaevRoberts.of(len(DELTAS)), safe_level(10_000)
    for sequence in range(before):
        rise.add(gains(float(np.clip(rng.normal(), -1.5, 1.5))), (sequence, 0.0))
    for sequence in range(before, before + 400):
        if rise.add(gains(moved + float(rng.normal())), (sequence, float(sequence))) > level:
            break
    else:
        raise AssertionError("not found")
    assert math.copysign(1, DELTAS[rise.best]) == math.copysign(1, moved)
    since, _ = rise.since
    assert since <= sequence


@given(st.lists(st.floats(-3, 3), max_size=60))
def test_dumping_is_exact(numbers: list[float]) -> None:
    rise = ShiryaevRoberts.of(len(DELTAS))
    for sequence, u in enumerate(numbers):
        rise.add(gains(u), (sequence + 1, sequence + 0.1))
    back = ShiryaevRoberts.load(json.loads(json.dumps(rise.dump())))
    assert back.dump() == rise.dump()
    assert back.add(gains(1.0), (99, 9.9)) == rise.add(gains(1.0), (99, 9.9))
    assert back.since == rise.since


def test_levels_are_taken_on_a_schedule() -> None:
    one = AlarmThreshold.of(10_000)
    taken = []
    for seen in range(1, 20_001):
        if one.due(seen):
            one.take(seen, np.empty((0, 6)), np.empty(0, np.int64), 0)
            taken.append(seen)
    assert taken[:4] == [64, 128, 256, 512]
    assert len(taken) < 20
    assert one.level == safe_level(10_000)
    assert AlarmThreshold.load(one.dump()) == one
