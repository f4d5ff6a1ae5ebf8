"""Cost model of an ads recommender trained with layer-wise FSDP (the study of "CubicML" A.2.1).

The model is a DLRM (Naumov et al. 2019; Mudigere et al. 2022, "Software-hardware co-design for
fast and scalable training of deep learning recommendation models"): embedding tables that are
spread over all GPUs, and dense layers that are data parallel, each layer wrapped by FSDP with a
sharding strategy of its own. What a step costs:

* *Dense compute*: 6 FLOPs per parameter and row that passes through it, over peak times an
  efficiency that saturates with the rows of a matrix product. A third forward, two thirds backward.
* *Dense communication* (PyTorch FSDP, Zhao et al. 2023; ZeRO, Rajbhandari et al. 2020, sec. 7):
  ``FULL_SHARD`` gathers parameters for forward and again for backward and reduce-scatters
  gradients; ``SHARD_GRAD_OP`` gathers once; ``NO_SHARD`` all-reduces gradients and gathers nothing.
* *Overlap*: one compute and one communication stream, as FSDP issues them: at most two layers'
  gathers ahead of compute (``limit_all_gathers``), in backward the next gather before the current
  layer's reduction (``BACKWARD_PRE``). So it matters *which* layers gather, not only how many.
* *Optimizer*: reads and writes its states at the speed of memory; a layer that is not sharded
  updates all of its parameters on every GPU.
* *Latency*: a layer stands for several modules that FSDP wraps one by one. A ring over hundreds of
  ranks costs each of them a good part of a millisecond, an all-reduce by tree far less. That is
  why small layers want ``NO_SHARD`` and large ones, where bytes and memory count, do not.
* *Memory*: parameters, gradients and Adagrad's accumulator in fp32 (12 bytes a parameter, accounted
  as in ZeRO, sec. 3), activations, and what is gathered for the moment.
* *Embeddings*: ``hbm_reserved`` of the GPU's memory is kept for everything dense (TorchRec planner:
  storage reservation), the rest caches embedding rows; rows that miss come over PCIe. Row access
  follows a power law, so the cache pays less and less. The pooled rows go through an all-to-all.
* *Table sharding*: ``row_wise_tables`` of the 64 largest tables are spread by rows over all GPUs.
  That balances the load (a table that one GPU holds alone makes all others wait) and costs
  traffic (partial sums instead of finished ones).

The space has the size of the paper's, 3^layers x 65 x 9; what its 65 choices are is ours. Constants
are plausible rather than measured. Those of the model (its size, batch, tables, modules) were set
so that at the demo's contexts communication, compute and memory are all scarce, as on clusters that
people bother to tune; the gain over uniform sharding follows from them and is nowhere written down.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Array, FloatArray
from tunerd.core.observation import Scalar
from tunerd.lab.simulation.collectives import ProcessGroup, all_gather, all_reduce, all_to_all
from tunerd.lab.simulation.cost_model import Columns, CostEstimate, number
from tunerd.lab.simulation.hardware import GIB, GPUS_PER_NODE, GpuSpec, gpu_named

__all__ = ["DenseLayers", "layers_of", "measure"]

# Dense part.
PEAK_FRACTION = 0.55  # of peak, large bf16 matrix products inside a real model
HALF_ROWS = 512.0  # rows of a product at which half of that is reached
ACTIVATION_BYTES = 80e6  # per sample, at REFERENCE_PARAMS; grows with the root of the parameters
REFERENCE_PARAMS = 4e9
CONTENTION = 0.15  # of the overlapped time: NCCL's kernels take processors and memory bandwidth
PARAM_BYTES = 4.0  # fp32 parameters and gradients; autocast makes products bf16
STATE_BYTES = 12.0  # per parameter: itself, its gradient, Adagrad's accumulator
OPTIMIZER_BYTES = 20.0  # per parameter and step: parameter and accumulator in and out, gradient in
OPTIMIZER_RATE = 0.7  # of HBM's rate
HBM_LOST = 0.05  # to fragmentation in the caching allocator
RUNTIME_BYTES = 2.5 * GIB  # CUDA context, NCCL's buffers
STEP_OVERHEAD = 4e-3  # s: data loading hand-over, metrics, Python

# Embeddings.
TABLE_BYTES_PER_DENSE_PARAM = 1600.0  # 4e9 dense parameters beside 6.4 TB of tables
FEATURES = 800
ROW_BYTES = 256.0  # 128 fp16 values
POOLING = 20.0  # rows that are summed per feature and sample
UNIQUE = 0.6  # of a batch's rows are distinct (deduplicated before they move)
SKEW = 0.40  # hit rate = cached share ** SKEW: power-law access (Gupta et al. 2020)
HOST_EFFICIENCY = 0.25  # of PCIe's rate, scattered rows through unified memory
HIDDEN_MISSES = 0.5  # share of a miss's time that the prefetching pipeline hides
LOOKUP_EFFICIENCY = 0.4  # of HBM's rate, scattered rows
TABLE_SKEW = 0.75  # load of the n-th largest table ~ n ** -TABLE_SKEW
ROW_WISE_TABLES = 40  # where nobody tunes them: the hand sweep's choice
ROW_WISE_TRAFFIC = 3.0  # traffic of a row-wise table, in units of the same table held whole


@dataclass(frozen=True, slots=True)
class DenseLayers:
    """The dense layers, in forward order; each array is (layers,)."""

    params: FloatArray
    rows: FloatArray
    """Rows per sample that pass through the layer's matrices (sequence and field layers: many)."""
    activations: FloatArray
    """Bytes per sample, kept from forward to backward."""
    units: FloatArray
    """Modules that FSDP wraps on their own: each gathers and reduces by itself."""


