"""A process that kept the job's store and is gone, while the ranks live on."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.fault import NotYet
from hanglab.harness.faults.outside.listeners import listener_inode, processes_of
from hanglab.harness.faults.outside.meeting_point import meeting_port
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.served import ServedProbe
from hanglab.recorder.agent.host.sockets import socket_inodes

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class StoreGone(NodeFault):
    """Kills whoever listens on the rank's node, ``beside`` ports above the meeting point."""

    beside: int = 0
    needs = "outside_processes"

    def strike_node(self, nodes: Nodes) -> Undo | None:
        node, port = nodes.of_rank(self.rank), meeting_port(nodes, self.rank) + self.beside
        inode = listener_inode(node.pid, port)
        for pid in processes_of(node.pid):
            if inode is not None and inode in socket_inodes(pid):
                os.kill(pid, signal.SIGKILL)
                return None
        raise NotYet(f"nobody listens at port {port}")

    def probe(self, nodes: Nodes) -> ServedProbe:
        port = meeting_port(nodes, self.rank) + self.beside
        return ServedProbe(nodes.of_rank(self.rank), port)
