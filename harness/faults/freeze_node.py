"""A node that stands still as a whole, as a paused or live-migrated virtual machine does."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts
from hanglab.recorder.system.cgroups import freezer_state, group_of


@dataclass(frozen=True, kw_only=True)
class FreezeNode(HostFault):
    """Pauses the container: no process in it runs, the recorder's agent included."""

    def strike_host(self, hosts: Hosts) -> Undo:
        host = hosts.of_rank(self.rank)
        host.pause()
        return host.resume

    def probe(self, hosts: Hosts) -> FreezerProbe:
        return FreezerProbe(hosts.of_rank(self.rank))


class FreezerProbe:
    """The kernel's freezer, by its own file: another was asked to pause the host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._group = group_of("freezer", host.pid)

    def struck(self) -> Reading:
        state = freezer_state(self._group)
        return Reading(state == "frozen", f"the freezer says {state}", {"freezer": state})

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        state = freezer_state(self._group)
        return Reading(state == "thawed", f"the freezer says {state}", {"freezer": state})
