"""Where configurations stop running, recalibrated by contexts that were left out."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.learners.trees import Forest
from tunerd.core.runs.boundary import FORESTS, Boundary, Trust

FAR = np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])


def told_of_a_third(contexts: Mapping[str, tuple[int, float]]) -> FloatArray:
    """Probability to run far on either side in a context without jobs; ``contexts`` says how many
    each has, and on which side what runs lies."""
    rng = np.random.default_rng(0)
    keys = [key for key, (jobs, _) in contexts.items() for _ in range(jobs)]
    X = rng.normal(size=(len(keys), 3))
    side = np.array([contexts[key][1] for key in keys])
    ran = (side * X[:, 0] > 0).astype(float)
    boundary = Boundary.fit(X, ran, np.ones(len(keys)), [False] * 3, keys, 0)
    return boundary.predict(FAR, np.zeros(2))


def test_contexts_that_agree_are_believed_and_those_that_contradict_each_other_are_not() -> None:
    runs, fails = told_of_a_third({"one": (40, 1.0), "other": (40, 1.0)})
    assert fails < 0.05 < 0.95 < runs
    runs, fails = told_of_a_third({"one": (40, 1.0), "other": (40, -1.0)})
    assert 0.3 < fails < 0.7
    assert 0.3 < runs < 0.7


def test_the_first_job_of_a_second_context_leaves_most_trust_in_what_was_known() -> None:
    for side in (-1.0, 1.0):
        runs, fails = told_of_a_third({"one": (38, 1.0), "other": (1, side)})
        assert fails < 0.2 < 0.8 < runs


def test_each_forest_draws_its_own_rows_and_all_are_asked() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    ran = (X[:, 0] > 0).astype(float)
    boundary = Boundary.fit(X, ran, np.ones(60), [False] * 3, ["one"] * 60, 0)
    assert len({trees.text for trees in boundary.forest.members}) == FORESTS
    together = boundary.predict(X, np.ones(60))
    for trees in boundary.forest.members:
        alone = replace(boundary, forest=Forest([trees])).predict(X, np.ones(60))
        assert np.abs(alone - together).max() > 0.001


def test_what_was_told_as_surely_as_can_be_and_was_wrong_is_not_believed_any_more() -> None:
    told, ran = np.full(38, -13.8), np.tile([0.0, 1.0], 19)
    trust = Trust.learned(told, ran, np.ones(38), 0.7)
    assert -0.5 < float(trust(told)[0]) < 0.5
