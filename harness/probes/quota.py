"""Whether a container was held off the processor, by the kernel's count of throttled periods."""

from __future__ import annotations

from hanglab.harness.probes.groups import group_folder
from hanglab.harness.probes.probe import Reading
from hanglab.recorder.system.kernel_files import numbers, read

#: Periods in which the quota was used up: fewer may be a start that took long.
_FEWEST = 3


class QuotaProbe:
    def __init__(self, pid: int) -> None:
        self._folder, self._version = group_folder("cpu", pid)
        self._before = self._throttled()

    def struck(self) -> Reading:
        periods = self._throttled() - self._before
        return Reading(
            periods >= _FEWEST,
            f"the quota was used up in {periods} periods",
            {"throttled_periods": periods, "quota": self._quota()},
        )

    def ended(self) -> Reading:
        if not self._folder.exists():
            return Reading(True, "the container has gone")
        quota = self._quota()
        return Reading(quota in ("-1", "max"), f"the quota is {quota}", {"quota": quota})

    def _throttled(self) -> int:
        return numbers(f"{self._folder}/cpu.stat").get("nr_throttled", 0)

    def _quota(self) -> str:
        name = "cpu.cfs_quota_us" if self._version == 1 else "cpu.max"
        return (read(f"{self._folder}/{name}") or "").split(" ")[0].strip()
