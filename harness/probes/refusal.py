"""Whether a node refuses what it listens for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.filtering import counted, rules_of
from hanglab.harness.faults.outside.listeners import listener_inode
from hanglab.harness.faults.outside.namespaces import connect
from hanglab.harness.probes.probe import Reading

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Node

_PATIENCE_S = 2.0


class RefusalProbe:
    """Refused although somebody listens, and the packet filter counts it."""

    def __init__(self, here: Node, there: Node, port: int) -> None:
        self._here, self._there, self._port = here, there, port

    def struck(self) -> Reading:
        caught = counted(self._there.pid)
        open_here = listener_inode(self._there.pid, self._port) is not None
        came = connect(self._here.pid, self._there.address, self._port, _PATIENCE_S)
        return Reading(
            came == "refused" and open_here and caught > 0,
            f"port {self._port} of node {self._there.number} is "
            f"{'listened at' if open_here else 'not listened at'}, a connection was {came}, "
            f"{caught} packets were rejected",
            {"connection": came, "listened": int(open_here), "rejected": caught},
        )

    def ended(self) -> Reading:
        for node in (self._here, self._there):
            if not os.path.exists(f"/proc/{node.pid}/ns/net"):
                return Reading(True, "the container has gone")
        if listener_inode(self._there.pid, self._port) is not None:
            came = connect(self._here.pid, self._there.address, self._port, _PATIENCE_S)
            return Reading(came == "open", f"a connection was {came}", {"connection": came})
        # Nobody listens any more: only the rules can tell.
        left = rules_of(self._there.pid)
        return Reading(not left, f"{left} rules are left in the packet filter", {"rules": left})
