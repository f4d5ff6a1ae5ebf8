"""What lies beside a configuration."""

import numpy as np
import pytest

from tests.contracts.test_searcher import LAYERS, SPACES
from tests.core.searchers.test_policy import TIED
from tunerd.core.searchers.local_search import ROWS, neighbours
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study


@pytest.mark.parametrize("name", sorted(SPACES))
def test_neighbours_are_feasible_and_near(name: str) -> None:
    space = SPACES[name]
    rng = np.random.default_rng(0)
    code = space.sample(1, rng)[0]
    beside = neighbours(space, code, rng)
    assert 0 < len(beside) <= ROWS
    assert space.feasible(beside).all()
    widest = max(len(block.dimensions) for block in space.blocks)
    assert (beside != code).sum(axis=1).max() <= widest


def test_tied_dimensions_move_together() -> None:
    """From a·b = 4 to a·b = 8 no single change leads."""
    code = TIED.encode({"a": 1, "b": 4, "alone": 1, "flag": False})
    assert code is not None
    beside = [TIED.decode(row) for row in neighbours(TIED, code, np.random.default_rng(0))]
    assert {(c["a"], c["b"]) for c in beside} == {(1, 4), (2, 2), (4, 1), (2, 4), (4, 2)}
    assert {c["alone"] for c in beside} == {1, 2, 4}
    assert {c["flag"] for c in beside} == {False, True}


def test_every_single_change_under_a_wide_rule_is_looked_at() -> None:
    space = SPACES["wide rule"]
    code = np.zeros(len(space.sizes), np.int32)
    beside = neighbours(space, code, np.random.default_rng(0))
    changed = beside[(beside != code).any(axis=1)]
    layers = changed[(changed[:, :24] != 0).any(axis=1)]
    assert len(np.unique(layers, axis=0)) == 24 * 2


def test_long_ranges_and_many_dimensions_stay_bounded() -> None:
    text = LAYERS.text.split("[constraints]")[0]
    space = SearchSpace(parse_study(text.replace("high = 99", "high = 30_000")), {})
    code = space.sample(1, np.random.default_rng(0))[0]
    tried = np.unique(neighbours(space, code, np.random.default_rng(1))[:, -1])
    assert len(tried) <= 65
    assert {code[-1] - 1, code[-1] + 1, 0, 30_000} <= set(tried.tolist())
    many = SearchSpace(parse_study(text.replace("repeat = 24", "repeat = 2_000")), {})
    code = many.sample(1, np.random.default_rng(0))[0]
    assert len(neighbours(many, code, np.random.default_rng(1))) == ROWS
