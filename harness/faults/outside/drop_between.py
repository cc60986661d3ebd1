"""Two nodes that cannot hear each other, while everybody else hears both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.filtering import MARK, Rule, add_rules, remove_rules
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.reach import ReachProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class DropBetween(NodeFault):
    """Loses every packet between the nodes of ``rank`` and ``other`` without a word."""

    other: int
    needs = "outside_filter"

    def strike_node(self, nodes: Nodes) -> Undo:
        pid, peer = nodes.of_rank(self.rank).pid, nodes.of_rank(self.other).address
        rules: list[Rule] = [
            ("INPUT", "-s", peer, *MARK, "-j", "DROP"),
            ("OUTPUT", "-d", peer, *MARK, "-j", "DROP"),
        ]
        add_rules(pid, rules)
        return lambda: remove_rules(pid, rules)

    def probe(self, nodes: Nodes) -> ReachProbe:
        node = nodes.of_rank(self.rank)
        return ReachProbe(nodes.of_rank(self.other), node, filtered=node)
