"""Physics of the LLM study, and the throughputs that papers report."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tunerd.lab.simulation.cost_model import CostEstimate
from tunerd.lab.simulation.llm import measure, shape_of

CONTEXT: dict[str, Any] = {
    "gpu": "H100",
    "n_gpus": 1024,
    "model_params": 70e9,
    "global_batch": 2048,
    "seq_len": 4096,
}
CONFIG: dict[str, Any] = {
    "tp": 4,
    "pp": 4,
    "cp": 1,
    "micro_batch": 1,
    "interleave": 1,
    "precision": "bf16",
    "sharding": "SHARD_GRAD_OP",
    "recompute": "full",
}


def one(context: Mapping[str, Any] | None = None, /, **config: Any) -> CostEstimate:
    columns = {name: np.array([value]) for name, value in {**CONFIG, **config}.items()}
    return measure({**CONTEXT, **(context or {})}, columns)


def speed(result: CostEstimate) -> float:
    return float(result.metrics["tokens_per_second_per_gpu"][0])


def memory(result: CostEstimate) -> float:
    return float(result.metrics["peak_memory_gib"][0])


# Narayanan et al. 2021, table 1: A100, 2,048 tokens, TFLOP/s per GPU with recomputation counted.
MEGATRON = [
    (1.7e9, 1, 1, 32, 512, 137),
    (3.6e9, 2, 1, 64, 512, 138),
    (7.5e9, 4, 1, 128, 512, 142),
    (18.4e9, 8, 1, 256, 1024, 135),
    (39.1e9, 8, 2, 512, 1536, 138),
    (76.1e9, 8, 4, 1024, 1792, 140),
    (145.6e9, 8, 8, 1536, 2304, 148),
    (310.1e9, 8, 16, 1920, 2160, 155),
    (529.6e9, 8, 35, 2520, 2520, 163),
    (1008.0e9, 8, 64, 3072, 3072, 163),
]


@pytest.mark.slow
@pytest.mark.parametrize(("params", "tp", "pp", "gpus", "batch", "reported"), MEGATRON)
def test_megatron_on_a100(
    params: float, tp: int, pp: int, gpus: int, batch: int, reported: float
) -> None:
    context = {
        "gpu": "A100",
        "n_gpus": gpus,
        "model_params": params,
        "global_batch": batch,
        "seq_len": 2048,
    }
    best = 0.0
    for micro_batch in (1, 2, 4, 8, 16):
        for interleave in (1, 2) if 1 < pp <= 8 else (1,):
            plan = {"tp": tp, "pp": pp, "micro_batch": micro_batch, "interleave": interleave}
            result = one(context, **plan)
            if result.runs[0]:
                best = max(best, float(result.metrics["mfu"][0]))
    assert best * 312 * 4 / 3 == pytest.approx(reported, rel=0.2)


# Llama 3 (2407.21783), table 4: 405B on H100, bf16, TFLOP/s per GPU.
@pytest.mark.parametrize(
    ("gpus", "cp", "seq_len", "batch", "reported"),
    [(8192, 1, 8192, 2048, 430), (16384, 1, 8192, 2048, 400), (16384, 16, 131072, 128, 380)],
)
def test_llama_3_on_h100(gpus: int, cp: int, seq_len: int, batch: int, reported: float) -> None:
    context = {
        "n_gpus": gpus,
        "model_params": 405e9,
        "global_batch": batch,
        "seq_len": seq_len,
    }
    result = one(context, tp=8, pp=16, cp=cp, interleave=4, recompute="selective")
    assert result.runs[0]
    assert float(result.metrics["mfu"][0]) * 989 == pytest.approx(reported, rel=0.2)


def test_shapes_have_the_parameters_they_stand_for() -> None:
    for params in (0.1e9, 1.3e9, 7e9, 70e9, 405e9, 1e12):
        shape = shape_of(params)
        embeddings = 2 * 65536 * shape.hidden
        assert shape.layers * shape.layer_params + embeddings == pytest.approx(params, rel=1e-6)
    assert shape_of(70e9).hidden == pytest.approx(8192, rel=0.1)


def test_the_bubble_shrinks_with_more_micro_batches() -> None:
    speeds = [speed(one({"global_batch": batch}, pp=8, tp=8)) for batch in (128, 512, 2048)]
    assert speeds[0] < speeds[1] < speeds[2]
    # (p - 1) / m: with 8 stages and 8 micro batches 47 % of the time is lost, with 128 5 %.
    assert speeds[0] / speeds[2] == pytest.approx((8 / 15) / (128 / 135), rel=0.1)


def test_interleaving_shrinks_the_bubble_further() -> None:
    few = {"global_batch": 256}
    assert speed(one(few, pp=8, interleave=2)) > speed(one(few, pp=8, interleave=1))


def test_more_gpus_at_a_fixed_batch_are_each_slower() -> None:
    speeds = [speed(one({"n_gpus": n})) for n in (256, 1024, 4096)]
    assert speeds[0] > speeds[1] > speeds[2]


def test_tensor_parallelism_saves_memory_and_costs_speed() -> None:
    narrow, wide = one(tp=2, pp=8), one(tp=8, pp=8)
    assert memory(wide) < memory(narrow)
    assert speed(wide) < speed(narrow)


def test_recomputation_trades_speed_for_memory() -> None:
    none, selective, full = (one(recompute=r) for r in ("none", "selective", "full"))
    assert memory(none) > memory(selective) > memory(full)
    assert speed(none) > speed(selective) > speed(full)


def test_a_big_model_that_nobody_shards_runs_out_of_memory() -> None:
    assert one(tp=1, pp=1, sharding="NO_SHARD").out_of_memory[0]
    assert one(tp=1, pp=1, sharding="SHARD_GRAD_OP").out_of_memory[0]
    assert one(tp=1, pp=1, sharding="FULL_SHARD").runs[0]


def test_fp8_pays_off_on_large_products_and_needs_hardware() -> None:
    assert speed(one(precision="fp8")) > 1.1 * speed(one())
    small = {"model_params": 0.3e9, "seq_len": 512, "n_gpus": 8, "global_batch": 64}
    config = {"tp": 8, "pp": 1, "recompute": "none"}
    assert speed(one(small, precision="fp8", **config)) < 1.02 * speed(one(small, **config))
    assert one({"gpu": "A100"}, precision="fp8").failed[0]


def test_context_parallelism_pays_off_only_where_memory_asks_for_it() -> None:
    short = {"seq_len": 4096}
    assert speed(one(short, cp=2)) < speed(one(short, cp=1))
    long = {"seq_len": 131072, "global_batch": 128}
    assert one(long, tp=8, pp=4, cp=1, recompute="selective").out_of_memory[0]
    assert one(long, tp=8, pp=4, cp=4, recompute="selective").runs[0]


@pytest.mark.parametrize(
    "config",
    [{"tp": 8, "pp": 16, "cp": 3}, {"micro_batch": 3}, {"pp": 16, "interleave": 16}],
    ids=["gpus left over", "broken batch", "more chunks than layers"],
)
def test_impossible_plans_fail(config: dict[str, Any]) -> None:
    result = one(**config)
    assert result.failed[0]
    assert not result.out_of_memory[0]


@pytest.mark.parametrize("n_gpus", [8, 64, 1024, 16384])
def test_some_plan_runs_at_every_scale(n_gpus: int) -> None:
    params = {8: 1.3e9, 64: 13e9, 1024: 175e9, 16384: 1e12}[n_gpus]
    context = {"n_gpus": n_gpus, "model_params": params, "global_batch": 4096}
    tp, pp = {8: (1, 1), 64: (2, 1), 1024: (8, 8), 16384: (8, 16)}[n_gpus]
    result = one(context, tp=tp, pp=pp)
    assert result.runs[0]
    assert 0.2 < float(result.metrics["mfu"][0]) < 0.7
