"""A /dev/shm that is too small, as Docker's 64 MiB are for most loaders."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.namespaces import in_mounts
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.room import SizeProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes

_SHM = "/dev/shm"


@dataclass(frozen=True, kw_only=True)
class ShrinkShm(NodeFault):
    """From now on the node's /dev/shm holds no more than ``kibibytes``.

    The kernel refuses a size below what is in use.
    """

    kibibytes: int
    needs = "outside_processes"

    def strike_node(self, nodes: Nodes) -> Undo:
        pid = nodes.of_rank(self.rank).pid
        room = os.statvfs(f"/proc/{pid}/root{_SHM}")
        before = room.f_blocks * room.f_frsize

        def widen() -> None:
            in_mounts(pid, "/bin/mount", "-o", f"remount,size={before}", _SHM)

        in_mounts(pid, "/bin/mount", "-o", f"remount,size={self.kibibytes}k", _SHM)
        return widen

    def probe(self, nodes: Nodes) -> SizeProbe:
        return SizeProbe(nodes.of_rank(self.rank).pid, _SHM, self.kibibytes << 10)
