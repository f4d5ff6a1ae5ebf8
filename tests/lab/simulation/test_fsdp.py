"""Physics of the ads study: what sharding, memory and table placement cost and save."""

from typing import Any

import numpy as np
import pytest

from tunerd.core.arrays import FloatArray
from tunerd.lab.simulation.cost_model import CostEstimate
from tunerd.lab.simulation.fsdp import layers_of, measure

SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
CONTEXT: dict[str, Any] = {
    "gpu": "H100",
    "n_gpus": 256,
    "dense_params": 4e9,
    "global_batch": 131072,
}


def measured(
    sharding: list[list[str]], reserved: float = 0.8, row_wise: int = 36, **context: Any
) -> CostEstimate:
    n = len(sharding)
    columns = {
        "sharding": np.array(sharding),
        "hbm_reserved": np.full(n, reserved),
        "row_wise_tables": np.full(n, row_wise),
    }
    return measure({**CONTEXT, **context}, columns)


def uniform(strategy: str, **rest: Any) -> CostEstimate:
    return measured([[strategy] * 8], **rest)


def step(result: CostEstimate) -> float:
    return float(result.metrics["step_time_s"][0])


def memory(result: CostEstimate) -> float:
    return float(result.metrics["peak_memory_gib"][0])


def test_sharding_trades_memory_for_communication() -> None:
    full, partly, replicated = (uniform(name) for name in SHARDING)
    assert memory(full) < memory(partly) < memory(replicated)
    assert step(partly) < step(full)


def test_a_big_model_that_nobody_shards_runs_out_of_memory() -> None:
    result = uniform("NO_SHARD", dense_params=8e9, global_batch=65536)
    assert result.out_of_memory[0]
    assert not result.runs[0]
    assert uniform("FULL_SHARD", dense_params=8e9, global_batch=65536).runs[0]


def test_reserving_more_memory_lets_more_run_and_costs_embedding_cache() -> None:
    tight, roomy = (uniform("SHARD_GRAD_OP", reserved=r) for r in (0.77, 0.85))
    assert step(tight) < step(roomy)
    spent = memory(tight) * 2**30
    limits = np.array([0.77, 0.85]) * 80 * 2**30
    assert (spent < limits).tolist() == [tight.runs[0], roomy.runs[0]]


def test_table_placement_has_its_best_in_between() -> None:
    row_wise = np.arange(65)
    columns = {
        "sharding": np.full((65, 8), "SHARD_GRAD_OP"),
        "hbm_reserved": np.full(65, 0.8),
        "row_wise_tables": row_wise,
    }
    steps = measure(CONTEXT, columns).metrics["step_time_s"]
    assert 0 < steps.argmin() < 64


def test_more_gpus_at_a_fixed_batch_are_each_slower() -> None:
    per_gpu = [
        float(uniform("SHARD_GRAD_OP", n_gpus=n).metrics["qps"][0]) / n for n in (128, 256, 512)
    ]
    assert per_gpu[0] > per_gpu[1] > per_gpu[2]


def test_small_layers_gain_from_replication_and_large_ones_lose() -> None:
    def changed(layer: int) -> float:
        sharding = ["SHARD_GRAD_OP"] * 8
        sharding[layer] = "NO_SHARD"
        return step(measured([sharding]))

    params = layers_of(4e9, 8).params
    base = step(uniform("SHARD_GRAD_OP"))
    assert changed(7) < base  # task towers: many small modules, all latency
    assert changed(int(params.argmax())) > base


def test_older_hardware_is_slower() -> None:
    assert step(uniform("SHARD_GRAD_OP", gpu="A100")) > step(uniform("SHARD_GRAD_OP"))


@pytest.mark.parametrize("count", [2, 5, 8, 24, 48])
def test_any_number_of_layers_is_the_same_model(count: int) -> None:
    layers = layers_of(4e9, count)
    eight = layers_of(4e9, 8)

    def flops(of: Any) -> FloatArray:
        return np.asarray((of.params * of.rows).sum())

    assert layers.params.shape == (count,)
    assert layers.params.sum() == pytest.approx(4e9)
    assert layers.activations.sum() == pytest.approx(eight.activations.sum())
    assert flops(layers) == pytest.approx(flops(eight), rel=0.15)
    assert len(set(layers.params.round(3))) > min(count, 8) / 2


def test_each_row_is_computed_as_if_alone() -> None:
    rng = np.random.default_rng(0)
    sharding = np.array(SHARDING)[rng.integers(0, 3, (20, 8))]
    columns = {
        "sharding": sharding,
        "hbm_reserved": rng.choice([0.77, 0.8, 0.85], 20),
        "row_wise_tables": rng.integers(0, 65, 20),
    }
    together = measure(CONTEXT, columns)
    for i in range(20):
        alone = measure(CONTEXT, {name: column[i : i + 1] for name, column in columns.items()})
        assert alone.metrics["qps"][0] == together.metrics["qps"][i]
        assert alone.out_of_memory[0] == together.out_of_memory[i]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"context\.n_gpus"):
        uniform("FULL_SHARD", n_gpus=None)


def test_a_local_batch_that_is_tuned_costs_what_a_given_one_does() -> None:
    given = uniform("SHARD_GRAD_OP", row_wise=40)
    columns = {
        "sharding": np.array([["SHARD_GRAD_OP"] * 8] * 2),
        "hbm_reserved": np.full(2, 0.8),
        "local_batch": np.array([512, 256]),
    }
    tuned = measure({k: v for k, v in CONTEXT.items() if k != "global_batch"}, columns)
    for name, values in given.metrics.items():
        assert tuned.metrics[name][0] == pytest.approx(values[0], rel=1e-12), name
    for name in ("qps", "peak_memory_gib"):
        assert tuned.metrics[name][1] < tuned.metrics[name][0]
