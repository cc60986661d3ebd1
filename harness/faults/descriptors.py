"""A limit of open files that a rank runs into."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading
from hanglab.harness.hosts import Hosts
from hanglab.harness.system.namespaces import tool
from hanglab.recorder.system import procfs
from hanglab.recorder.system.kernel_files import count_descriptors
from hanglab.recorder.system.procfs import soft_limits


@dataclass(frozen=True, kw_only=True)
class NodeDescriptors(HostFault):
    """From now on the rank may have only ``spare`` more files open than it has."""

    spare: int
    needs = "outside_processes"

    def strike_host(self, hosts: Hosts) -> Undo:
        pid = hosts.process_of(self.rank)
        before = resource_limit(pid)
        used = count_descriptors(pid)
        if before is None or used is None:
            raise ProcessLookupError(f"process {pid} has gone")
        _set(pid, used + self.spare)

        def lift() -> None:
            if resource_limit(pid) is not None:
                _set(pid, before)

        return lift

    def probe(self, hosts: Hosts) -> FilesProbe:
        return FilesProbe(hosts.process_of(self.rank))


def _set(pid: int, soft: int) -> None:
    """As the process's own user: root may only with CAP_SYS_RESOURCE.  Raises OSError."""
    program = tool("prlimit")
    if program is None:
        raise OSError("prlimit is not installed; it is part of util-linux")
    owner = procfs.owner(pid)
    if owner is None:
        raise ProcessLookupError(f"there is no process {pid}")
    ran = subprocess.run(
        [program, "--pid", str(pid), f"--nofile={soft}:"],
        check=False,
        capture_output=True,
        text=True,
        user=owner[0],
        group=owner[1],
        extra_groups=[],
    )
    if ran.returncode:
        raise OSError(f"prlimit: {ran.stderr.strip()}")


class FilesProbe:
    """Reads the kernel's limit and its count of the descriptors, again and again.

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
    """Number of files that a process may have open; None where it has gone."""
    return soft_limits(pid).get("Max open files")
