"""A limit of processes and threads that a node runs into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts
from hanglab.recorder.system.cgroups import group_of, pids_group, refused_tasks


@dataclass(frozen=True, kw_only=True)
class NodeTasks(HostFault):
    """From now on the node may have only ``spare`` more processes and threads than it has."""

    spare: int
    needs = "outside_processes"

    def strike_host(self, hosts: Hosts) -> Undo:
        folder = Path(group_of("pids", hosts.of_rank(self.rank).pid).folder)

        def lift() -> None:
            if folder.exists():
                (folder / "pids.max").write_text("max")

        used = int((folder / "pids.current").read_text())
        (folder / "pids.max").write_text(str(used + self.spare))
        return lift

    def probe(self, hosts: Hosts) -> TasksProbe:
        return TasksProbe(hosts.of_rank(self.rank))


class TasksProbe:
    """The kernel's count of processes and threads that the host was refused."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._level = group_of("pids", host.pid)
        self._before = self._refused()

    def struck(self) -> Reading:
        refused = self._refused() - self._before
        return Reading(
            refused > 0,
            f"{refused} processes or threads were refused",
            {"refused": refused, "limit": self._limit()},
        )

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        limit = self._limit()
        return Reading(limit is None, f"the limit is {limit}", {"limit": limit})

    def _refused(self) -> int:
        return refused_tasks(self._level) or 0

    def _limit(self) -> int | None:
        group = pids_group(self._level, [])
        return group.limit if group else None
