"""The level of each context, moved by every job."""

import json

import numpy as np

from tunerd.core.predictors import context_effects
from tunerd.core.predictors.context_effects import ContextEffects


def level(found: ContextEffects, key: str) -> float:
    return float(found.of([key])[0][0])


def fitted(jobs: int = 40) -> ContextEffects:
    """Contexts half above and half below the trend."""
    keys = ["up", "down"] * jobs
    residual = np.array([0.3, -0.3] * jobs)
    found = ContextEffects.fit(keys, residual, np.ones(2 * jobs))
    found.expect(noise=0.01)
    return found


def test_a_fit_shrinks_the_mean_of_few_jobs_more() -> None:
    assert 0 < level(fitted(1), "up") < 0.1
    assert 0.25 < level(fitted(40), "up") < 0.3
    assert level(fitted(40), "unseen") == 0.0


def test_the_first_job_of_a_new_context_moves_its_level_at_once() -> None:
    found = fitted()
    found.learn(["new"], np.array([0.5]))
    assert level(found, "new") > 0.4
    found.learn(["new"], np.array([0.5]))
    assert 0.45 < level(found, "new") <= 0.5


def test_it_moves_less_where_the_trend_already_explains_contexts() -> None:
    explained = ContextEffects.fit(["a", "b"] * 20, np.array([0.01, -0.01] * 20), np.ones(40))
    explained.expect(noise=0.01)
    explained.learn(["new"], np.array([0.5]))
    assert level(explained, "new") < 0.2


def test_a_context_that_slowed_down_is_followed_however_long_it_was_steady() -> None:
    found = fitted(2_000)
    found.learn(["up"] * 60, np.full(60, -0.2))
    assert level(found, "up") < -0.1


def test_contexts_are_bounded_and_the_latest_stay() -> None:
    found = fitted()
    for i in range(context_effects.MAX_CONTEXTS + 100):
        found.learn([f"c{i}"], np.array([1.0]))
    assert len(found.dump()["levels"]) == context_effects.MAX_CONTEXTS
    assert level(found, "up") == 0.0
    assert level(found, "c200") > 0.0


def test_json_keeps_every_bit_and_the_order() -> None:
    found = fitted()
    found.learn(["new", "up"], np.array([0.1, 1 / 3]))
    again = ContextEffects.load(json.loads(json.dumps(found.dump())))
    assert again.dump() == found.dump()
    np.testing.assert_array_equal(again.of(["up", "x"]), found.of(["up", "x"]))
