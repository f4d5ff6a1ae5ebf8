"""What tunerd is compared with: the hand sweep, random search, and the best there is."""

import tomllib

import numpy as np
import pytest

from tests.lab.simulation.best import climb
from tunerd.core.observation import Scalar, Status, Value
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import ads_study, demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import job_rng, simulator_for
from tunerd.lab.simulation.sweep import HAND_SWEEP_JOBS, hand_sweep, random_search

SWEPT: dict[str, tuple[tuple[str | None, dict[str, Scalar]], ...]] = {
    "ads-fsdp": ((None, demo_contexts("ads-fsdp")[0]),),
    "llm-pretrain": (
        ("n_gpus >= 4096 and gpu != 'A100'", demo_contexts("llm-pretrain")[1]),
        ("n_gpus >= 1024 and gpu != 'A100'", demo_contexts("llm-pretrain")[0]),
        (
            None,
            {
                "gpu": "A100",
                "n_gpus": 64,
                "model_params": 7e9,
                "global_batch": 512,
                "seq_len": 4096,
            },
        ),
    ),
}
"""Study name -> its baselines in order: condition, and the context of the hand sweep behind it."""


def test_the_shipped_baselines_are_the_hand_sweeps(study: Study) -> None:
    simulator = simulator_for(study)
    swept = [
        ({} if when is None else {"when": when}) | {"config": hand_sweep(simulator, context).config}
        for when, context in SWEPT[study.name]
    ]
    assert tomllib.loads(shipped_study(study.name))["baseline"] == swept


def test_demo_contexts_get_the_baseline_that_was_swept_there(study: Study) -> None:
    simulator = simulator_for(study)
    for context in demo_contexts(study.name):
        baseline = study.baseline(context)
        assert baseline is not None
        found = hand_sweep(simulator, context)
        assert simulator.expected(context, [baseline])[0] == found.expected


def test_the_hand_sweep_is_good_and_beatable(study: Study) -> None:
    simulator = simulator_for(study)
    for context in demo_contexts(study.name):
        swept = hand_sweep(simulator, context)
        assert len(swept.curve) <= HAND_SWEEP_JOBS
        assert swept.config is not None
        _, best = climb(simulator, context, known=[swept.config])
        assert 1.05 < best / swept.expected < 1.15


def test_the_ads_baseline_is_the_best_uniform_configuration(ads: Study) -> None:
    context = demo_contexts("ads-fsdp")[0]
    simulator = simulator_for(ads)
    sharding, reserved, tables = ads.parameters
    uniform: list[dict[str, Value]] = [
        {sharding.name: s, reserved.name: r, tables.name: t}
        for s in sharding.choices
        for r in reserved.choices
        for t in tables.choices
    ]
    best = float(np.nanmax(simulator.expected(context, uniform)))
    assert hand_sweep(simulator, context).expected > 0.995 * best


def test_the_best_ads_configuration_is_not_in_a_corner(ads: Study) -> None:
    context = demo_contexts("ads-fsdp")[0]
    best, _ = climb(simulator_for(ads), context)
    assert isinstance(best["sharding"], list)
    assert len(set(best["sharding"])) > 1
    assert best["row_wise_tables"] not in (0, 64)


@pytest.mark.slow
def test_random_search_does_not_find_the_best_ads_configuration(ads: Study) -> None:
    context = demo_contexts("ads-fsdp")[0]
    simulator = simulator_for(ads)
    _, best = climb(simulator, context)
    found = [random_search(simulator, context, 200, seed).expected for seed in range(5)]
    assert max(found) < 0.99 * best
    assert np.mean(found) < 0.96 * best


def test_random_search_is_deterministic_and_judged_without_noise(ads: Study) -> None:
    context = demo_contexts("ads-fsdp")[0]
    simulator = simulator_for(ads)
    found, again = (random_search(simulator, context, 60, seed=3) for _ in range(2))
    assert found.config == again.config
    np.testing.assert_array_equal(found.curve, again.curve)
    assert found.config is not None
    assert found.expected == simulator.expected(context, [found.config])[0]
    assert found.curve[-1] == found.expected
    assert len(found.curve) == 60


def test_random_search_keeps_what_measured_best(ads: Study) -> None:
    context, seed = demo_contexts("ads-fsdp")[0], 3
    simulator, space = simulator_for(ads), SearchSpace(ads, context)
    measured = {}
    for i, row in enumerate(space.sample(60, np.random.default_rng(seed))):
        config = space.decode(row)
        outcome = simulator.run(context, config, job_rng(seed, context, config, i))
        if outcome.status is Status.SUCCEEDED:
            measured[outcome.metrics["qps"]] = config
    found = random_search(simulator, context, 60, seed)
    assert found.config == measured[max(measured)]
    assert found.failed == 60 - len(measured)


def test_random_search_where_nothing_runs(ads: Study) -> None:
    hopeless = {**demo_contexts("ads-fsdp")[0], "dense_params": 80e9}
    found = random_search(simulator_for(ads), hopeless, 5, seed=0)
    assert found.config is None
    assert found.failed == 5
    assert np.isnan(found.curve).all()


@pytest.mark.parametrize("layers", [2, 24, 48])
def test_the_ads_study_has_as_many_layers_as_asked(layers: int) -> None:
    study = parse_study(ads_study(layers))
    assert study.name == f"ads-fsdp-{layers}"
    space = SearchSpace(study, demo_contexts(study.name)[0])
    assert [int(size) for size in space.sizes] == [3] * layers + [9, 65]
    baseline = study.baseline(demo_contexts(study.name)[0])
    assert baseline is not None
    assert baseline["sharding"] == ["SHARD_GRAD_OP"] * layers
    assert simulator_for(study).expected(demo_contexts(study.name)[0], [baseline])[0] > 0


def test_a_study_needs_layers() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        ads_study(1)
    with pytest.raises(ValueError, match="ads-fsdp, llm-pretrain"):
        shipped_study("bakery")
