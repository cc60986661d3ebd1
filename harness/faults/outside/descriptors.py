"""A limit of open files that a rank runs into."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.namespaces import tool
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.files import FilesProbe, resource_limit
from hanglab.recorder.system.kernel_files import count_descriptors

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class NodeDescriptors(NodeFault):
    """From now on the rank may have only ``spare`` more files open than it has."""

    spare: int
    needs = "outside_processes"

    def strike_node(self, nodes: Nodes) -> Undo:
        pid = nodes.process_of(self.rank)
        before = resource_limit(pid)
        used = count_descriptors(pid)
        if before is None or used is None:
            raise ProcessLookupError(f"process {pid} has gone")
        _set(pid, used + self.spare)

        def lift() -> None:
            if resource_limit(pid) is not None:
                _set(pid, before)

        return lift

    def probe(self, nodes: Nodes) -> FilesProbe:
        return FilesProbe(nodes.process_of(self.rank))


def _set(pid: int, soft: int) -> None:
    """As the process's own user: root may only with CAP_SYS_RESOURCE.  Raises OSError."""
    program = tool("prlimit")
    if program is None:
        raise OSError("prlimit is not installed; it is part of util-linux")
    owner = os.stat(f"/proc/{pid}")
    ran = subprocess.run(
        [program, "--pid", str(pid), f"--nofile={soft}:"],
        check=False,
        capture_output=True,
        text=True,
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[],
    )
    if ran.returncode:
        raise OSError(f"prlimit: {ran.stderr.strip()}")
