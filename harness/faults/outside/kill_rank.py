"""A rank's process that dies without a word, while its node lives on."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from hanglab.harness.faults.outside.node_fault import NodeFault
from hanglab.harness.launchers.docker.nodes import Nodes
from hanglab.harness.probes.death import DeathProbe


@dataclass(frozen=True, kw_only=True)
class KillRank(NodeFault):
    """Ends the rank with SIGKILL, sent from the host."""

    needs = "outside_processes"

    def strike_node(self, nodes: Nodes) -> None:
        os.kill(nodes.process_of(self.rank), signal.SIGKILL)

    def probe(self, nodes: Nodes) -> DeathProbe:
        return DeathProbe(nodes.process_of(self.rank))
