"""A node that stands still as a whole, as a paused or live-migrated virtual machine does."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.launchers.host import Host, Hosts
from hanglab.harness.system.cgroups import group_folder


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
        self._folder, self._version = group_folder("freezer", host.pid)

    def struck(self) -> Reading:
        state = self._state()
        return Reading(state == "frozen", f"the freezer says {state}", {"freezer": state})

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        state = self._state()
        return Reading(state == "thawed", f"the freezer says {state}", {"freezer": state})

    def _state(self) -> str:
        if self._version == 1:
            return (self._folder / "freezer.state").read_text().strip().lower()
        events = (self._folder / "cgroup.events").read_text().split("\n")
        return "frozen" if "frozen 1" in events else "thawed"
