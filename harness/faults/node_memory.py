"""A memory limit of a node that is drawn tighter while the job runs."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.launchers.host import Host, Hosts
from hanglab.harness.system.cgroups import group_folder
from hanglab.recorder.system.kernel_files import number, numbers


@dataclass(frozen=True, kw_only=True)
class NodeMemory(HostFault):
    """From now on the node may use no more than ``mebibytes``, and has no swap."""

    mebibytes: int

    def strike_host(self, hosts: Hosts) -> Undo:
        host = hosts.of_rank(self.rank)
        host.limit_memory(self.mebibytes << 20)
        return lambda: host.limit_memory(None)

    def probe(self, hosts: Hosts) -> OomProbe:
        """The limit alone may go unnoticed: only a kill proves that it was met."""
        return OomProbe(hosts.of_rank(self.rank))


@dataclass(frozen=True, kw_only=True)
class MemoryPressure(NodeMemory):
    """A memory limit under which the node only rereads what it had to drop, and loses nobody."""

    def probe(self, hosts: Hosts) -> PressureProbe:  # type: ignore[override]
        return PressureProbe(hosts.of_rank(self.rank))


#: Pages read again soon after they were dropped: more than drawing the limit tighter costs once.
_REREAD = 2000


class _MemoryGroup:
    """A host's memory group."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.folder, self._version = group_folder("memory", host.pid)
        self._before = self.limit()

    def limit(self) -> int | None:
        name = "memory.limit_in_bytes" if self._version == 1 else "memory.max"
        return number(f"{self.folder}/{name}")

    def tighter(self) -> bool:
        """True if the limit is below what it was."""
        now = self.limit()
        return now is not None and (self._before is None or now < self._before)

    def kills(self) -> int:
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        return numbers(f"{self.folder}/{name}").get("oom_kill", 0)

    def reread(self) -> int:
        """Pages of files that were read again soon after they had been dropped."""
        stat = numbers(f"{self.folder}/memory.stat")
        return stat.get("workingset_refault_file", stat.get("workingset_refault", 0))

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        now = self.limit()
        # Version 1 writes "no limit" as a number that depends on the kernel's page size.
        lifted = now == self._before or now is None or now >= 1 << 50
        return Reading(lifted, f"the limit is {now}", {"limit_bytes": now})


class OomProbe:
    """The kernel's count of kills in the group, or what its maker heard of one."""

    def __init__(self, host: Host) -> None:
        self._group = _MemoryGroup(host)
        self._host = host
        self._kills = self._group.kills()

    def struck(self) -> Reading:
        kills = self._group.kills() - self._kills
        told = False
        if kills <= 0 and not self._group.folder.exists():
            told = self._host.was_out_of_memory()
        words = f"{max(kills, 0)} kills for want of memory are counted"
        return Reading(
            kills > 0 or told,
            words + (", and who made the node heard of one" if told else ""),
            {
                "oom_kills": kills,
                "limit_bytes": self._group.limit(),
                "host_oom_killed": int(told),
            },
        )

    def ended(self) -> Reading:
        return self._group.ended()


class PressureProbe:
    """Bytes that the group had to read again, as long as nobody in it was killed."""

    def __init__(self, host: Host) -> None:
        self._group = _MemoryGroup(host)
        self._kills = self._group.kills()
        self._reread = self._group.reread()

    def struck(self) -> Reading:
        pages = self._group.reread() - self._reread
        kills = self._group.kills() - self._kills
        return Reading(
            pages >= _REREAD and kills == 0 and self._group.tighter(),
            f"{pages} pages were read again, and {kills} processes were killed",
            {"reread": pages, "oom_kills": kills, "limit_bytes": self._group.limit()},
        )

    def ended(self) -> Reading:
        return self._group.ended()
