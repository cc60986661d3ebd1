"""The GPUs that this process may use, and leases on them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.leases.folder import leases_folder
from hanglab.harness.leases.machine import Closeness, Gpu, GpuInventory, read_machine
from hanglab.harness.leases.pool import LeasePool, ResourceKind

GPU = ResourceKind("gpu", "GPU", "GPUs")

#: With more free GPUs than this, neighbours are picked step by step and not by trying all sets.
_EXHAUSTIVE = 10


@dataclass(frozen=True)
class Device:
    """One place in the list of visible devices."""

    #: As CUDA_VISIBLE_DEVICES calls it.
    token: str
    #: None where NVML does not tell which GPU is meant.
    gpu: Gpu | None

    @property
    def key(self) -> str:
        """Name of this GPU, equal for everybody on the machine."""
        return self.gpu.uuid if self.gpu is not None else f"visible-{self.token}"


def visible_devices(machine: GpuInventory, environment: Mapping[str, str]) -> list[Device]:
    """GPUs that CUDA would show: the outer CUDA_VISIBLE_DEVICES, or else all.

    As CUDA does, an entry that means no GPU ends the list.  Places in the list
    are what ranks call their devices.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [Device(gpu.uuid, gpu) for gpu in machine.gpus]
    devices: list[Device] = []
    for token in (word.strip() for word in listed.split(",")):
        device = _device(token, machine, environment)
        if device is None or any(device.key == other.key for other in devices):
            break
        devices.append(device)
    return devices


def _device(token: str, machine: GpuInventory, environment: Mapping[str, str]) -> Device | None:
    if token.isdecimal():
        whole = {gpu.index: gpu for gpu in machine.gpus if not gpu.uuid.startswith("MIG-")}
        if machine.gpus and int(token) not in whole:
            return None
        # CUDA counts the fastest first unless told otherwise, NVML by the bus.
        by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        if by_bus or len({gpu.name for gpu in machine.gpus}) == 1:
            return Device(token, whole.get(int(token)))
        return Device(token, None)
    if not re.match(r"(GPU|MIG)-", token):
        return None
    meant = [gpu for gpu in machine.gpus if gpu.uuid.startswith(token)]
    if machine.gpus and len(meant) != 1:
        return None
    return Device(token, meant[0] if meant else None)


class GpuPool:
    """Leases on visible GPUs; those that are leased together are neighbours where possible."""

    def __init__(
        self,
        machine: GpuInventory | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.machine = machine if machine is not None else read_machine()
        outer = os.environ if environment is None else environment
        self.outer = outer.get("CUDA_VISIBLE_DEVICES")
        self.devices = visible_devices(self.machine, outer)
        self._by_key = {device.key: device for device in self.devices}
        self.pool = LeasePool(
            folder if folder is not None else leases_folder(),
            GPU,
            [device.key for device in self.devices],
            self._choose,
        )

    def __len__(self) -> int:
        return len(self.devices)

    def tokens(self, keys: Sequence[str]) -> list[str]:
        """Value of CUDA_VISIBLE_DEVICES that shows these GPUs, in the outer order."""
        wanted = set(keys)
        return [device.token for device in self.devices if device.key in wanted]

    def describe(self) -> str:
        where = "all GPUs" if self.outer is None else f"CUDA_VISIBLE_DEVICES={self.outer}"
        return f"{GPU.count(len(self))} ({where})"

    def _choose(self, free: Sequence[str], count: int) -> Sequence[str] | None:
        if len(free) < count:
            return None
        if count < 2:
            return self._least_connected(free)[:count]
        if len(free) <= _EXHAUSTIVE:
            return max(itertools.combinations(free, count), key=self._nearness)
        grown = [self._grow(start, free, count) for start in free]
        return max(grown, key=self._nearness)

    def _nearness(self, keys: Sequence[str]) -> tuple[int, int]:
        """The worst link counts first: a ring is as fast as that one."""
        links = [self.machine.closeness(a, b) for a, b in itertools.combinations(keys, 2)]
        return min(links), sum(links)

    def _grow(self, start: str, free: Sequence[str], count: int) -> list[str]:
        grown = [start]
        while len(grown) < count:
            rest = [key for key in free if key not in grown]
            grown.append(max(rest, key=lambda key: self._nearness([*grown, key])))
        return grown

    def _least_connected(self, free: Sequence[str]) -> list[str]:
        """A single GPU is taken where it spoils no pair for the next who wants one."""

        def bound(key: str) -> int:
            links: list[Closeness] = [
                self.machine.closeness(key, other) for other in free if other != key
            ]
            return max(links, default=Closeness.FAR)

        return sorted(free, key=bound)


__all__ = ["Device", "GpuPool", "visible_devices"]
