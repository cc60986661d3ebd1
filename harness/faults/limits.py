"""Limits that a rank finds itself under, as in a container that was made too small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from hanglab.harness.faults.fault import Fault
from hanglab.harness.system.cgroups import Group, make

#: Microseconds of a period of the processor's quota; the kernel's own default.
_PERIOD_US = 100_000


@dataclass(frozen=True, kw_only=True)
class LimitFault(Fault):
    """A fault that puts the rank, and what it starts later, into a control group."""

    controller: ClassVar[str]

    def files(self, version: int) -> dict[str, str]:
        """Files of the group and what to write into them."""
        raise NotImplementedError

    def strike(self, pid: int) -> Callable[[], None]:
        group: Group = make(self.controller, pid)
        try:
            for name, value in self.files(group.version).items():
                group.set(name, value)
            group.add(pid)
        except OSError:
            group.remove()
            raise
        return group.remove


@dataclass(frozen=True, kw_only=True)
class LimitMemory(LimitFault):
    """From now on the rank may allocate no more than ``mebibytes``; what it has stays its own."""

    mebibytes: int
    controller = "memory"
    needs = "cgroup_memory"

    def files(self, version: int) -> dict[str, str]:
        name = "memory.limit_in_bytes" if version == 1 else "memory.max"
        return {name: str(self.mebibytes << 20)}


@dataclass(frozen=True, kw_only=True)
class LimitCpu(LimitFault):
    """From now on the rank gets ``cpus`` processors' worth of time, a fraction or more."""

    cpus: float
    controller = "cpu"
    needs = "cgroup_cpu"

    def files(self, version: int) -> dict[str, str]:
        quota = str(int(self.cpus * _PERIOD_US))
        if version == 1:
            return {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota}
        return {"cpu.max": f"{quota} {_PERIOD_US}"}


@dataclass(frozen=True, kw_only=True)
class LimitTasks(LimitFault):
    """From now on the rank may have no more than ``tasks`` processes and threads in all."""

    tasks: int
    controller = "pids"
    needs = "cgroup_pids"

    def files(self, version: int) -> dict[str, str]:
        return {"pids.max": str(self.tasks)}
