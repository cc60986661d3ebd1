"""Resources of a job while it runs: a slot, on NCCL its GPUs, and a port of NCCL's RAS service."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from hanglab.harness.jobs.run import RunRequest
from hanglab.harness.launchers.environment import nccl_environment
from hanglab.harness.leases.gpus import GPU, GpuPool
from hanglab.harness.leases.pool import LeasePool, PoolTooSmall
from hanglab.harness.leases.ports import port_pool
from hanglab.harness.leases.slots import CpuSlots
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.recorder.case.backends import backend_of


class Allotment:
    """Leases for jobs, from pools that all of hanglab on this machine share."""

    def __init__(self, folder: Path | None = None, gpus: GpuPool | None = None) -> None:
        self._folder = folder
        self._given = gpus

    @cached_property
    def gpus(self) -> GpuPool:
        return self._given if self._given is not None else GpuPool(folder=self._folder)

    @cached_property
    def _ports(self) -> LeasePool:
        return port_pool(self._folder)

    @cached_property
    def _slots(self) -> CpuSlots:
        return CpuSlots(self._folder)

    @contextlib.contextmanager
    def lease(
        self,
        request: RunRequest,
        stop: threading.Event,
        tell: Callable[[str], None] = lambda reason: None,
    ) -> Iterator[dict[str, str] | None]:
        """Holds what the job needs and gives what its environment must say of it.

        None where ``stop`` was set before all was free.  The order, GPUs before
        port before slot, is the same for everybody, so nobody waits in a circle.
        Raises PoolTooSmall, and OSError.
        """
        with contextlib.ExitStack() as held:
            environment: dict[str, str] = {}
            if least_gpus(request.scenario, request.backend):
                count = gpus_of(
                    request.scenario, request.backend, request.world_size, len(self.gpus)
                )
                keys = held.enter_context(
                    self.gpus.pool.lease(count, stop, tell, request.title),
                )
                ports = keys and held.enter_context(
                    self._ports.lease(1, stop, tell, request.title),
                )
                if not keys or not ports:
                    yield None
                    return
                devices = self.gpus.tokens(keys)
                environment = nccl_environment(devices, request.world_size, int(ports[0]))
            elif backend_of(request.backend).emulated:
                ports = held.enter_context(self._ports.lease(1, stop, tell, request.title))
                if not ports:
                    yield None
                    return
                environment = {"NCCL_RAS_ADDR": f"127.0.0.1:{ports[0]}"}
            slot = held.enter_context(self._slots.lease(stop, tell, request.title))
            yield None if slot is None else environment

    def refusal(self, scenario: Scenario, backend: str) -> str | None:
        """The reason that this machine has too few GPUs for it, or None.

        Raises PoolTooSmall where the machine has the GPUs and may not use them.
        """
        needed = least_gpus(scenario, backend)
        if needed == 0 or needed <= len(self.gpus):
            return None
        there = len(self.gpus.machine.gpus)
        if needed > there:
            why = f" ({self.gpus.machine.problem})" if not there else ""
            return f"needs {GPU.count(needed)}, this machine has {there}{why}"
        raise PoolTooSmall(
            f"{scenario.name} asks for {GPU.count(needed)}, but the pool has "
            f"{self.gpus.describe()} of the {there} on this machine.",
            "Let CUDA_VISIBLE_DEVICES list more of them, or leave the scenario out.",
        )


def least_gpus(scenario: Scenario, backend: str) -> int:
    """The fewest GPUs that it can run with."""
    if backend_of(backend).emulated:
        return 0
    if backend_of(backend).needs_gpu or "gpu" in scenario.needs:
        return max(scenario.gpus, 1)
    return 0


def gpus_of(scenario: Scenario, backend: str, world_size: int, pool: int) -> int:
    """GPUs that a job leases: one for each rank, or as few as possible where that is too many."""
    least = least_gpus(scenario, backend)
    if backend_of(backend).needs_gpu and world_size <= pool:
        return max(least, world_size)
    return least


__all__ = ["Allotment", "gpus_of", "least_gpus"]
