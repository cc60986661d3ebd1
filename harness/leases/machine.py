"""The GPUs of this machine and how they are connected, by NVML."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Closeness(IntEnum):
    """Closeness of two GPUs; more is nearer."""

    FAR = 0
    SAME_NUMA_NODE = 1
    SAME_SWITCH = 2
    NVLINK = 3


@dataclass(frozen=True)
class Gpu:
    """A GPU, or an instance of one that MIG divided."""

    #: NVML's number, which follows the PCI bus.
    index: int
    #: ``GPU-...`` or ``MIG-...``.
    uuid: str
    name: str
    memory_bytes: int = 0


@dataclass(frozen=True)
class GpuInventory:
    """GPUs by NVML.  ``problem`` says why it knows none."""

    gpus: tuple[Gpu, ...] = ()
    #: Of two UUIDs, in either order; pairs that are not there are far.
    links: Mapping[tuple[str, str], Closeness] = field(default_factory=dict)
    problem: str = ""

    def closeness(self, one: str, other: str) -> Closeness:
        return self.links.get((one, other), self.links.get((other, one), Closeness.FAR))


@functools.cache
def read_machine() -> GpuInventory:
    """Asks NVML, once per process.  Never raises: ``problem`` says why there are no GPUs."""
    try:
        import pynvml
    except ImportError:
        return GpuInventory(problem="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as failure:
        return GpuInventory(problem=f"NVML: {failure}")
    try:
        return _read(pynvml)
    except pynvml.NVMLError as failure:
        return GpuInventory(problem=f"NVML: {failure}")
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any) -> GpuInventory:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    parts = [list(_parts(nvml, index, handle)) for index, handle in enumerate(handles)]
    links: dict[tuple[str, str], Closeness] = {}
    for i, one in enumerate(handles):
        for j in range(i + 1, len(handles)):
            near = _closeness(nvml, one, handles[j])
            links.update({(a.uuid, b.uuid): near for a in parts[i] for b in parts[j]})
    gpus = tuple(gpu for group in parts for gpu in group)
    return GpuInventory(gpus, links, "" if gpus else "NVML knows of no GPU")


def _parts(nvml: Any, index: int, handle: Any) -> Iterator[Gpu]:
    """The GPU, or its instances where MIG divides it."""
    name = _text(nvml.nvmlDeviceGetName(handle))
    instances: list[Any] = []
    with contextlib.suppress(nvml.NVMLError):
        if nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with contextlib.suppress(nvml.NVMLError):
                    instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    for device in instances or [handle]:
        memory = 0
        with contextlib.suppress(nvml.NVMLError):
            memory = int(nvml.nvmlDeviceGetMemoryInfo(device).total)
        yield Gpu(index, _text(nvml.nvmlDeviceGetUUID(device)), name, memory)


def _closeness(nvml: Any, one: Any, other: Any) -> Closeness:
    with contextlib.suppress(nvml.NVMLError):
        linked = nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if linked == nvml.NVML_P2P_STATUS_OK:
            return Closeness.NVLINK
    with contextlib.suppress(nvml.NVMLError):
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
        if level <= nvml.NVML_TOPOLOGY_MULTIPLE:
            return Closeness.SAME_SWITCH
        if level <= nvml.NVML_TOPOLOGY_NODE:
            return Closeness.SAME_NUMA_NODE
    return Closeness.FAR


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
