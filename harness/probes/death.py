"""Whether a process has gone, by the kernel's list of them."""

from __future__ import annotations

from hanglab.harness.probes.probe import Reading
from hanglab.recorder.system import procfs


class DeathProbe:
    """Sees a process id that is used again as another process, by its start."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        before = procfs.stat(pid)
        if before is None:
            raise ProcessLookupError(f"process {pid} has gone already")
        self._started = before.started

    def struck(self) -> Reading:
        now = procfs.stat(self._pid)
        gone = now is None or now.state in "ZX" or now.started != self._started
        words = f"process {self._pid} {'has gone' if gone else 'lives'}"
        return Reading(gone, words, {"state": "" if now is None else now.state})

    def ended(self) -> Reading:
        """A death is over with its moment: nothing is left of it to end."""
        return self.struck()
