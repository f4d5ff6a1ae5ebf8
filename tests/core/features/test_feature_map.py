"""From raw values to the matrix that models see."""

from time import process_time

import numpy as np
import pytest
from msgspec.structs import replace

from tests.core.contract import CONFIG, CONTEXT, CONTRACT, METRICS, job
from tests.core.tuning import study
from tunerd.core.arrays import FloatArray
from tunerd.core.features import FeatureMap
from tunerd.core.observation import Status, Value
from tunerd.core.space import SearchSpace


def column(features: FeatureMap, X: FloatArray, name: str) -> FloatArray:
    names = [c.name for c in features.columns]
    return X[:, names.index(name)]


def test_columns_come_from_context_lookups_parameters_and_derived_values() -> None:
    features = FeatureMap(CONTRACT)
    X = features.rows([job()]).X
    assert X.shape == (1, len(features.columns))
    assert column(features, X, "n_gpus")[0] == 64
    assert column(features, X, "gpu.tflops")[0] == 989
    assert column(features, X, "tp")[0] == 4
    assert column(features, X, "hbm_reserved")[0] == 0.8
    assert column(features, X, "dp")[0] == 64 // (4 * 2 * 1)
    assert column(features, X, "count(sharding == 'NO_SHARD')")[0] == 3
    assert column(features, X, "count(sharding == 'SHARD_GRAD_OP')")[0] == 0
    kinds = {c.name: (c.group, c.categorical, c.log) for c in features.columns}
    assert kinds["gpu"] == ("context", True, False)
    assert kinds["gpu.tflops"] == ("lookup", False, False)
    assert kinds["n_gpus"] == ("context", False, True)
    assert kinds["sharding[7]"] == ("parameter", True, False)
    assert kinds["dp"] == ("derived", False, False)


def test_candidates_look_like_the_jobs_that_ran_them() -> None:
    features = FeatureMap(CONTRACT)
    space = SearchSpace(CONTRACT, CONTEXT)
    codes = space.sample(50, np.random.default_rng(0))
    candidates = features.candidates(space, codes)
    rows = features.rows([job(config=space.decode(code)) for code in codes])
    # The vocabulary did not know H100 when the candidates were made.
    assert np.isnan(column(features, candidates.X, "gpu")).all()
    np.testing.assert_array_equal(features.candidates(space, codes).X, rows.X)
    assert candidates.context_key == rows.context_key
    assert np.isnan(candidates.score).all()
    assert np.isnan(candidates.ran).all()


def test_values_outside_the_space_pass_through() -> None:
    features = FeatureMap(CONTRACT)
    X = features.rows([job(config=CONFIG | {"tp": 16, "precision": "int8"}), job()]).X
    assert column(features, X, "tp").tolist() == [16, 4]
    known, new = column(features, X, "precision")[1], column(features, X, "precision")[0]
    assert known == 1
    assert new == 2


@pytest.mark.parametrize("wrong", [None, "many", [1, 2], {"a": 1}, True, float("nan")])
def test_what_cannot_be_used_is_missing(wrong: Value) -> None:
    features = FeatureMap(CONTRACT)
    X = features.rows([job(CONTEXT | {"n_gpus": wrong}, CONFIG | {"tp": wrong})]).X
    assert np.isnan(column(features, X, "n_gpus")[0])
    assert np.isnan(column(features, X, "tp")[0])
    assert np.isnan(column(features, X, "dp")[0])
    assert column(features, X, "pp")[0] == 2


def test_an_empty_job_is_all_missing() -> None:
    rows = FeatureMap(CONTRACT).rows([job({}, {}, {}, Status.CANCELLED)])
    assert np.isnan(rows.X).all()
    assert np.isnan(rows.score[0])
    assert np.isnan(rows.ran[0])
    assert len(FeatureMap(CONTRACT).rows([])) == 0


def test_a_repeat_of_the_wrong_length_is_missing_with_its_counts() -> None:
    features = FeatureMap(CONTRACT)
    X = features.rows([job(config=CONFIG | {"sharding": ["NO_SHARD"] * 3})]).X
    assert np.isnan(column(features, X, "sharding[0]")[0])
    assert np.isnan(column(features, X, "count(sharding == 'NO_SHARD')")[0])


