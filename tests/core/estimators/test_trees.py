"""The fences around LightGBM: what would abort the process raises instead."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tunerd.core.estimators.trees import BoosterEnsemble, TreeBooster, TreeDataset, TreeOptions

OPTIONS = TreeOptions(trees=20, leaves=7, min_rows=3, seed=0)
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=200), RNG.integers(0, 5, 200)])
LABEL = X[:, 0] + (X[:, 1] == 3)


def grown(seed: int = 0) -> TreeBooster:
    options = TreeOptions(trees=20, leaves=7, min_rows=3, seed=seed)
    return TreeDataset(X, [1]).grow(LABEL, options)


def test_learns_numbers_and_categories() -> None:
    assert np.corrcoef(grown().predict(X), LABEL)[0, 1] > 0.95


@pytest.mark.parametrize("n", [20, 39, 60, 400])
def test_few_rows_and_rare_values_are_learned_as_well(n: int) -> None:
    rare = np.column_stack([np.arange(n) < 6, RNG.normal(size=n)]).astype(float)
    trees = TreeDataset(rare, []).grow(rare[:, 0], OPTIONS)
    assert np.corrcoef(trees.predict(rare), rare[:, 0])[0, 1] > 0.95


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_single_row_is_enough(n: int) -> None:
    options = TreeOptions(trees=5, leaves=4, min_rows=1, seed=0)
    trees = TreeDataset(X[:n], [1], np.ones(n)).grow(np.full(n, 0.5), options)
    assert np.isfinite(trees.predict(X)).all()


@pytest.mark.parametrize("n", range(1, 9))
def test_a_random_forest_of_few_rows_says_numbers(n: int) -> None:
    """Of LightGBM's own, one in ten says NaN of everything."""
    data = TreeDataset(X[:n], [1])
    for seed in range(30):
        options = TreeOptions(20, 7, 1, seed, rows_share=0.63, averaged=True)
        assert np.isfinite(data.grow(LABEL[:n], options).predict(X)).all()


def test_the_same_seed_gives_the_same_bits() -> None:
    assert grown().text == grown().text
    assert grown(1).text != grown(0).text


def test_one_binning_serves_several_labels() -> None:
    data = TreeDataset(X, [1])
    first, second = data.grow(LABEL, OPTIONS), data.grow(-LABEL, OPTIONS)
    np.testing.assert_array_equal(first.predict(X), grown().predict(X))
    assert np.corrcoef(second.predict(X), LABEL)[0, 1] < -0.95


@pytest.mark.slow
def test_many_rows_are_predicted_as_each_alone() -> None:
    forest = BoosterEnsemble([grown(0), grown(1)])
    many = RNG.normal(size=(2_500, 2))
    many[::7, 0] = np.nan
    alone = np.concatenate([forest.predict(row[None]) for row in many])
    np.testing.assert_array_equal(forest.predict(many), alone)


def test_a_forest_comes_back_from_its_dump_to_the_bit() -> None:
    forest = BoosterEnsemble([grown(0), grown(1)])
    again = BoosterEnsemble.load(forest.dump())
    np.testing.assert_array_equal(again.predict(X), forest.predict(X))
    assert again.predict(X).shape == (200, 2)
    assert again.dump() == forest.dump()


@pytest.mark.parametrize("harm", ["truncated", "edited", "empty", "no digest"])
def test_a_damaged_text_raises_and_does_not_abort(harm: str) -> None:
    blob = BoosterEnsemble([grown()]).dump()
    damaged = {
        "truncated": blob[: len(blob) // 2],
        "edited": blob[:-1] + bytes([blob[-1] ^ 1]),
        "empty": b"",
        "no digest": blob.partition(b"\n")[2],
    }[harm]
    assert damaged != blob
    with pytest.raises(ValueError, match="damaged"):
        BoosterEnsemble.load(damaged)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trees": 0},
        {"leaves": 1},
        {"min_rows": 0},
        {"seed": -1},
        {"learning_rate": 0.0},
        {"rows_share": 1.5},
        {"rows_share": float("nan")},
    ],
)
def test_unusable_options_raise(wrong: dict[str, float]) -> None:
    options: dict[str, float] = {"trees": 20, "leaves": 7, "min_rows": 3, "seed": 0}
    with pytest.raises(ValueError, match="unusable"):
        TreeOptions(**(options | wrong))  # type: ignore[arg-type]


def test_what_is_not_finite_is_no_label() -> None:
    with pytest.raises(ValueError, match="finite"):
        TreeDataset(X, [1]).grow(np.full(200, np.nan), OPTIONS)
    with pytest.raises(ValueError, match="infinities"):
        TreeDataset(np.full((5, 1), np.inf), [])
    with pytest.raises(ValueError, match="positive"):
        TreeDataset(X, [1], np.zeros(200))


def test_too_few_rows_for_a_split_are_a_constant() -> None:
    trees = TreeDataset(X[:2], [1]).grow(np.array([1.0, 1.0]), OPTIONS)
    assert np.ptp(trees.predict(X)) == 0


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    BoosterEnsemble.load(BoosterEnsemble([grown()]).dump()).predict(X)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.slow
def test_what_lightgbm_can_do_without_is_imported_by_who_needs_it(tmp_path: Path) -> None:
    """Where they are installed, they take a second of each process that grows trees."""
    libraries = ("sklearn", "pandas", "joblib")
    for name in libraries:
        (tmp_path / f"{name}.py").write_text(f"print('{name}')\n__version__ = '9'\n")
    program = (
        "from tunerd.core.estimators.trees import lightgbm\nlightgbm()\nprint('grown')\n"
        f"import {', '.join(libraries)}\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["grown", *libraries]
