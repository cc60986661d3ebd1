"""A node that is gone from one moment to the next, as when its power fails."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.outside.containers import asking
from hanglab.harness.faults.outside.node_fault import NodeFault
from hanglab.harness.launchers.docker.nodes import Nodes
from hanglab.harness.probes.death import DeathProbe


@dataclass(frozen=True, kw_only=True)
class KillNode(NodeFault):
    """Ends every process of the container with SIGKILL."""

    def strike_node(self, nodes: Nodes) -> None:
        with asking("kill"):
            nodes.of_rank(self.rank).container.kill()

    def probe(self, nodes: Nodes) -> DeathProbe:
        return DeathProbe(nodes.of_rank(self.rank).pid)
