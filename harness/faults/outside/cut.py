"""A node whose network loses all packets without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hanglab.harness.faults.outside.filtering import MARK, Rule, add_all
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
        node = nodes.of_rank(self.rank)
        rules: list[tuple[int, list[Rule]]] = []
        if self.ways != "out":
            rules.append((node.pid, [("INPUT", "!", "-i", "lo", *MARK, "-j", "DROP")]))
        if self.ways != "in":
            # Where they arrive: dropped at home, they would not have been sent at all, and
            # the kernel would know.
            heard: Rule = ("INPUT", "-s", node.address, *MARK, "-j", "DROP")
            rules += [(other.pid, [heard]) for other in nodes.values() if other is not node]
        return add_all(rules)

    def probe(self, nodes: Nodes) -> ReachProbe:
        node = nodes.of_rank(self.rank)
        return ReachProbe(neighbour(nodes, self.rank), node, list(nodes.values()))
