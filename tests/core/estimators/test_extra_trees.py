"""Extra trees: what LightGBM reads out of the text is what was grown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.extra_trees import extra_trees
from tunerd.core.estimators.trees import TreeBooster

EVERYTHING = 1_000_000


def grown(X: FloatArray, label: FloatArray, seed: int = 0, **how: int) -> TreeBooster:
    how = {"trees": 10, "rows_each": EVERYTHING} | how
    text = extra_trees(
        X, label, np.ones(len(X)), [1], trees=how["trees"], seed=seed, rows_each=how["rows_each"]
    )
    return TreeBooster(text)


def table(n: int, categories: int = 40) -> tuple[FloatArray, FloatArray]:
    """Numbers, categories, large numbers and a grid, some of each missing, and labels."""
    rng = np.random.default_rng(n)
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.integers(0, categories, n),
            10.0 ** rng.uniform(0, 9, n),
            rng.integers(0, 4, n),
        ]
    ).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    label = np.nan_to_num(X[:, 0]) + (X[:, 1] % 3 == 1) + np.log10(np.nan_to_num(X[:, 2], nan=10))
    return X, label + 0.1 * rng.normal(size=n)


@pytest.mark.slow
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 30), st.just(4)),
        elements=st.sampled_from([0.0, 1.0, 2.0, 3.0, 70.0, 1e-9, 1e12, np.nan]),
    ),
    st.integers(0, 5),
)
def test_rows_that_differ_are_told_apart(X: FloatArray, seed: int) -> None:
    """Every tree sees all of them, down to single ones: LightGBM must send each row, whatever is
    missing of it, into the leaf that it was grown for."""
    X[:, 1] = np.round(X[:, 1]) % 100
    _, row = np.unique(np.nan_to_num(X, nan=-1.0), axis=0, return_inverse=True)
    label = np.random.default_rng(seed).normal(size=len(X))[row]
    np.testing.assert_allclose(grown(X, label, seed).predict(X), label, atol=1e-8)


def test_hundreds_of_rows_and_categories_are_told_apart() -> None:
    X, label = table(700)
    np.testing.assert_allclose(grown(X, label).predict(X), label, atol=1e-8)


def test_rows_that_do_not_differ_are_averaged_by_weight() -> None:
    X, label = np.zeros((3, 2)), np.array([0.0, 1.0, 5.0])
    text = extra_trees(X, label, np.array([1.0, 2.0, 1.0]), [], trees=3, rows_each=9, seed=0)
    np.testing.assert_allclose(TreeBooster(text).predict(X), 7.0 / 4.0)


@pytest.mark.slow
def test_what_was_learned_carries_to_other_rows() -> None:
    (X, label), (other, expected) = table(2_000, 6), table(500, 6)
    told = grown(X, label, trees=40).predict(other)
    assert np.corrcoef(told, expected)[0, 1] > 0.95


def test_a_mean_of_many_is_smooth() -> None:
    """Between two values a forest of best cuts has one step, in the middle; these have many."""
    X = np.column_stack([np.repeat([0.0, 1.0], 20), np.zeros(40)])
    between = np.column_stack([np.linspace(0.01, 0.99, 99), np.zeros(99)])
    told = grown(X, X[:, 0], trees=400).predict(between)
    assert (np.diff(told) >= 0).all()
    assert np.abs(told - between[:, 0]).max() < 0.1


def test_ratios_count_where_numbers_are_positive() -> None:
    X = np.column_stack([np.repeat([1.0, 1e6], 20), np.zeros(40)])
    told = grown(X, np.repeat([0.0, 1.0], 20), trees=400).predict(np.array([[1e3, 0.0]]))
    assert told == pytest.approx(0.5, abs=0.1)


def test_a_category_never_seen_goes_where_a_missing_one_does() -> None:
    X, label = table(200, 3)
    trees, asked = grown(X, label), X[:20].copy()
    told = []
    for value in (np.nan, 57.0):
        asked[:, 1] = value
        told.append(trees.predict(asked))
    np.testing.assert_array_equal(told[0], told[1])


def test_contributions_add_up_to_predictions() -> None:
    X, label = table(300)
    trees = grown(X, label)
    np.testing.assert_allclose(trees.contributions(X).sum(axis=1), trees.predict(X), atol=1e-6)


def test_each_tree_sees_at_most_so_many_rows() -> None:
    X, label = table(300)
    assert leaves(grown(X, label, rows_each=50)).max() <= 50
    assert leaves(grown(X, label)).min() > 250


def test_grids_of_few_values_are_told_apart_to_the_end() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (3_000, 5)).astype(float)
    trees = grown(X, rng.normal(size=3_000), trees=3)
    assert (leaves(trees) == len(np.unique(X, axis=0))).all()


def test_the_same_seed_gives_the_same_bits() -> None:
    X, label = table(100)
    assert grown(X, label).text == grown(X, label).text
    assert grown(X, label).text != grown(X, label, seed=1).text


def test_how_many_are_handled_at_once_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    X, label = table(100)
    monkeypatch.setattr("tunerd.core.estimators.extra_trees.TOGETHER", 250)
    np.testing.assert_allclose(grown(X, label).predict(X), label, atol=1e-8)


@pytest.mark.parametrize(
    ("X", "label"),
    [
        (np.zeros((0, 2)), np.zeros(0)),
        (np.full((1, 2), np.inf), np.zeros(1)),
        (np.zeros((1, 2)), np.full(1, np.nan)),
    ],
)
def test_what_cannot_be_learned_is_refused(X: FloatArray, label: FloatArray) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        grown(X, label)


def leaves(trees: TreeBooster) -> IntArray:
    """How many each tree has."""
    lines = [line.partition("=") for line in trees.text.splitlines()]
    return np.array([int(value) for name, _, value in lines if name == "num_leaves"])
