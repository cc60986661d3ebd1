"""A link that carries little: a token bucket on the node's interface."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.namespaces import in_network
from hanglab.harness.faults.outside.node_fault import LastingFault, Undo
from hanglab.harness.probes.bucket import BucketProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Node, Nodes

#: What may go out at once: less than a large packet and the kernel has to cut it up.
_BURST = "64kb"
#: How long a packet may wait before it is dropped, as in a switch with a small buffer.
_LATENCY = "50ms"


@dataclass(frozen=True, kw_only=True)
class LimitRate(LastingFault):
    """Lets no more than ``mebibits`` a second out of the node (qdisc tbf)."""

    mebibits: float
    needs = "outside_rate"

    def strike_node(self, nodes: Nodes) -> Undo:
        node = nodes.of_rank(self.rank)
        device = interface_of(node)
        rate = f"{int(self.mebibits * 1024)}kibit"

        def widen() -> None:
            if os.path.exists(f"/proc/{node.pid}/ns/net"):
                in_network(node.pid, "tc", "qdisc", "del", "dev", device, "root")

        bucket = ("root", "tbf", "rate", rate, "burst", _BURST, "latency", _LATENCY)
        in_network(node.pid, "tc", "qdisc", "add", "dev", device, *bucket)
        return widen

    def probe(self, nodes: Nodes) -> BucketProbe:
        node = nodes.of_rank(self.rank)
        return BucketProbe(node.pid, interface_of(node))


def interface_of(node: Node) -> str:
    """The interface of a node that has its address.  Raises OSError."""
    for line in in_network(node.pid, "ip", "-o", "-4", "addr", "show").splitlines():
        words = line.split()
        if len(words) > 3 and words[3].split("/")[0] == node.address:
            return words[1]
    raise OSError(f"node {node.number} has no interface with {node.address}")
