"""A process that kept the job's store and is gone, while the ranks live on."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.faults.rendezvous_port import rendezvous_port
from hanglab.harness.hosts import Host, Hosts, NotYet
from hanglab.harness.system.listeners import listener_inode, processes_of
from hanglab.harness.system.namespaces import connect
from hanglab.recorder.system.sockets import socket_inodes


@dataclass(frozen=True, kw_only=True)
class StoreGone(HostFault):
    """Kills whoever listens on the rank's node, ``beside`` ports above the meeting point."""

    beside: int = 0
    needs = "outside_processes"

    def strike_host(self, hosts: Hosts) -> Undo | None:
        node, port = hosts.of_rank(self.rank), rendezvous_port(hosts, self.rank) + self.beside
        inode = listener_inode(node.pid, port)
        for pid in processes_of(node.pid):
            if inode is not None and inode in socket_inodes(pid):
                os.kill(pid, signal.SIGKILL)
                return None
        raise NotYet(f"nobody listens at port {port}")

    def probe(self, hosts: Hosts) -> ServedProbe:
        port = rendezvous_port(hosts, self.rank) + self.beside
        return ServedProbe(hosts.of_rank(self.rank), port)


_PATIENCE_S = 2.0


class ServedProbe:
    """A port of the host that answers, by a connection from there."""

    def __init__(self, node: Host, port: int) -> None:
        self._node, self._port = node, port
        came = connect(node.pid, node.address, port, _PATIENCE_S)
        if came != "open":
            raise NotYet(f"port {port} does not answer yet: {came}")

    def struck(self) -> Reading:
        if gone := host_gone(self._node):
            return gone
        came = connect(self._node.pid, self._node.address, self._port, _PATIENCE_S)
        words = f"a connection to port {self._port} of node {self._node.number}: {came}"
        return Reading(came == "refused", words, {"connection": came})

    def ended(self) -> Reading:
        """A death is over with its moment."""
        return self.struck()
