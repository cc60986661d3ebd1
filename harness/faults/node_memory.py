"""A memory limit of a node that is drawn tighter while the job runs."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts
from hanglab.recorder.case.host_records import MemoryGroup
from hanglab.recorder.system.cgroups import group_of, memory_group


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


class _Memory:
    """A host's memory group, as long as there is one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._level = group_of("memory", host.pid)
        self._before = self.limit()

    def limit(self) -> int | None:
        group = self._read()
        return group.limit_bytes if group else None

    def tighter(self) -> bool:
        """True if the limit is below what it was."""
        now = self.limit()
        return now is not None and (self._before is None or now < self._before)

    def gone(self) -> bool:
        return self._read() is None

    def kills(self) -> int:
        group = self._read()
        return (group.oom_kills if group else None) or 0

    def reread(self) -> int:
        """Pages of files that were read again soon after they had been dropped."""
        group = self._read()
        return (group.refaults if group else None) or 0

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        now = self.limit()
        lifted = now is None or now == self._before
        return Reading(lifted, f"the limit is {now}", {"limit_bytes": now})

    def _read(self) -> MemoryGroup | None:
        return memory_group(self._level, [], own=True)


class OomProbe:
    """The kernel's count of kills in the group, or what its maker heard of one."""

    def __init__(self, host: Host) -> None:
        self._group = _Memory(host)
        self._host = host
        self._kills = self._group.kills()

    def struck(self) -> Reading:
        kills = self._group.kills() - self._kills
        told = False
        if kills <= 0 and self._group.gone():
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
        self._group = _Memory(host)
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