def test_codes_of_open_categories_are_kept_and_never_change() -> None:
    features = FeatureMap(CONTRACT)
    gpus = ["B200", "H100", "A100", "B200", "TPU"]
    first = features.rows([job(CONTEXT | {"gpu": gpu}) for gpu in gpus]).X
    assert column(features, first, "gpu").tolist() == [0, 1, 2, 0, 3]
    again = FeatureMap(CONTRACT, features.dump())
    second = again.rows([job(CONTEXT | {"gpu": gpu}) for gpu in reversed(gpus)]).X
    np.testing.assert_array_equal(second[::-1], first)
    assert np.isnan(column(features, first, "gpu.tflops")[0])


def test_a_category_fed_with_names_of_jobs_stays_bounded() -> None:
    features = FeatureMap(CONTRACT)
    X = features.rows([job(CONTEXT | {"gpu": f"job-{i}"}) for i in range(1_500)]).X
    codes = column(features, X, "gpu")
    assert np.nanmax(codes) == 999
    assert np.isnan(codes[1_000:]).all()


def test_what_a_job_says_about_running() -> None:
    features = FeatureMap(CONTRACT)
    rows = features.rows(
        [
            job(),
            job(metrics={}, status=Status.OUT_OF_MEMORY),
            job(metrics=METRICS | {"peak_memory_gib": 80}),
            job(metrics={}, status=Status.FAILED),
            job(metrics={}, status=Status.PREEMPTED),
        ]
    )
    np.testing.assert_array_equal(rows.ran, [1, 0, 0, 0, np.nan])
    assert rows.ran_weight[:3].tolist() == [1, 1, 1]
    assert 0 < rows.ran_weight[3] < 1
    assert rows.ran_weight[4] == 0
    assert rows.score[0] == pytest.approx(np.log(400))
    assert np.isfinite(rows.score[2])  # it was measured, guard or not


def test_short_measurements_count_for_less() -> None:
    jobs = [replace(job(), measured_s=s) for s in (None, 3600.0, 30.0, 0.0)]
    assert FeatureMap(CONTRACT).rows(jobs).weight.tolist() == [1.0, 1.0, 0.5, 0.1]


def test_coordinates_measure_how_much_configurations_differ() -> None:
    features = FeatureMap(CONTRACT)
    base = job()
    near = job(config=CONFIG | {"hbm_reserved": 0.81})
    one_layer = job(config=CONFIG | {"sharding": [*["NO_SHARD"] * 4, *["FULL_SHARD"] * 4]})
    far = job(config=CONFIG | {"tp": 1, "pp": 16, "cp": 4, "precision": "bf16"})
    other_context = job(context=CONTEXT | {"n_gpus": 128})
    at = features.coordinates(features.rows([base, near, one_layer, far, other_context]).X)
    distance = np.linalg.norm(at - at[0], axis=1)
    assert distance[4] == 0
    assert 0 < distance[1] < distance[3]
    assert 0 < distance[2] < distance[3]
    sample = SearchSpace(CONTRACT, CONTEXT).sample(400, np.random.default_rng(0))
    spread = features.coordinates(features.candidates(SearchSpace(CONTRACT, CONTEXT), sample).X)
    apart = np.linalg.norm(spread[:200] - spread[200:], axis=1)
    # √2 on average if all combinations were feasible; the constraints of this context favour some.
    assert 0.9 < apart.mean() < 1.6


def test_a_few_configurations_cost_little_however_many_values_a_category_has() -> None:
    """A search asks some hundred times about a few of them."""

    def seconds(values: int) -> float:
        listed = ", ".join(f'"i{i}"' for i in range(values))
        made = study(y=f'{{ type = "category", values = ["a", "b", "c", {listed}] }}')
        features, space = FeatureMap(made), SearchSpace(made, {"n": 8})
        codes = space.sample(8, np.random.default_rng(0))
        took = []
        for _ in range(5):
            started = process_time()
            X = features.candidates(space, codes).X
            took.append(process_time() - started)
        np.testing.assert_array_equal(column(features, X, "y"), codes[:, 1])
        return min(took)

    assert seconds(10_000) < 10 * seconds(100)


def test_what_was_pruned_is_not_remembered() -> None:
    features = FeatureMap(study())
    features.quarantined = {3: 0, 4: 9}
    features.held_back = {4, 5}
    features.forget([4, 6])
    again = FeatureMap(study(), features.dump())
    assert (again.quarantined, again.held_back) == ({3: 0}, {5})
