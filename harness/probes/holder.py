"""Who listens at a port of a container: by the kernel's table of sockets."""

from __future__ import annotations

import os

from hanglab.harness.faults.outside.listeners import listener_inode, processes_of
from hanglab.harness.probes.probe import Reading
from hanglab.recorder.agent.host.sockets import socket_inodes


class HolderProbe:
    """Somebody does who is no process of the container."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid, self._port = pid, port
        if listener_inode(pid, port) is not None:
            raise OSError(f"port {port} was taken already")

    def struck(self) -> Reading:
        inode = listener_inode(self._pid, self._port)
        own = [pid for pid in processes_of(self._pid) if inode in socket_inodes(pid)]
        stranger = inode is not None and not own
        words = f"by a stranger, socket {inode}" if stranger else f"by {own or 'nobody'}"
        return Reading(stranger, f"port {self._port} is held {words}", {"inode": inode})

    def ended(self) -> Reading:
        if not os.path.exists(f"/proc/{self._pid}/ns/net"):
            return Reading(True, "the container has gone")
        inode = listener_inode(self._pid, self._port)
        return Reading(inode is None, f"port {self._port}: {inode or 'nobody'}", {"inode": inode})
