"""The alpha-beta model agrees with what is known of NCCL on two levels of links."""

import numpy as np
import pytest

from tunerd.lab.simulation.collectives import (
    ProcessGroup,
    all_gather,
    all_reduce,
    all_to_all,
    group_of,
    send,
)
from tunerd.lab.simulation.hardware import GPUS, GPUS_PER_NODE, gpu_named

H100 = GPUS["H100"]
MIB = 2.0**20


def test_a_group_of_one_waits_for_nothing() -> None:
    alone = group_of(1)
    for collective in (all_gather, all_reduce, all_to_all):
        assert collective(H100, alone, 64 * MIB) == pytest.approx(0.0, abs=3e-4)
    assert float(all_gather(H100, alone, 1e9)) == 0.0
    assert float(all_reduce(H100, alone, 1e9)) == 0.0


def test_large_all_reduce_reaches_the_bus_bandwidth_that_nccl_tests_report() -> None:
    size, ranks = 4e9, 8
    seconds = float(all_reduce(H100, group_of(ranks), size))
    bus_bandwidth = size / seconds * 2 * (ranks - 1) / ranks
    assert 330e9 < bus_bandwidth < 450e9  # DGX H100, one node: about 360 without in-switch sums


def test_nvlink_beats_the_network() -> None:
    inside = all_gather(H100, ProcessGroup(4.0, 4.0), 256 * MIB)
    between = all_gather(H100, ProcessGroup(4.0, 1.0), 256 * MIB)
    assert between > 5 * inside


def test_whole_nodes_use_all_their_network_cards() -> None:
    striped = all_gather(H100, ProcessGroup(16.0, 8.0), 1e9)
    single = all_gather(H100, ProcessGroup(2.0, 1.0), 1e9)
    assert striped < single


def test_all_reduce_moves_twice_what_all_gather_moves() -> None:
    group = group_of(64)
    ratio = all_reduce(H100, group, 8e9) / all_gather(H100, group, 8e9)
    assert ratio == pytest.approx(2.0, rel=0.01)


def test_a_tree_saves_latency_on_many_ranks() -> None:
    group = group_of(512)
    small = 64 * 1024.0
    assert all_reduce(H100, group, small) < all_gather(H100, group, small)


def test_latency_grows_with_ranks_and_time_with_bytes() -> None:
    ranks = np.array([8.0, 16.0, 64.0, 512.0, 4096.0])
    for collective in (all_gather, all_reduce, all_to_all):
        assert (np.diff(collective(H100, group_of(ranks), 1024.0)) > 0).all()
        sizes = np.array([1e3, 1e6, 1e9])
        assert (np.diff(collective(H100, group_of(64), sizes)) > 0).all()


def test_a_stride_spreads_a_group_over_nodes() -> None:
    assert float(np.asarray(group_of(8, 1).local)) == GPUS_PER_NODE
    assert float(np.asarray(group_of(8, 8).local)) == 1
    assert group_of(8, 8).nodes == 8
    assert group_of(8, 2).nodes == 2


def test_sending_across_nodes_is_slower() -> None:
    assert send(H100, 64 * MIB, True) > 5 * send(H100, 64 * MIB, False)


def test_unknown_hardware_is_named() -> None:
    with pytest.raises(ValueError, match=r"TPU.*H100"):
        gpu_named("TPU")
