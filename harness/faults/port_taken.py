"""A meeting point whose port somebody else holds, as a server of an earlier run may."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import LastingFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.faults.rendezvous_port import rendezvous_port
from hanglab.harness.hosts import Host, Hosts
from hanglab.harness.system.listeners import listener_inode, processes_of
from hanglab.harness.system.namespaces import call_in_network
from hanglab.recorder.system.sockets import socket_inodes


@dataclass(frozen=True, kw_only=True)
class PortTaken(LastingFault):
    """Before the rank does, somebody else listens at the job's port on its node.

    A rank needs a second to import torch, so there is time for that once its
    process is there.
    """

    needs = "outside_processes"

    def strike_host(self, hosts: Hosts) -> Undo:
        node, port = hosts.of_rank(self.rank), rendezvous_port(hosts, self.rank)

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

    def probe(self, hosts: Hosts) -> HolderProbe:
        return HolderProbe(hosts.of_rank(self.rank), rendezvous_port(hosts, self.rank))


class HolderProbe:
    """Somebody listens there who is no process of the host."""

    def __init__(self, host: Host, port: int) -> None:
        self._host, self._port = host, port
        if listener_inode(host.pid, port) is not None:
            raise OSError(f"port {port} was taken already")

    def struck(self) -> Reading:
        inode = listener_inode(self._host.pid, self._port)
        own = [pid for pid in processes_of(self._host.pid) if inode in socket_inodes(pid)]
        stranger = inode is not None and not own
        words = f"by a stranger, socket {inode}" if stranger else f"by {own or 'nobody'}"
        return Reading(stranger, f"port {self._port} is held {words}", {"inode": inode})

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        inode = listener_inode(self._host.pid, self._port)
        return Reading(inode is None, f"port {self._port}: {inode or 'nobody'}", {"inode": inode})
