import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.yardsticks.comparison import (
    Cell,
    Difference,
    Values,
    area,
    difference,
    found_worse,
    mean_difference,
)


def grid(values: np.ndarray) -> Values:
    """(contexts, seeds) as figures by context and seed."""
    contexts, seeds = values.shape
    return {(f"c{c}", s): float(values[c, s]) for c in range(contexts) for s in range(seeds)}


def test_what_is_better_everywhere_by_the_same_amount_is_better_by_exactly_that() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.normal(size=(6, 3))
    found = difference(grid(theirs + 0.5), grid(theirs), larger_is_better=True)
    assert found.mean == pytest.approx(0.5)
    assert found.low == pytest.approx(0.5)
    assert found.high == pytest.approx(0.5)
    assert found.better
    assert not found.worse
    assert (found.contexts, found.pairs) == (6, 18)


def test_where_less_is_better_the_sign_turns() -> None:
    rng = np.random.default_rng(0)
    regret = rng.uniform(0.1, 0.2, size=(20, 3))
    found = difference(grid(regret * 0.5), grid(regret), larger_is_better=False)
    assert found.mean > 0
    assert found.better
    assert difference(grid(regret), grid(regret * 0.5), larger_is_better=False).worse


def test_noise_is_neither_better_nor_worse() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 15, 3))
    found = difference(grid(a), grid(b), larger_is_better=True)
    assert not found.better
    assert not found.worse
    assert found.low < found.mean < found.high


def test_a_lead_that_one_context_makes_alone_proves_nothing() -> None:
    lead = np.zeros((10, 3))
    lead[0] = 5.0
    assert not difference(grid(lead), grid(np.zeros((10, 3))), larger_is_better=True).better


def test_many_seeds_of_one_lucky_context_are_still_one_context() -> None:
    rng = np.random.default_rng(1)
    of_context = rng.normal(0, 1, size=(8, 1))
    few = difference(grid(of_context + 0.0), grid(np.zeros((8, 1))), larger_is_better=True)
    many = of_context + rng.normal(0, 0.01, size=(8, 200))
    found = difference(grid(many), grid(np.zeros((8, 200))), larger_is_better=True)
    assert found.high - found.low == pytest.approx(few.high - few.low, rel=0.2)


@pytest.mark.parametrize("contexts", [4, 8, 30])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(contexts: int) -> None:
    rng = np.random.default_rng(5)
    held = 0
    trials = 200
    for _ in range(trials):
        lead = 0.3 + rng.normal(size=(contexts, 1)) + 0.3 * rng.normal(size=(contexts, 3))
        zeros = grid(np.zeros((contexts, 3)))
        found = difference(grid(lead), zeros, larger_is_better=True, draws=500)
        held += found.low <= 0.3 <= found.high
    assert 0.90 <= held / trials <= 0.995


def test_a_mean_over_tables_is_as_sure_as_its_smallest_table() -> None:
    rng = np.random.default_rng(6)
    held = 0
    trials = 200
    for _ in range(trials):
        few, many = rng.normal(size=(4, 3)) + rng.normal(size=(4, 1)), rng.normal(size=(60, 3))
        cells = [
            Cell(name, grid(values), grid(np.zeros(values.shape)))
            for name, values in (("few", few), ("many", many))
        ]
        found = mean_difference(cells, larger_is_better=True, draws=500)
        held += found.low <= 0 <= found.high
    assert 0.90 <= held / trials <= 0.995


def test_only_common_pairs_that_are_numbers_count() -> None:
    ours = {("a", 0): 1.0, ("b", 0): 5.0, ("c", 0): math.nan, ("d", 0): 1.0}
    theirs = {("a", 0): 0.0, ("c", 0): 0.0, ("d", 0): math.nan, ("e", 0): 0.0}
    found = difference(ours, theirs, larger_is_better=True)
    assert (found.mean, found.pairs) == (1.0, 1)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert not found.better
    assert not found.worse


def test_nothing_in_common_is_said() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        difference({("a", 0): 1.0}, {("b", 0): 1.0}, larger_is_better=True)


def test_the_mean_over_cells_weighs_cells_and_not_their_rows() -> None:
    rng = np.random.default_rng(0)
    large = Cell("x", grid(rng.normal(1.0, 0.1, (40, 5))), grid(np.zeros((40, 5))))
    small = Cell("y", grid(rng.normal(-1.0, 0.1, (4, 5))), grid(np.zeros((4, 5))))
    found = mean_difference([large, small], larger_is_better=True)
    assert found.mean == pytest.approx(0.0, abs=0.1)
    assert found.contexts == 44


def test_cells_of_one_table_share_their_contexts_luck() -> None:
    luck = np.random.default_rng(2).normal(size=(10, 1)) * np.ones((1, 3))
    zeros = grid(np.zeros((10, 3)))
    one = mean_difference([Cell("t", grid(luck), zeros)], larger_is_better=True)
    same = mean_difference([Cell("t", grid(luck), zeros)] * 9, larger_is_better=True)
    apart = [Cell(f"t{i}", grid(luck), zeros) for i in range(9)]
    other = mean_difference(apart, larger_is_better=True)
    assert same.high - same.low == pytest.approx(one.high - one.low, rel=0.1)
    assert other.high - other.low < 0.6 * (one.high - one.low)


def test_a_cell_without_common_pairs_does_not_count() -> None:
    full = Cell("x", {("a", 0): 1.0, ("b", 0): 1.0}, {("a", 0): 0.0, ("b", 0): 0.0})
    empty = Cell("x", {("a", 0): 1.0}, {("z", 0): 1.0})
    assert mean_difference([full, empty], larger_is_better=True).mean == 1.0


@given(st.integers(0, 2**32 - 1))
def test_the_same_seed_gives_the_same_interval_and_sides_mirror(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = grid(rng.normal(size=(5, 2))), grid(rng.normal(size=(5, 2)))
    first = difference(a, b, larger_is_better=True, draws=200)
    assert first == difference(a, b, larger_is_better=True, draws=200)
    mirrored = difference(b, a, larger_is_better=True, draws=200)
    assert mirrored.mean == pytest.approx(-first.mean)
    assert mirrored.low == pytest.approx(-first.high)


def test_area_is_the_mean_regret_over_a_range_of_jobs() -> None:
    curve = [8.0, 6.0, 4.0, 2.0]
    assert area(curve, 1, 4) == 5.0
    assert area(curve, 2, 3) == 5.0
    assert area(curve, 4, 8) == 2.0, "a curve that ends stays where it ended"
    assert area(curve, 9, 9) == 2.0
    for first, last in ((0, 3), (3, 2)):
        with pytest.raises(ValueError, match="no area"):
            area(curve, first, last)
    with pytest.raises(ValueError, match="no area"):
        area([], 1, 1)


def test_of_hundreds_of_comparisons_luck_is_not_taken_for_a_difference() -> None:
    """Contexts that differ by chance come out "worse" one time in forty; those that are, stay."""
    rng = np.random.default_rng(11)

    def against_nothing(mean: float) -> Difference:
        lead = mean + rng.normal(size=(12, 1)) + rng.normal(size=(12, 3))
        return difference(grid(lead), grid(np.zeros((12, 3))), larger_is_better=True, draws=400)

    luck = [against_nothing(0.0) for _ in range(200)]
    assert any(one.worse for one in luck)
    assert not any(found_worse(luck))
    real = [against_nothing(-4.0) for _ in range(5)]
    found = found_worse([*luck, *real])
    assert all(found[200:])
    assert sum(found[:200]) <= 1, "of what is found one in twenty may be luck"
    assert found_worse([]) == []
