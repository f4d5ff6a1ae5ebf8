"""How long collectives take over two levels of links: NVLink in the node, the network between.

The alpha-beta model (Thakur, Rabenseifner, Gropp 2005: latency per step plus bytes over rate) on
NCCL's algorithms: rings for all-gather and reduce-scatter, the better of ring and double binary
tree for all-reduce, direct sends for all-to-all. Byte counts are those behind the "bus bandwidth"
of nccl-tests (doc/PERFORMANCE.md): a ring moves (g - 1)/g of the data past every rank once for
all-gather and reduce-scatter, twice for all-reduce.

A group of ``ranks`` has ``local`` of its ranks on every node that it touches. Their network cards
work in parallel (NCCL stripes its rings over them), so a node sends and receives at ``local``
cards' rate: a group of whole nodes is about as fast between nodes as inside one, a group with one
rank per node is several times slower. All functions take arrays and broadcast; seconds come out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tunerd.core.arrays import FloatArray
from tunerd.lab.simulation.hardware import GPUS_PER_NODE, GpuSpec

__all__ = ["Number", "ProcessGroup", "all_gather", "all_reduce", "all_to_all", "group_of", "send"]

Number = float | FloatArray

NVLINK_EFFICIENCY = 0.80  # nccl-tests all-reduce on DGX H100 without NVLS: 360 of 450 GB/s
NETWORK_EFFICIENCY = 0.90  # large messages over InfiniBand: 360 of 400 Gb/s
TREE_EFFICIENCY = 0.85  # of a ring's rate: trees leave some links idle at their ends
CONGESTION = 0.025  # of the network's time, per doubling of the nodes (adaptive routing, rails)

LAUNCH = 12e-6  # s, once: kernel launch and stream synchronisation
NVLINK_STEP = 1.0e-6  # s, per ring step inside a node (NCCL's LL128 protocol)
NETWORK_STEP = 6.0e-6  # s, per step between nodes


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The ranks that take part: how many, and how many of them share each node. (n,) or scalar."""

    ranks: Number
    local: Number

    @property
    def nodes(self) -> FloatArray:
        nodes = np.ceil(np.asarray(self.ranks) / np.asarray(self.local))
        return np.asarray(np.maximum(nodes, 1.0), dtype=float)


def group_of(ranks: Number, stride: Number = 1.0) -> ProcessGroup:
    """A group whose ranks are ``stride`` GPUs apart, as parallel dimensions nest (tensor first)."""
    local = np.clip(GPUS_PER_NODE // np.asarray(stride, dtype=float), 1.0, ranks)
    return ProcessGroup(np.asarray(ranks, dtype=float), local)


def all_gather(gpu: GpuSpec, group: ProcessGroup, size: Number) -> FloatArray:
    """Seconds to give every rank all ``size`` bytes; a reduce-scatter takes as long."""
    return _pass(gpu, group, size) + _ring_latency(group)


def all_reduce(gpu: GpuSpec, group: ProcessGroup, size: Number) -> FloatArray:
    """Seconds to sum ``size`` bytes over all ranks, by ring or tree, whichever is faster."""
    moved = 2 * _pass(gpu, group, size)
    ring = moved + 2 * _ring_latency(group)
    depth = 2 * np.ceil(np.log2(group.nodes))
    hops = depth * NETWORK_STEP + 2 * (np.asarray(group.local) - 1) * NVLINK_STEP
    tree = moved / TREE_EFFICIENCY + _alone(group, hops + LAUNCH)
    return np.minimum(ring, tree)


def all_to_all(gpu: GpuSpec, group: ProcessGroup, size: Number) -> FloatArray:
    """Seconds for every rank to send ``size`` bytes, an equal part to each rank."""
    nodes = group.nodes
    outside = np.asarray(size) * (nodes - 1) / nodes / _network_rate(gpu, nodes)
    inside = np.asarray(size) / nodes / (gpu.nvlink_rate * NVLINK_EFFICIENCY)
    return np.maximum(outside, inside) + _alone(group, LAUNCH + (nodes - 1) * NETWORK_STEP / 4)


def send(gpu: GpuSpec, size: Number, crosses: npt.ArrayLike) -> FloatArray:
    """Seconds to send ``size`` bytes to one other rank; ``crosses``: it is in another node."""
    rate = np.where(
        crosses, gpu.network_rate * NETWORK_EFFICIENCY, gpu.nvlink_rate * NVLINK_EFFICIENCY
    )
    step = np.where(crosses, NETWORK_STEP, NVLINK_STEP)
    return np.asarray(size) / rate + step + LAUNCH


def _pass(gpu: GpuSpec, group: ProcessGroup, size: Number) -> FloatArray:
    """Seconds for all bytes to pass every rank once; both levels of links work at the same time."""
    ranks, nodes = np.asarray(group.ranks), group.nodes
    inside = np.asarray(size) * (ranks - 1) / ranks / (gpu.nvlink_rate * NVLINK_EFFICIENCY)
    network = _network_rate(gpu, nodes) * np.asarray(group.local)
    between = np.asarray(size) * (nodes - 1) / nodes / network
    # A group with one rank per node uses no NVLink at all.
    local = np.where(np.asarray(group.local) > 1, inside, 0.0)
    return np.asarray(np.maximum(local, between), dtype=float)


def _network_rate(gpu: GpuSpec, nodes: FloatArray) -> FloatArray:
    return gpu.network_rate * NETWORK_EFFICIENCY / (1 + CONGESTION * np.log2(nodes))


def _ring_latency(group: ProcessGroup) -> FloatArray:
    between = np.where(group.nodes > 1, group.nodes, 0.0)
    inside = np.maximum(np.asarray(group.ranks) - 1 - between, 0.0)
    return _alone(group, LAUNCH + inside * NVLINK_STEP + between * NETWORK_STEP)


def _alone(group: ProcessGroup, seconds: Number) -> FloatArray:
    """Nothing is to be waited for in a group of one."""
    return np.where(np.asarray(group.ranks) > 1, seconds, 0.0)