# Eight groups of layers: share of the parameters, rows per sample, share of the activations, units.
_GROUPS = np.array(
    [
        (0.02, 1.0, 0.03, 4),  # dense features' MLP
        (0.24, 1.0, 0.10, 3),  # projection of all pooled embeddings: wide, cheap to compute
        (0.04, 8.0, 0.18, 10),  # field interaction
        (0.06, 12.0, 0.26, 12),  # attention over the user's history
        (0.22, 2.0, 0.12, 6),  # DHEN layer: interaction beside MLP
        (0.05, 6.0, 0.16, 12),  # DHEN layer: attention beside convolution
        (0.30, 1.0, 0.09, 3),  # over-arch, wide
        (0.07, 1.0, 0.06, 24),  # task towers: many, small
    ]
)


def layers_of(dense_params: float, count: int) -> DenseLayers:
    """The dense model cut into ``count`` layers: the same eight groups, cut finer or coarser."""
    # A layer takes the groups that it covers; neighbours inside a group differ a little in size,
    # or a finer cut would only be eight layers repeated.
    fine = 48 * count
    place = (np.arange(fine) + 0.5) / fine
    group = np.minimum((place * len(_GROUPS)).astype(int), len(_GROUPS) - 1)
    layer = np.minimum((place * count).astype(int), count - 1)
    ripple = 1 + (0.5 * np.sin(2.4 * layer) if count > len(_GROUPS) else 0.0)
    share, rows, kept, units = (_GROUPS[group, i] for i in range(4))
    params = np.bincount(layer, share * ripple, count)
    activations = np.bincount(layer, kept * ripple, count)
    per_sample = ACTIVATION_BYTES * np.sqrt(dense_params / REFERENCE_PARAMS)
    return DenseLayers(
        params=dense_params * params / params.sum(),
        rows=np.bincount(layer, share * ripple * rows, count) / params,
        activations=per_sample * activations / activations.sum(),
        units=np.maximum(np.bincount(layer, units, count) * len(_GROUPS) / fine, 1.0),
    )


def measure(context: Mapping[str, Scalar], columns: Columns) -> CostEstimate:
    """Costs of n configurations.

    Context: gpu, n_gpus, dense_params, global_batch (samples). With a parameter ``local_batch``
    (samples of a GPU, as in the paper) there is no global batch. Without ``row_wise_tables`` a
    person's choice of them stands.
    """
    gpu = gpu_named(context.get("gpu"))
    n_gpus = number(context, "n_gpus")
    samples: float | FloatArray
    if "local_batch" in columns:
        samples = np.asarray(columns["local_batch"], dtype=float)
    else:
        samples = number(context, "global_batch") / n_gpus
    # Row after row in memory, or sums over layers would round by the layout of what came in.
    strategy = np.ascontiguousarray(columns["sharding"])
    layers = layers_of(number(context, "dense_params"), strategy.shape[1])
    group = ProcessGroup(n_gpus, min(n_gpus, float(GPUS_PER_NODE)))
    full, replicated = strategy == "FULL_SHARD", strategy == "NO_SHARD"
    reserved = np.asarray(columns["hbm_reserved"], dtype=float)
    row_wise = np.asarray(columns.get("row_wise_tables", np.full(len(reserved), ROW_WISE_TABLES)))

    memory = _dense_memory(layers, full, replicated, n_gpus, samples)
    lookup, exchange = _embeddings(
        gpu, group, number(context, "dense_params"), samples, reserved, row_wise
    )
    timeline = _timeline(gpu, group, layers, full, replicated, samples, lookup, exchange)
    held = np.where(replicated, layers.params, layers.params / n_gpus).sum(axis=1)
    update = held * OPTIMIZER_BYTES / (gpu.hbm_rate * OPTIMIZER_RATE)
    step = timeline + update + STEP_OVERHEAD
    return CostEstimate(
        metrics={
            "qps": samples * n_gpus / step,
            "step_time_s": step,
            "peak_memory_gib": memory / GIB,
            "peak_memory_share": memory / gpu.hbm_bytes,
        },
        out_of_memory=memory > gpu.hbm_bytes * reserved,
        failed=np.zeros(len(step), dtype=bool),
    )


