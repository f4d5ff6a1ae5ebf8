"""How ``reinforce`` spends its budget."""

import numpy as np
import pytest

from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers.base import SearchBudget
from tunerd.core.searchers.reinforce import ReinforceSearcher
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study


def wide(*sizes: int) -> SearchSpace:
    """Categories of so many values."""
    parameters = "\n".join(
        f'p{i} = {{ type = "category", values = {[f"v{n}" for n in range(size)]} }}'
        for i, size in enumerate(sizes)
    )
    text = 'schema = 1\nname = "wide"\nobjective = { metric = "speed", goal = "maximize" }\n'
    study = parse_study(f'{text}context.n = {{ type = "int" }}\n[parameters]\n{parameters}\n')
    return SearchSpace(study, {"n": 1})


@pytest.mark.parametrize("sizes", [(1600, 100, 400, 2), (100, 100, 100, 100), (1600, 1600, 40)])
def test_wide_categories_cost_few_calls_of_the_predictor(sizes: tuple[int, ...]) -> None:
    """A call costs the predictor as much as a hundred rows of it."""
    space, rng, calls = wide(*sizes), np.random.default_rng(0), 0
    worth = [rng.normal(size=size) for size in sizes]

    def score(codes: Codes) -> FloatArray:
        nonlocal calls
        calls += 1
        total: FloatArray = np.sum([w[codes[:, i]] for i, w in enumerate(worth)], axis=0)
        return total

    searcher = ReinforceSearcher(space.study.search)
    found = searcher.search(space, score, np.random.default_rng(1), SearchBudget(10_000, 128))
    assert calls <= 130
    best = sum(float(w.max()) for w in worth)
    mean = sum(float(w.mean()) for w in worth)
    assert found.scores[0] >= best - 0.15 * (best - mean)
