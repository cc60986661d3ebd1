"""Ends without a word: of a node, as when its power fails, or of a rank alone."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.faults.proof import Reading
from hanglab.harness.hosts import Hosts
from hanglab.recorder.system import procfs


@dataclass(frozen=True, kw_only=True)
class KillNode(HostFault):
    """Ends every process of the node with SIGKILL."""

    def strike_host(self, hosts: Hosts) -> None:
        hosts.of_rank(self.rank).kill()

    def probe(self, hosts: Hosts) -> DeathProbe:
        return DeathProbe(hosts.of_rank(self.rank).pid)


@dataclass(frozen=True, kw_only=True)
class KillRank(HostFault):
    """Ends the rank with SIGKILL, sent from the host."""

    needs = "outside_processes"

    def strike_host(self, hosts: Hosts) -> None:
        os.kill(hosts.process_of(self.rank), signal.SIGKILL)

    def probe(self, hosts: Hosts) -> DeathProbe:
        return DeathProbe(hosts.process_of(self.rank))


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
