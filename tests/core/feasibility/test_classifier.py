"""Where configurations stop running, recalibrated by contexts that were left out."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.codec import seal_json, unseal_json
from tunerd.core.estimators.trees import BoosterEnsemble
from tunerd.core.feasibility.classifier import FORESTS, FeasibilityClassifier, PlattScaling
from tunerd.lab.evaluation.scores import auc

FAR = np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])


def told_of_a_third(contexts: Mapping[str, tuple[int, float]]) -> FloatArray:
    """Probability to run far on either side in a context without jobs; ``contexts`` says how many
    each has, and on which side what runs lies."""
    rng = np.random.default_rng(0)
    keys = [key for key, (jobs, _) in contexts.items() for _ in range(jobs)]
    X = rng.normal(size=(len(keys), 3))
    side = np.array([contexts[key][1] for key in keys])
    ran = (side * X[:, 0] > 0).astype(float)
    boundary = FeasibilityClassifier.fit(X, ran, np.ones(len(keys)), [False] * 3, keys, 0)
    return boundary.predict(FAR, ["third"] * 2, np.zeros(2))


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


@pytest.mark.slow
def test_a_few_failures_of_a_new_context_leave_the_order_that_others_tell() -> None:
    """A fifth runs elsewhere and a twelfth here, so that of the first twenty jobs nearly all fail.
    Trees that saw them split the context off where others run, and put that behind what runs
    nowhere."""
    lost = []
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        here = np.repeat([False, True], [2_000, 1_020])
        X = np.column_stack([here, rng.integers(0, 4, (3_020, 6))]).astype(float)
        steps = np.abs(X[:, 1] - X[:, 2]) + np.abs(X[:, 3] - X[:, 4]) + X[:, 5]
        ran = steps <= np.where(here, 1, 2)
        keys = np.where(here, "here", "elsewhere").tolist()
        found = []
        for known in (2_000, 2_020):
            boundary = FeasibilityClassifier.fit(
                X[:known],
                ran[:known].astype(float),
                np.ones(known),
                [True] + [False] * 6,
                keys[:known],
                0,
            )
            told = boundary.predict(X[2_020:], keys[2_020:], np.zeros(1_000))
            found.append(auc(told, ran[2_020:]))
        lost.append(found[0] - found[1])
    assert float(np.mean(lost)) < 0.004, lost


def test_it_is_saved_with_what_has_not_seen_a_new_context() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(130, 3))
    ran = (X[:, 0] > 0).astype(float)
    keys = ["one"] * 120 + ["new"] * 10
    boundary = FeasibilityClassifier.fit(X, ran, np.ones(130), [False] * 3, keys, 0)
    assert set(boundary.heard) == {"new"}
    blobs, state = boundary.dump()
    loaded = FeasibilityClassifier.load(blobs, unseal_json(seal_json(state)))
    known = np.full(130, 0.5)
    assert loaded.predict(X, keys, known).tolist() == boundary.predict(X, keys, known).tolist()


def test_each_forest_draws_its_own_rows_and_all_are_asked() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    ran = (X[:, 0] > 0).astype(float)
    boundary = FeasibilityClassifier.fit(X, ran, np.ones(60), [False] * 3, ["one"] * 60, 0)
    assert len({trees.text for trees in boundary.whole.forest.members}) == FORESTS
    there = ["one"] * 60
    together = boundary.predict(X, there, np.ones(60))
    for trees in boundary.whole.forest.members:
        one = replace(boundary, whole=replace(boundary.whole, forest=BoosterEnsemble([trees])))
        alone = one.predict(X, there, np.ones(60))
        assert np.abs(alone - together).max() > 0.001


def test_what_was_told_as_surely_as_can_be_and_was_wrong_is_not_believed_any_more() -> None:
    told, ran = np.full(38, -13.8), np.tile([0.0, 1.0], 19)
    trust = PlattScaling.learned(told, ran, np.ones(38), 0.7)
    assert -0.5 < float(trust(told)[0]) < 0.5
