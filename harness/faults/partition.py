"""Networks that lose packets without a word: of one node to all, or between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts, neighbour
from hanglab.harness.system.namespaces import connect
from hanglab.harness.system.packet_filter import MARK, Rule, add_all, counted

Ways = Literal["both", "in", "out"]


@dataclass(frozen=True, kw_only=True)
class CutOff(HostFault):
    """Cuts the node off: both ways, or only what comes ``in`` or goes ``out``."""

    ways: Ways = "both"
    needs = "outside_filter"

    def strike_host(self, hosts: Hosts) -> Undo:
        node = hosts.of_rank(self.rank)
        rules: list[tuple[int, list[Rule]]] = []
        if self.ways != "out":
            rules.append((node.pid, [("INPUT", "!", "-i", "lo", *MARK, "-j", "DROP")]))
        if self.ways != "in":
            # Where they arrive: dropped at home, they would not have been sent at all, and
            # the kernel would know.
            heard: Rule = ("INPUT", "-s", node.address, *MARK, "-j", "DROP")
            rules += [(other.pid, [heard]) for other in hosts.values() if other is not node]
        return add_all(rules)

    def probe(self, hosts: Hosts) -> ReachProbe:
        node = hosts.of_rank(self.rank)
        return ReachProbe(neighbour(hosts, self.rank), node, list(hosts.values()))


@dataclass(frozen=True, kw_only=True)
class DropBetween(HostFault):
    """Loses every packet between the nodes of ``rank`` and ``other`` without a word."""

    other: int
    needs = "outside_filter"

    def strike_host(self, hosts: Hosts) -> Undo:
        one, other = hosts.of_rank(self.rank), hosts.of_rank(self.other)
        return add_all(
            [
                (here.pid, [("INPUT", "-s", there.address, *MARK, "-j", "DROP")])
                for here, there in ((one, other), (other, one))
            ]
        )

    def probe(self, hosts: Hosts) -> ReachProbe:
        one, other = hosts.of_rank(self.rank), hosts.of_rank(self.other)
        return ReachProbe(one, other, [one, other])


#: A port that nobody listens at: a node that is reached refuses at once.
_CLOSED = 1
_PATIENCE_S = 0.5
#: Even a machine under load answers a neighbour within this time.
_LONG_S = 5.0


class ReachProbe:
    """Connects from ``here`` to ``there``; ``filtered`` are those whose packet filters count."""

    def __init__(self, here: Host, there: Host, filtered: Sequence[Host]) -> None:
        self._here, self._there, self._filtered = here, there, filtered
        came = connect(here.pid, there.address, _CLOSED, _LONG_S)
        if came != "refused":
            raise OSError(f"{there.address} was not reached even before: {came}")

    def struck(self) -> Reading:
        came = connect(self._here.pid, self._there.address, _CLOSED, _PATIENCE_S)
        caught = sum(counted(node.pid) for node in self._filtered)
        return Reading(
            came == "silent" and caught > 0,
            f"a connection to node {self._there.number} from node {self._here.number}: {came}; "
            f"{caught} packets were dropped",
            {"connection": came, "dropped": caught},
        )

    def ended(self) -> Reading:
        if gone := host_gone(self._here, self._there):
            return gone
        came = connect(self._here.pid, self._there.address, _CLOSED, _LONG_S)
        return Reading(
            came == "refused",
            f"a connection to node {self._there.number} from node {self._here.number}: {came}",
            {"connection": came},
        )
