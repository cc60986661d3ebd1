"""Two nodes that cannot hear each other, while everybody else hears both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.filtering import MARK, add_all
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
        one, other = nodes.of_rank(self.rank), nodes.of_rank(self.other)
        return add_all(
            [
                (here.pid, [("INPUT", "-s", there.address, *MARK, "-j", "DROP")])
                for here, there in ((one, other), (other, one))
            ]
        )

    def probe(self, nodes: Nodes) -> ReachProbe:
        one, other = nodes.of_rank(self.rank), nodes.of_rank(self.other)
        return ReachProbe(one, other, [one, other])
