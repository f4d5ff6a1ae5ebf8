"""A look at one context: what a search is told of it."""

from functools import cache

import numpy as np
import pytest
from msgspec import structs

from tests.core.tuning import Inline, random_jobs, study
from tunerd.core.decisions.context_search import ContextSearch
from tunerd.core.decisions.overrides import OverrideSet
from tunerd.core.observation import Status
from tunerd.core.space import SearchSpace
from tunerd.core.tuner import Tuner


@cache
def learned(jobs: int, _copy: str, seed: int = 1) -> tuple[Tuner, str]:
    """A tuner, and the key of n = 8."""
    tuner = Tuner(study(), Inline())
    past = [
        structs.replace(one, status=Status.OUT_OF_MEMORY, metrics={})
        if one.config["z"] and one.config["y"] != "a"
        else one
        for one in random_jobs(60, seed, sizes=(4, 16)) + random_jobs(jobs, seed, 61, sizes=(8,))
    ]
    tuner.learn(past)
    return tuner, tuner.ask({"n": 8}, past[-1].finished_at)


def survey(jobs: int, copy: str) -> ContextSearch:
    """Of n = 8, where jobs ran in n = 4 and 16 as well. The fastest, with z, do not run."""
    tuner, key = learned(jobs, copy)
    toy = tuner.study
    space = SearchSpace(toy, {"n": 8})
    args = (space, space, space, OverrideSet(toy), tuner.model, tuner.bands, tuner.features)
    return ContextSearch(toy, key, tuner.contexts[key], *args)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4, 20, 100])
@pytest.mark.parametrize("jobs", [0, 1, 12])
def test_the_best_are_told_as_exactly_as_where_all_are_asked(jobs: int, count: int) -> None:
    one, other = survey(jobs, "one"), survey(jobs, "other")
    table = one.space.table(200)
    assert table is not None
    whole, best = one.acquisition(table), other.acquisition_of_best(table, count)
    order = np.argsort(-whole, kind="stable")[:count]
    assert np.argsort(-best, kind="stable")[:count].tolist() == order.tolist()
    assert best[order] == pytest.approx(whole[order])
    assert (best >= whole - 1e-9).all()
