"""Cost model of large language model training (the study of "CubicML" A.2.2).

A transformer of ``model_params`` parameters is trained on ``n_gpus`` GPUs by tensor, context,
data and pipeline parallelism, nested in this order (Megatron-LM: ranks next to each other share a
tensor group). What a step costs, with sources by letter:

[M] Narayanan et al. 2021 (2104.04473), [K] Korthikanti et al. 2022 (2205.05198), [Z] ZeRO
(1910.02054), [F] FSDP (2304.11277), [R] ring attention (2310.01889), [C] Calculon (Isaev et al.
2023), [L] Llama 3 (2407.21783).

* *Compute*: 2 FLOPs per parameter and token forward, twice that backward, causal attention beside
  it [M, sec. 5.1]; matrix products reach a fraction of peak that falls with few rows (micro batch x
  sequence / cp) and with narrow shards (hidden / tp) [C]. Element-wise work is paid in memory
  bandwidth. fp8 doubles the peak of matrix products only, reaches less of it, and pays for casts.
* *Tensor parallelism*: two all-gathers and two reduce-scatters of the activations per layer, each
  way (sequence parallelism) [K, sec. 4.2]; only partly hidden. *Context parallelism*: keys and
  values travel round a ring, hidden behind attention as far as that lasts; shorter chunks and the
  merging of partial results cost a little [R].
* *Pipeline*: the bubble is (pp - 1) / (interleave x micro batches) of the work [M, sec. 2.2], at
  the price of more sends. Layers that do not divide evenly make the fullest stage the pace.
* *Data parallelism*: gradients once per step (``NO_SHARD``: all-reduce; ``SHARD_GRAD_OP``:
  reduce-scatter and a gather of new parameters [Z]), hidden behind one micro batch's work;
  ``FULL_SHARD`` gathers and reduces for every micro batch [F].
* *Memory*: 18 bytes a parameter (bf16 weights, fp32 gradients, master and moments), sharded as
  asked [Z]; activations 34 bytes per token and hidden unit of a layer [K, sec. 4, with flash
  attention], times the micro batches in flight; the logits of the last stage.
* *Stragglers*: everyone waits for the slowest of many nodes.

The efficiency constants were fitted by hand so that the model is within 20 % of the throughputs
that [M] (table 1) and [L] (table 4) report; the tests hold it to that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Array, BoolArray, FloatArray
from tunerd.core.observation import Scalar
from tunerd.lab.simulation.collectives import all_gather, all_reduce, group_of, send
from tunerd.lab.simulation.cost_model import Columns, CostEstimate, number
from tunerd.lab.simulation.hardware import GIB, GPUS_PER_NODE, GpuSpec, gpu_named

__all__ = ["ModelShape", "measure", "shape_of"]

VOCABULARY = 65536
KV_SHARE = 0.25  # of the hidden size: grouped-query attention

MATMUL_FRACTION = {"bf16": 0.77, "fp8": 0.58}  # of peak, large products
HALF_INNER = 650.0  # hidden size at which half of that is reached
HALF_ROWS = {"bf16": 260.0, "fp8": 700.0}  # rows at which half of that is reached
HALF_WIDTH = {"bf16": 90.0, "fp8": 180.0}  # columns of a shard at which half of that is reached
ATTENTION_FRACTION = 0.45  # of bf16 peak: flash attention, forward and backward together
HALF_CHUNK = 256.0  # tokens of a sequence on one rank at which half of that is reached
RING_HIDDEN = 0.85  # of attention's time, that the ring's sends can use
RING_OVERHEAD = (
    25e-6  # s per further rank in the ring, one layer forward: merging partial softmaxes
)
ELEMENT_BYTES = {"bf16": 60.0, "fp8": 72.0}  # per token and hidden unit, one layer forward
HBM_FRACTION = 0.8
LAYER_OVERHEAD = 120e-6  # s a layer, forward: kernel launches that nothing hides

TENSOR_HIDDEN = 0.3  # share of tensor-parallel traffic that overlaps with products
DATA_HIDDEN = 0.8  # of the compute beside it, data-parallel traffic can use
SEND_EXPOSED = 0.4  # share of a stage's sends that its neighbours wait for
STRAGGLER = 0.007  # spread of nodes' speeds; the slowest of n is about sqrt(2 ln n) spreads late

RECOMPUTED = {"none": 0.0, "selective": 0.04, "full": 1.0}  # of a forward pass, in backward
ACTIVATIONS = {"none": 34.0, "selective": 21.0, "full": 2.0}  # bytes per token and hidden unit
FP8_ACTIVATIONS = 0.85  # inputs of matrix products are kept in fp8
FP8_WEIGHT_BYTES = 2.0  # two fp8 copies, one per layout, beside the bf16 weight
OPTIMIZER_BYTES = 30.0  # moved per parameter and step
HBM_LOST = 0.04  # to fragmentation
RUNTIME_BYTES = 4 * GIB  # CUDA context, NCCL's buffers for four kinds of groups


@dataclass(frozen=True, slots=True)
class ModelShape:
    layers: int
    hidden: float
    layer_params: float


def shape_of(model_params: float) -> ModelShape:
    """Depth and width as published models of about this size have them."""
    sizes = np.log([0.1e9, 1.3e9, 6.7e9, 70e9, 175e9, 405e9, 1000e9])
    depth = float(np.interp(np.log(model_params), sizes, [12, 24, 32, 80, 96, 126, 128]))
    layers = 8 * max(1, round(depth / 8))
    # 12 hidden^2 parameters a layer, and input and output embeddings: a quadratic in hidden.
    a, b = 12 * layers, 2 * VOCABULARY
    hidden = (np.sqrt(b * b + 4 * a * model_params) - b) / (2 * a)
    return ModelShape(layers, float(hidden), float(12 * hidden**2))


@dataclass(frozen=True, slots=True)
class _ParallelismPlan:
    """One configuration per row; every array is (n,)."""

    gpu: GpuSpec
    shape: ModelShape
    n_gpus: float
    seq_len: float
    tp: FloatArray
    pp: FloatArray
    cp: FloatArray
    dp: FloatArray
    micro: FloatArray
    """Sequences of a micro batch."""
    steps: FloatArray
    """Micro batches of a step."""
    interleave: FloatArray
    full: BoolArray
    replicated: BoolArray
    fp8: BoolArray
    recompute: Array

    @property
    def tokens(self) -> FloatArray:
        """Tokens of a micro batch on one rank."""
        return self.micro * self.seq_len / self.cp

    @property
    def stage_layers(self) -> FloatArray:
        chunks = self.pp * self.interleave
        return np.ceil(self.shape.layers / chunks) * self.interleave

    @property
    def rank_params(self) -> FloatArray:
        ends = VOCABULARY * self.shape.hidden * np.where(self.pp > 1, 1.0, 2.0)
        return (self.shape.layer_params * self.stage_layers + ends) / self.tp

    def by_precision(self, table: Mapping[str, float]) -> FloatArray:
        return np.where(self.fp8, table["fp8"], table["bf16"])

    def by_recompute(self, table: Mapping[str, float]) -> FloatArray:
        values = [table[name] for name in RECOMPUTED]
        return np.select([self.recompute == name for name in RECOMPUTED], values)


def measure(context: Mapping[str, Scalar], columns: Columns) -> CostEstimate:
    """Costs of n configurations. Context: gpu, n_gpus, model_params, global_batch, seq_len."""
    plan, failed = _plan(context, columns)
    memory = _memory(plan)
    step = _step_time(plan)
    tokens = number(context, "global_batch") * plan.seq_len
    shape = plan.shape
    flops = 6 * (shape.layers * shape.layer_params + VOCABULARY * shape.hidden)
    flops += 6 * shape.layers * shape.hidden * plan.seq_len
    per_gpu = tokens / step / plan.n_gpus
    return CostEstimate(
        metrics={
            "tokens_per_second_per_gpu": per_gpu,
            "step_time_s": step,
            "peak_memory_gib": memory / GIB,
            "peak_memory_share": memory / plan.gpu.hbm_bytes,
            "mfu": per_gpu * flops / plan.gpu.bf16_flops,
        },
        out_of_memory=(memory > plan.gpu.hbm_bytes) & ~failed,
        failed=failed,
    )


def _plan(context: Mapping[str, Scalar], columns: Columns) -> tuple[_ParallelismPlan, BoolArray]:
    gpu = gpu_named(context.get("gpu"))
    n_gpus = number(context, "n_gpus")
    names = ("tp", "pp", "cp", "micro_batch", "interleave")
    tp, pp, cp, micro, interleave = (np.asarray(columns[name], dtype=float) for name in names)
    fp8 = np.asarray(columns["precision"]) == "fp8"
    sharding = np.asarray(columns["sharding"])
    shape = shape_of(number(context, "model_params"))
    dp = np.floor(n_gpus / (tp * pp * cp))
    steps = number(context, "global_batch") / np.maximum(dp, 1) / micro
    failed = (tp * pp * cp * dp != n_gpus) | (steps != np.floor(steps)) | (steps < 1)
    failed |= (pp * interleave > shape.layers) | (fp8 & (gpu.fp8_flops is None))
    plan = _ParallelismPlan(
        gpu=gpu,
        shape=shape,
        n_gpus=n_gpus,
        seq_len=number(context, "seq_len"),
        tp=tp,
        pp=pp,
        cp=cp,
        dp=np.maximum(dp, 1),
        micro=micro,
        steps=np.maximum(np.floor(steps), 1),
        interleave=interleave,
        full=sharding == "FULL_SHARD",
        replicated=sharding == "NO_SHARD",
        fp8=fp8,
        recompute=np.asarray(columns["recompute"]),
    )
    return plan, failed


def _memory(plan: _ParallelismPlan) -> FloatArray:
    """Peak bytes: of the first stage (most in flight) or of the last (logits)."""
    shards = plan.dp * plan.cp
    params = plan.rank_params
    weights = 2 + np.where(plan.fp8, FP8_WEIGHT_BYTES, 0.0)
    states = np.where(plan.replicated, weights + 16, weights + 4 + 12 / shards)
    states = np.where(plan.full, (weights + 16) / shards, states) * params
    window = np.where(plan.full, 2 * (weights + 2) * plan.shape.layer_params / plan.tp, 0.0)

    per_layer = plan.tokens * plan.shape.hidden / plan.tp
    kept = plan.by_recompute(ACTIVATIONS) * np.where(plan.fp8, FP8_ACTIVATIONS, 1.0) * per_layer
    working = ACTIVATIONS["none"] * per_layer  # of the layer that is being computed again
    in_flight = np.minimum(plan.steps, plan.pp)
    interleaved = 1 + (plan.pp - 1) / (plan.pp * plan.interleave)
    in_flight = in_flight * np.where(plan.interleave > 1, interleaved, 1.0)
    logits = plan.tokens * VOCABULARY / plan.tp * 6
    first = kept * plan.stage_layers * in_flight + np.where(plan.pp > 1, 0.0, logits)
    last = kept * plan.stage_layers + logits
    used = states + window + working + np.maximum(first, last) + RUNTIME_BYTES
    return np.asarray(used / (1 - HBM_LOST), dtype=float)


def _step_time(plan: _ParallelismPlan) -> FloatArray:
    """Seconds of one step over the whole batch."""
    products, attention = _layer_compute(plan)
    tensor = (1 - TENSOR_HIDDEN) * 4 * _tensor_pass(plan)
    ring = _ring(plan)
    attention = attention + np.maximum(ring - RING_HIDDEN * attention, 0.0)
    attention = attention + (plan.cp - 1) * RING_OVERHEAD
    forward = products + attention + tensor + LAYER_OVERHEAD
    backward = 2 * (products + attention) + tensor + LAYER_OVERHEAD
    again = plan.by_recompute(RECOMPUTED) * forward
    head = 3 * _product_time(plan, VOCABULARY * plan.shape.hidden)
    layers = plan.stage_layers
    micro = (forward + backward + again) * layers + head

    hidden = plan.shape.hidden
    crosses = plan.tp * plan.cp * plan.dp >= GPUS_PER_NODE
    hop = send(plan.gpu, 2 * plan.tokens * hidden / plan.tp, crosses)
    micro += np.where(plan.pp > 1, SEND_EXPOSED * 2 * plan.interleave * hop, 0.0)
    bubble = (plan.pp - 1) / plan.interleave
    pipeline = (plan.steps + bubble) * micro

    data = _data_parallel(plan, forward * layers, (backward + again) * layers)
    held = np.where(plan.replicated, plan.rank_params, plan.rank_params / (plan.dp * plan.cp))
    update = held * OPTIMIZER_BYTES / (plan.gpu.hbm_rate * HBM_FRACTION)
    nodes = np.maximum(plan.n_gpus / GPUS_PER_NODE, 1.0)
    late = 1 + STRAGGLER * np.sqrt(2 * np.log(nodes))
    return np.asarray((pipeline + data + update) * late, dtype=float)


def _product_time(plan: _ParallelismPlan, params: float) -> FloatArray:
    """Seconds for one micro batch's tokens to pass ``params`` parameters forward."""
    rows, width = plan.tokens, plan.shape.hidden / plan.tp
    peak = np.where(plan.fp8, plan.gpu.fp8_flops or plan.gpu.bf16_flops, plan.gpu.bf16_flops)
    rate = peak * plan.by_precision(MATMUL_FRACTION)
    rate *= rows / (rows + plan.by_precision(HALF_ROWS))
    rate *= width / (width + plan.by_precision(HALF_WIDTH))
    rate *= plan.shape.hidden / (plan.shape.hidden + HALF_INNER)
    return np.asarray(2 * params * rows / plan.tp / rate, dtype=float)


