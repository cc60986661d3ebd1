"""A node whose network loses all packets without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hanglab.harness.faults.outside.filtering import MARK, Rule, add_rules, remove_rules
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.reach import ReachProbe, neighbour

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes

Ways = Literal["both", "in", "out"]


@dataclass(frozen=True, kw_only=True)
class CutOff(NodeFault):
    """Cuts the node off: both ways, or only what comes ``in`` or goes ``out``."""

    ways: Ways = "both"
    needs = "outside_filter"

    def strike_node(self, nodes: Nodes) -> Undo:
        pid = nodes.of_rank(self.rank).pid
        rules: list[Rule] = []
        if self.ways != "out":
            rules.append(("INPUT", "!", "-i", "lo", *MARK, "-j", "DROP"))
        if self.ways != "in":
            rules.append(("OUTPUT", "!", "-o", "lo", *MARK, "-j", "DROP"))
        add_rules(pid, rules)
        return lambda: remove_rules(pid, rules)

    def probe(self, nodes: Nodes) -> ReachProbe:
        node = nodes.of_rank(self.rank)
        return ReachProbe(neighbour(nodes, self.rank), node, filtered=node)
