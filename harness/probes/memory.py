"""What a memory limit did: processes killed, or allocations that had to wait for room."""

from __future__ import annotations

from typing import Any

from hanglab.harness.faults.outside.containers import asking
from hanglab.harness.probes.groups import group_folder
from hanglab.harness.probes.probe import Reading
from hanglab.recorder.system.kernel_files import number, numbers

#: Pages read again soon after they were dropped: more than drawing the limit tighter costs once.
_REREAD = 2000


class _Group:
    """A container's memory group."""

    def __init__(self, pid: int) -> None:
        self.folder, self._version = group_folder("memory", pid)
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
        if not self.folder.exists():
            return Reading(True, "the container has gone")
        now = self.limit()
        # Version 1 writes "no limit" as a number that depends on the kernel's page size.
        lifted = now == self._before or now is None or now >= 1 << 50
        return Reading(lifted, f"the limit is {now}", {"limit_bytes": now})


class OomProbe:
    """The kernel's count of kills in the group, or what Docker heard of one."""

    def __init__(self, pid: int, container: Any) -> None:
        self._group = _Group(pid)
        self._container = container
        self._kills = self._group.kills()

    def struck(self) -> Reading:
        kills = self._group.kills() - self._kills
        told = False
        if kills <= 0 and not self._group.folder.exists():
            with asking("inspect"):
                self._container.reload()
                told = bool(self._container.attrs["State"].get("OOMKilled"))
        words = f"{max(kills, 0)} kills for want of memory are counted"
        return Reading(
            kills > 0 or told,
            words + (", and Docker heard of one" if told else ""),
            {
                "oom_kills": kills,
                "limit_bytes": self._group.limit(),
                "docker_oom_killed": int(told),
            },
        )

    def ended(self) -> Reading:
        return self._group.ended()


class PressureProbe:
    """How much the group had to read again, as long as nobody in it was killed."""

    def __init__(self, pid: int) -> None:
        self._group = _Group(pid)
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