def _layer_compute(plan: _ParallelismPlan) -> tuple[FloatArray, FloatArray]:
    """Seconds of one layer forward, one micro batch: everything but attention, and attention."""
    hidden = plan.shape.hidden
    elements = plan.by_precision(ELEMENT_BYTES) * plan.tokens * hidden / plan.tp
    products = _product_time(plan, plan.shape.layer_params)
    products += elements / (plan.gpu.hbm_rate * HBM_FRACTION)
    flops = 2 * plan.tokens * plan.seq_len * hidden / plan.tp  # causal: half of 4
    chunk = plan.seq_len / plan.cp
    attention = flops / (plan.gpu.bf16_flops * ATTENTION_FRACTION * chunk / (chunk + HALF_CHUNK))
    return products, attention


def _tensor_pass(plan: _ParallelismPlan) -> FloatArray:
    """Seconds of one all-gather of a micro batch's activations over the tensor group."""
    return all_gather(plan.gpu, group_of(plan.tp), 2 * plan.tokens * plan.shape.hidden)


def _ring(plan: _ParallelismPlan) -> FloatArray:
    """Seconds for keys and values to go once round the context ring, one layer forward."""
    size = 2 * 2 * plan.tokens * plan.shape.hidden * KV_SHARE / plan.tp
    hop = send(plan.gpu, size, plan.tp * plan.cp > GPUS_PER_NODE)
    return np.asarray((plan.cp - 1) * hop, dtype=float)


def _data_parallel(plan: _ParallelismPlan, forward: FloatArray, backward: FloatArray) -> FloatArray:
    """Seconds of gathers and reductions that no compute hides, per step."""
    group = group_of(plan.dp * plan.cp, plan.tp)
    weights = all_gather(plan.gpu, group, 2 * plan.rank_params)
    gradients = all_gather(plan.gpu, group, 4 * plan.rank_params)
    whole = all_reduce(plan.gpu, group, 4 * plan.rank_params)

    def exposed(traffic: FloatArray, compute: FloatArray) -> FloatArray:
        return np.maximum(traffic - DATA_HIDDEN * compute, 0.0)

    replicated = exposed(whole, backward)
    sharded = exposed(gradients, backward) + exposed(weights, forward)
    every = exposed(weights, forward) + exposed(weights + gradients / 2, backward)
    result = np.where(plan.replicated, replicated, np.where(plan.full, plan.steps * every, sharded))
    return np.asarray(result, dtype=float)
