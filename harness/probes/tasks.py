"""Whether a container was refused a process or thread, by the kernel's count of refusals."""

from __future__ import annotations

from hanglab.harness.probes.groups import group_folder
from hanglab.harness.probes.probe import Reading
from hanglab.recorder.system.kernel_files import number, numbers


class TasksProbe:
    def __init__(self, pid: int) -> None:
        self._folder, _ = group_folder("pids", pid)
        self._before = self._refused()

    def struck(self) -> Reading:
        refused = self._refused() - self._before
        return Reading(
            refused > 0,
            f"{refused} processes or threads were refused",
            {"refused": refused, "limit": self._limit()},
        )

    def ended(self) -> Reading:
        if not self._folder.exists():
            return Reading(True, "the container has gone")
        limit = self._limit()
        return Reading(limit is None, f"the limit is {limit}", {"limit": limit})

    def _refused(self) -> int:
        return numbers(f"{self._folder}/pids.events").get("max", 0)

    def _limit(self) -> int | None:
        return number(f"{self._folder}/pids.max")
