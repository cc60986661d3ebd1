"""Whether a process has as many files open as it may."""

from __future__ import annotations

from hanglab.harness.probes.probe import Reading
from hanglab.recorder.system.kernel_files import count_descriptors, read


class FilesProbe:
    """What the kernel says of the limit and of the descriptors, again and again.

    A rank that meets its limit is often gone a moment later: the most that was seen counts.
    """

    #: A rank that meets its limit raises, and closes what it had open, within milliseconds.
    pace_s = 0.002

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = resource_limit(self._pid)
        self._most = 0
        self._least_limit = self._before

    def struck(self) -> Reading:
        limit, used = resource_limit(self._pid), count_descriptors(self._pid)
        if limit is not None and used is not None:
            if self._least_limit is None or limit < self._least_limit:
                self._least_limit, self._most = limit, 0
            self._most = max(self._most, used)
        tighter = self._least_limit is not None and self._least_limit != self._before
        return Reading(
            tighter and self._most >= (self._least_limit or 0),
            f"at most {self._most} files were open, with a limit of {self._least_limit}",
            {"most": self._most, "limit": self._least_limit},
        )

    def ended(self) -> Reading:
        limit = resource_limit(self._pid)
        gone = limit is None
        words = "the process has gone" if gone else f"the limit is {limit}"
        return Reading(gone or limit == self._before, words, {"limit": limit})


def resource_limit(pid: int) -> int | None:
    """How many files a process may have open; None where it has gone."""
    for line in (read(f"/proc/{pid}/limits") or "").splitlines():
        if line.startswith("Max open files"):
            return int(line.split()[3])
    return None
