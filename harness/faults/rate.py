"""A link that carries little: a token bucket on the node's interface."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import LastingFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts
from hanglab.harness.system.namespaces import in_network

#: What may go out at once: less than a large packet and the kernel has to cut it up.
_BURST = "64kb"
#: How long a packet may wait before it is dropped, as in a switch with a small buffer.
_LATENCY = "50ms"


@dataclass(frozen=True, kw_only=True)
class LimitRate(LastingFault):
    """Lets no more than ``mebibits`` a second out of the node (qdisc tbf)."""

    mebibits: float
    needs = "outside_rate"

    def strike_host(self, hosts: Hosts) -> Undo:
        node = hosts.of_rank(self.rank)
        device = interface_of(node)
        rate = f"{int(self.mebibits * 1024)}kibit"

        def widen() -> None:
            if not host_gone(node):
                in_network(node.pid, "tc", "qdisc", "del", "dev", device, "root")

        bucket = ("root", "tbf", "rate", rate, "burst", _BURST, "latency", _LATENCY)
        in_network(node.pid, "tc", "qdisc", "add", "dev", device, *bucket)
        return widen

    def probe(self, hosts: Hosts) -> BucketProbe:
        node = hosts.of_rank(self.rank)
        return BucketProbe(node, interface_of(node))


def interface_of(node: Host) -> str:
    """The interface of a node that has its address.  Raises OSError."""
    for line in in_network(node.pid, "ip", "-o", "-4", "addr", "show").splitlines():
        words = line.split()
        if len(words) > 3 and words[3].split("/")[0] == node.address:
            return words[1]
    raise OSError(f"node {node.number} has no interface with {node.address}")


_HELD = re.compile(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+), overlimits (\d+)")
#: Packets that had to wait: fewer may be one burst at the start.
_FEWEST = 20


class BucketProbe:
    """The kernel's count of packets that a token bucket held back."""

    def __init__(self, host: Host, device: str) -> None:
        self._host, self._device = host, device
        if "tbf" in self._shown():
            raise OSError(f"{device} has a token bucket already")

    def struck(self) -> Reading:
        shown = self._shown()
        match = _HELD.search(shown) if "tbf" in shown else None
        sent, packets, dropped, held = (int(word) for word in match.groups()) if match else [0] * 4
        return Reading(
            held >= _FEWEST,
            f"{held} times a packet had to wait, {dropped} were dropped",
            {"sent_bytes": sent, "packets": packets, "dropped": dropped, "held": held},
        )

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        open_ = "tbf" not in self._shown()
        return Reading(open_, f"{self._device} has {'no' if open_ else 'a'} token bucket")

    def _shown(self) -> str:
        return in_network(self._host.pid, "tc", "-s", "qdisc", "show", "dev", self._device)
