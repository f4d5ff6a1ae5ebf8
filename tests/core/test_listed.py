"""A space in which only listed configurations may be tried: what closed loops run on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.tuning import job, study
from tunerd.core.features import FeatureMap
from tunerd.core.searchers import searcher_class
from tunerd.core.searchers.base import SearchBudget
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study
from tunerd.errors import NothingFeasibleError

TOY = study()
CONFIGS = st.fixed_dictionaries(
    {
        "x": st.sampled_from([None, *range(1, 9)]),
        "y": st.sampled_from([None, "a", "b", "c"]),
        "z": st.sampled_from([None, False, True]),
    }
)


def values(config: Mapping[str, Any]) -> tuple[Any, ...]:
    return config["x"], config["y"], config["z"]


def feasible(configs: list[dict[str, Any]], n: int) -> set[tuple[Any, ...]]:
    """Only ``x <= n`` rules anything out; a missing x cannot keep it."""
    return {values(c) for c in configs if c["x"] is not None and c["x"] <= n}


@pytest.mark.slow
@given(st.lists(CONFIGS, min_size=1, max_size=30), st.sampled_from([1, 4, 16]))
def test_exactly_the_listed_configurations_that_keep_the_constraints(
    configs: list[dict[str, Any]], n: int
) -> None:
    wanted = feasible(configs, n)
    if not wanted:
        with pytest.raises(NothingFeasibleError, match=r"none of the \d+ configurations"):
            SearchSpace(TOY, {"n": n}, only=configs)
        return
    space = SearchSpace(TOY, {"n": n}, only=configs)
    table = space.table(1_000)
    assert table is not None
    assert {values(space.decode(code)) for code in table} == wanted
    assert space.size == len(wanted)
    for config in configs:
        code = space.encode(config)
        assert (code is not None) == (values(config) in wanted)
        assert code is None or space.decode(code) == config
    assert space.encode({"x": 8, "y": "d", "z": True}) is None
    rng = np.random.default_rng(0)
    for codes in (space.sample(20, rng), space.spread(20, rng), space.repair(table + 1, rng)):
        assert {values(space.decode(code)) for code in codes} <= wanted
    everything = np.stack(np.meshgrid(*map(np.arange, space.sizes)), axis=-1).reshape(-1, 3)
    assert space.feasible(everything.astype(np.int32)).sum() == len(wanted)


@pytest.mark.slow
@given(st.lists(CONFIGS, min_size=1, max_size=30))
def test_models_see_a_missing_value_as_they_see_it_in_a_job(configs: list[dict[str, Any]]) -> None:
    free = parse_study(TOY.text.replace('fits = "x <= n"', "") + "\n[derived]\ntwice = '2 * x'\n")
    space, features = SearchSpace(free, {"n": 8}, only=configs), FeatureMap(free)
    codes = [space.encode(config) for config in configs]
    seen = features.candidates(space, np.array(codes, np.int32)).X
    jobs = [job(i + 1, {"n": 8}, config) for i, config in enumerate(configs)]
    np.testing.assert_array_equal(seen, features.rows(jobs).X)


@pytest.mark.parametrize("name", ["reinforce", "random"])
def test_searchers_look_at_all_that_is_listed_and_at_nothing_else(name: str) -> None:
    many = parse_study(
        'schema = 1\nname = "m"\n[objective]\nmetric = "s"\ngoal = "maximize"\n[parameters]\n'
        'x = { type = "int", low = 0, high = 9, repeat = 60 }\n'
    )
    rng = np.random.default_rng(0)
    rows = rng.integers(10, size=(300, 60))
    space = SearchSpace(many, {}, only=[{"x": row.tolist()} for row in rows])
    found = searcher_class(name)(many.search).search(
        space, lambda codes: codes.sum(axis=1).astype(np.float64), rng, SearchBudget(1_000, 10)
    )
    assert found.evaluations == len(np.unique(rows, axis=0))
    assert found.scores[0] == rows.sum(axis=1).max()
    few = searcher_class(name)(many.search).search(
        space, lambda codes: codes.sum(axis=1).astype(np.float64), rng, SearchBudget(100, 10)
    )
    assert few.evaluations <= 100
    assert space.feasible(few.codes).all()
