"""A port whose connections are refused, as by a firewall that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.filtering import MARK, Rule, add_rules, remove_rules
from hanglab.harness.faults.outside.meeting_point import meeting_port
from hanglab.harness.faults.outside.node_fault import LastingFault, Undo
from hanglab.harness.probes.reach import neighbour
from hanglab.harness.probes.refusal import RefusalProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class RefuseConnections(LastingFault):
    """The node refuses new connections to the job's meeting point, of all or of ``other`` only."""

    other: int | None = None
    needs = "outside_filter"

    def strike_node(self, nodes: Nodes) -> Undo:
        pid = nodes.of_rank(self.rank).pid
        port = str(meeting_port(nodes, self.rank))
        source = ("-s", nodes.of_rank(self.other).address) if self.other is not None else ()
        opening = ("-p", "tcp", "--dport", port, "--syn")
        refuse = ("-j", "REJECT", "--reject-with", "tcp-reset")
        rules: list[Rule] = [("INPUT", "!", "-i", "lo", *source, *opening, *MARK, *refuse)]
        add_rules(pid, rules)
        return lambda: remove_rules(pid, rules)

    def probe(self, nodes: Nodes) -> RefusalProbe:
        node = nodes.of_rank(self.rank)
        here = neighbour(nodes, self.rank) if self.other is None else nodes.of_rank(self.other)
        return RefusalProbe(here, node, meeting_port(nodes, self.rank))
