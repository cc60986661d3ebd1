"""A limit of open files that a rank runs into."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.files import FilesProbe
from hanglab.recorder.agent.host.files import count_descriptors

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class NodeDescriptors(NodeFault):
    """From now on the rank may have only ``spare`` more files open than it has."""

    spare: int

    def strike_node(self, nodes: Nodes) -> Undo:
        pid = nodes.process_of(self.rank)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = count_descriptors(pid)
        if used is None:
            raise ProcessLookupError(f"process {pid} has gone")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + self.spare, before[1]))

        def lift() -> None:
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            except ProcessLookupError:
                return  # and its limit with it

        return lift

    def probe(self, nodes: Nodes) -> FilesProbe:
        return FilesProbe(nodes.process_of(self.rank))
