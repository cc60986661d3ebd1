"""A processor quota of a node that is drawn tighter while the job runs."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts
from hanglab.recorder.system.cgroups import cpu_group, group_of

#: Periods in which the quota was used up: fewer may be a start that took long.
_FEWEST = 3


@dataclass(frozen=True, kw_only=True)
class NodeCpu(HostFault):
    """From now on the node gets ``cpus`` processors' worth of time, a fraction or more."""

    cpus: float

    def strike_host(self, hosts: Hosts) -> Undo:
        host = hosts.of_rank(self.rank)
        host.limit_cpus(self.cpus)
        return lambda: host.limit_cpus(None)

    def probe(self, hosts: Hosts) -> QuotaProbe:
        return QuotaProbe(hosts.of_rank(self.rank))


class QuotaProbe:
    """The kernel's count of periods in which the host was held off the processor."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._level = group_of("cpu", host.pid)
        self._before = self._throttled()

    def struck(self) -> Reading:
        periods = self._throttled() - self._before
        return Reading(
            periods >= _FEWEST,
            f"the quota was used up in {periods} periods",
            {"throttled_periods": periods, "quota": self._quota()},
        )

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        quota = self._quota()
        return Reading(quota is None, f"the quota is {quota} processors", {"quota": quota})

    def _throttled(self) -> int:
        group = cpu_group(self._level, [])
        return group.throttled_periods if group else 0

    def _quota(self) -> float | None:
        group = cpu_group(self._level, [])
        return group.quota_cpus if group else None
