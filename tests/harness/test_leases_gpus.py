"""GPU leases over machines that are made up: this one stands in for NVML's answers.

No test here says anything about NVML itself; `docs/gpu.md` says what has been run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import pytest

from hanglab.harness.leases.gpus import GpuPool, visible_devices
from hanglab.harness.leases.machine import Closeness, Gpu, GpuInventory, read_machine
from hanglab.harness.leases.pool import PoolTooSmall


def machine(pairs: int, name: str = "H100") -> GpuInventory:
    """GPUs 0 and 1 by NVLink, 2 and 3 ...; all of the first half on one NUMA node."""
    gpus = [Gpu(i, f"GPU-{i:04x}-{i}", name) for i in range(2 * pairs)]
    links = {}
    for a, b in combinations(gpus, 2):
        if a.index // 2 == b.index // 2:
            links[b.uuid, a.uuid] = Closeness.NVLINK
        elif a.index // pairs == b.index // pairs:
            links[a.uuid, b.uuid] = Closeness.SAME_NUMA_NODE
    return GpuInventory(tuple(gpus), links)


@pytest.mark.parametrize(
    "environment, tokens",
    [
        ({}, ["GPU-0000-0", "GPU-0001-1", "GPU-0002-2", "GPU-0003-3"]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["2", "0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "1,7,2"}, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0002, GPU-0001-1"}, ["GPU-0002", "GPU-0001-1"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00"}, []),
        ({"CUDA_VISIBLE_DEVICES": "1,GPU-0001-1,2"}, ["1"]),
    ],
)
def test_devices_are_those_that_cuda_would_show(
    environment: Mapping[str, str], tokens: list[str]
) -> None:
    assert [device.token for device in visible_devices(machine(2), environment)] == tokens


def test_one_gpu_has_one_key_however_it_is_called() -> None:
    by_number = visible_devices(machine(2), {"CUDA_VISIBLE_DEVICES": "3"})
    by_name = visible_devices(machine(2), {"CUDA_VISIBLE_DEVICES": "GPU-0003"})
    assert by_number[0].key == by_name[0].key == "GPU-0003-3"


def test_numbers_are_not_taken_for_the_bus_order_where_gpus_differ() -> None:
    gpus = (Gpu(0, "GPU-a", "L4"), Gpu(1, "GPU-b", "H100"))
    outer = {"CUDA_VISIBLE_DEVICES": "1"}
    (device,) = visible_devices(GpuInventory(gpus), outer)
    assert device.gpu is None
    (device,) = visible_devices(GpuInventory(gpus), {**outer, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert device.gpu == gpus[1]


def test_mig_instances_are_devices_of_their_own() -> None:
    parts = tuple(Gpu(0, f"MIG-{letter}", "H100") for letter in "abc")
    assert [d.token for d in visible_devices(GpuInventory(parts), {})] == [
        "MIG-a",
        "MIG-b",
        "MIG-c",
    ]
    chosen = visible_devices(GpuInventory(parts), {"CUDA_VISIBLE_DEVICES": "MIG-c,MIG-a"})
    assert [d.key for d in chosen] == ["MIG-c", "MIG-a"]


def test_without_nvml_the_outer_list_is_believed() -> None:
    devices = visible_devices(GpuInventory(problem="no NVML"), {"CUDA_VISIBLE_DEVICES": "0,GPU-x"})
    assert [device.key for device in devices] == ["visible-0", "visible-GPU-x"]


def test_leased_gpus_are_neighbours_and_named_as_outside(tmp_path: Path) -> None:
    pool = GpuPool(machine(4), {"CUDA_VISIBLE_DEVICES": "7,5,4,0,6,1"}, tmp_path)
    stop = threading.Event()
    with pool.pool.lease(2, stop) as first:
        assert first is not None
        assert sorted(pool.tokens(first)) in (["6", "7"], ["4", "5"], ["0", "1"])
        with pool.pool.lease(2, stop) as second:
            assert second is not None
            assert sorted(pool.tokens(second)) in (["6", "7"], ["4", "5"], ["0", "1"])
            assert not set(first) & set(second)
    with pool.pool.lease(4, stop) as half:
        assert half is not None
        assert pool.tokens(half) == ["7", "5", "4", "6"]


def test_a_single_gpu_is_taken_where_it_splits_no_pair(tmp_path: Path) -> None:
    pool = GpuPool(machine(2), {"CUDA_VISIBLE_DEVICES": "0,1,2"}, tmp_path)
    with pool.pool.lease(1, threading.Event()) as names:
        assert names is not None
        assert pool.tokens(names) == ["2"]


def test_neighbours_are_found_among_many(tmp_path: Path) -> None:
    pool = GpuPool(machine(8), {}, tmp_path)
    stop = threading.Event()
    with pool.pool.lease(1, stop) as one, pool.pool.lease(2, stop) as two:
        assert one is not None
        assert two is not None
        assert pool.machine.closeness(*two) is Closeness.NVLINK
        assert not set(one) & set(two)


def test_more_gpus_than_visible_are_refused(tmp_path: Path) -> None:
    pool = GpuPool(machine(4), {"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path)
    assert pool.describe() == "2 GPUs (CUDA_VISIBLE_DEVICES=0,1)"
    refused = pytest.raises(PoolTooSmall, match="4 GPUs asked for, but the pool has 2")
    with refused, pool.pool.lease(4, threading.Event()):
        pass


def test_reading_this_machine_gives_gpus_or_the_reason() -> None:
    found = read_machine()
    assert bool(found.gpus) != bool(found.problem)
