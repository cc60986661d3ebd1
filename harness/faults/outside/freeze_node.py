"""A node that stands still as a whole, as a paused or live-migrated virtual machine does."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.fault import NotYet
from hanglab.harness.faults.outside.containers import asking
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.launchers.docker.nodes import Nodes
from hanglab.harness.probes.freezer import FreezerProbe


@dataclass(frozen=True, kw_only=True)
class FreezeNode(NodeFault):
    """Pauses the container: no process in it runs, the recorder's agent included."""

    def strike_node(self, nodes: Nodes) -> Undo:
        container = nodes.of_rank(self.rank).container

        def thaw() -> None:
            with asking("unpause"):
                container.unpause()

        try:
            with asking("pause"):
                container.pause()
        except OSError as failure:
            # Version 1's freezer gives up where processes are just being started.
            if "freeze" in str(failure):
                raise NotYet(str(failure)) from failure
            raise
        return thaw

    def probe(self, nodes: Nodes) -> FreezerProbe:
        return FreezerProbe(nodes.of_rank(self.rank).pid)
