"""A meeting point whose port somebody else holds, as a server of an earlier run may."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.meeting_point import meeting_port
from hanglab.harness.faults.outside.namespaces import call_in_network
from hanglab.harness.faults.outside.node_fault import LastingFault, Undo
from hanglab.harness.probes.holder import HolderProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class PortTaken(LastingFault):
    """Before the rank does, somebody else listens at the job's port on its node.

    A rank needs a second to import torch, so there is time for that once its
    process is there.
    """

    needs = "outside_processes"

    def strike_node(self, nodes: Nodes) -> Undo:
        node, port = nodes.of_rank(self.rank), meeting_port(nodes, self.rank)

        def listen() -> socket.socket:
            server = socket.socket(socket.AF_INET6)
            try:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                server.bind(("::", port))
                server.listen()
            except OSError:
                server.close()
                raise
            return server

        return call_in_network(node.pid, listen).close

    def probe(self, nodes: Nodes) -> HolderProbe:
        return HolderProbe(nodes.of_rank(self.rank).pid, meeting_port(nodes, self.rank))
