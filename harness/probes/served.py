"""Whether a port of a container still answers: by connecting from there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hanglab.harness.faults.fault import NotYet
from hanglab.harness.faults.outside.namespaces import connect
from hanglab.harness.probes.probe import Reading

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Node

_PATIENCE_S = 2.0


class ServedProbe:
    def __init__(self, node: Node, port: int) -> None:
        self._node, self._port = node, port
        came = connect(node.pid, node.address, port, _PATIENCE_S)
        if came != "open":
            raise NotYet(f"port {port} does not answer yet: {came}")

    def struck(self) -> Reading:
        if not os.path.exists(f"/proc/{self._node.pid}/ns/net"):
            return Reading(True, "the container has gone, and the store with it")
        came = connect(self._node.pid, self._node.address, self._port, _PATIENCE_S)
        words = f"a connection to port {self._port} of node {self._node.number}: {came}"
        return Reading(came == "refused", words, {"connection": came})

    def ended(self) -> Reading:
        """A death is over with its moment."""
        return self.struck()