def _dense_memory(
    layers: DenseLayers, full: Array, replicated: Array, n_gpus: float, samples: float | FloatArray
) -> FloatArray:
    """Peak bytes of everything but embeddings, at the start of backward."""
    params = layers.params
    states = STATE_BYTES * np.where(replicated, params, params / n_gpus)
    weights = np.where(full | replicated, 0.0, PARAM_BYTES * params)
    # Two gathered units at a time, and the gradients of one before they are reduced.
    unit = PARAM_BYTES * params / layers.units
    window = 2 * np.where(full, unit, 0.0).max(axis=1) + np.where(replicated, 0.0, unit).max(axis=1)
    used = (states + weights).sum(axis=1) + window
    used += layers.activations.sum() * samples + RUNTIME_BYTES
    return np.asarray(used / (1 - HBM_LOST), dtype=float)


def _embeddings(
    gpu: GpuSpec,
    group: ProcessGroup,
    dense_params: float,
    samples: float | FloatArray,
    reserved: FloatArray,
    row_wise: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Seconds to look the rows up (misses included), and to exchange them, one way."""
    rows = samples * FEATURES * POOLING * ROW_BYTES
    n_gpus = float(np.asarray(group.ranks))
    cache = (1 - reserved) * gpu.hbm_bytes
    cached = np.minimum(cache / (TABLE_BYTES_PER_DENSE_PARAM * dense_params / n_gpus), 1.0)
    missed = (1 - cached**SKEW) * rows * UNIQUE * (1 - HIDDEN_MISSES)
    # The GPU with the largest table that is not spread works longest; the planner packs the rest
    # evenly around it.
    load = np.arange(1, FEATURES + 1) ** -TABLE_SKEW
    load = np.append(load / load.sum(), 0.0)
    slowest = np.maximum(1.0, load[row_wise.astype(int)] * n_gpus)
    lookup = slowest * rows / (gpu.hbm_rate * LOOKUP_EFFICIENCY)
    lookup += missed / (gpu.host_rate * HOST_EFFICIENCY)
    traffic = 1 + (ROW_WISE_TRAFFIC - 1) * row_wise / FEATURES
    # What the busiest GPU sends holds everyone up as well; half of it overlaps with the others'.
    pooled = samples * FEATURES * ROW_BYTES * traffic * (1 + slowest) / 2
    return np.asarray(lookup, dtype=float), all_to_all(gpu, group, pooled)


def _timeline(
    gpu: GpuSpec,
    group: ProcessGroup,
    layers: DenseLayers,
    full: Array,
    replicated: Array,
    samples: float | FloatArray,
    lookup: FloatArray,
    exchange: FloatArray,
) -> FloatArray:
    """Seconds from the first lookup to the last gradient: two streams, layer by layer."""
    rows = np.multiply.outer(samples, layers.rows)  # (layers,) or, where it is tuned, (n, layers)
    rate = gpu.bf16_flops * PEAK_FRACTION * rows / (rows + HALF_ROWS)
    forward = 2 * layers.params * rows / rate
    unit = PARAM_BYTES * layers.params / layers.units
    shards = layers.units * all_gather(gpu, group, unit)
    gather = np.where(replicated, 0.0, shards)
    regather = np.where(full, shards, 0.0)
    reduce = np.where(replicated, layers.units * all_reduce(gpu, group, unit), shards)
    last = len(layers.params) - 1

    compute, network = lookup, lookup + exchange  # when each stream is free
    arrived, done = network, [compute, compute]
    for i in range(last + 1):
        network = np.where(replicated[:, i], network, np.maximum(network, done[-2]) + gather[:, i])
        ready = np.where(replicated[:, i], compute, np.maximum(compute, network))
        if i == 1:  # the first layer reads dense features, all others the embeddings too
            ready = np.maximum(ready, arrived)
        compute = ready + forward[..., i]
        done.append(compute)

    network = np.maximum(network, compute) + regather[:, last]
    gathered = network
    for i in range(last, -1, -1):
        start = np.where(full[:, i], np.maximum(compute, gathered), compute)
        if i > 0:
            network = np.where(
                full[:, i - 1], np.maximum(network, start) + regather[:, i - 1], network
            )
            gathered = network
        compute = start + 2 * forward[..., i]
        network = np.maximum(network, compute) + reduce[:, i]
        if i == 1:  # gradients of the embeddings go back
            network = network + exchange
    end = np.maximum(compute, network)
    busy = gather.sum(axis=1) + regather.sum(axis=1) + reduce.sum(axis=1) + 2 * exchange
    overlapped = np.maximum(lookup + 3 * forward.sum(axis=-1) + busy - end, 0.0)
    return np.asarray(end + CONTENTION * overlapped, dtype=float)
