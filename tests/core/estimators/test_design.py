"""Columns as linear models want them."""

import numpy as np
import pytest

from tunerd.core.estimators.design import CLIP, DesignTransform


@pytest.mark.parametrize("first", [0.0, 1.0])
@pytest.mark.parametrize("wild", [1e30, 1.7e308, -1.7e308])
def test_one_absurd_value_leaves_the_others_their_scale(wild: float, first: float) -> None:
    """``first`` is the least of the others: from 1 on they are taken as logarithms."""
    rng = np.random.default_rng(1)
    X = np.stack([first + 15 * rng.random(100), rng.integers(3, size=100)], axis=1)
    X[0, 0] = first
    absurd = X.copy()
    absurd[40, 0] = wild
    alone, beside = (DesignTransform.fit(one, [0.0, 1.0])(X)[:, 0] for one in (X, absurd))
    if first == 1.0 and wild < 0:  # not all are positive any more
        alone = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
    assert beside == pytest.approx(alone, rel=0.05, abs=0.05)
    there = DesignTransform.fit(absurd, [0.0, 1.0])(absurd)
    assert there[40, 0] == np.copysign(CLIP, wild)


def test_no_column_is_changed_whose_values_lie_together() -> None:
    rng = np.random.default_rng(1)
    X = np.stack([rng.normal(size=200), 2.0 ** rng.integers(0, 14, 200), np.zeros(200)], axis=1)
    X[:50, 2] = 1.0
    scaled = DesignTransform.fit(X, [0.0, 0.0, 0.0]).unclipped(X)
    assert scaled.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
    assert scaled.std(axis=0) == pytest.approx(1.0)


def test_a_missing_category_stands_at_the_mean_and_an_unknown_one_has_none_of_the_values() -> None:
    X = np.array([[0.0], [0.0], [1.0], [2.0]])
    design = DesignTransform.fit(X, [1.0])
    missing, unknown = design(np.array([[np.nan], [7.0]]))
    assert missing.tolist() == [0.0, 0.0, 0.0]
    others = design(X)
    assert unknown == pytest.approx([others[2, 0], others[0, 1], others[0, 2]])
    assert (unknown < 0).all()
