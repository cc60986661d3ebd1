"""A rank that advertises or looks for an address at which nobody can meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.node_fault import LastingFault
from hanglab.harness.probes.told import ToldProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes, NodeSettings


@dataclass(frozen=True, kw_only=True)
class WrongAddress(LastingFault):
    """The node's ranks are told that the job meets at ``address``.

    The default is what a host's own name resolves to on Debian: the host itself.
    """

    address: str = "127.0.1.1"
    needs = "outside_processes"

    def settings(self, number: int, settings: NodeSettings) -> None:
        if self.rank in settings.ranks:
            settings.environment["MASTER_ADDR"] = self.address

    def strike_node(self, nodes: Nodes) -> None:
        """Done before: the ranks are started with it."""

    def probe(self, nodes: Nodes) -> ToldProbe:
        return ToldProbe(nodes, self.rank, "MASTER_ADDR", self.address)


@dataclass(frozen=True, kw_only=True)
class WrongInterface(LastingFault):
    """The node's ranks listen on ``interface``, and tell their peers its address."""

    interface: str = "lo"
    needs = "outside_processes"

    def settings(self, number: int, settings: NodeSettings) -> None:
        if self.rank in settings.ranks:
            settings.environment["GLOO_SOCKET_IFNAME"] = self.interface

    def strike_node(self, nodes: Nodes) -> None:
        """Done before: the ranks are started with it."""

    def probe(self, nodes: Nodes) -> ToldProbe:
        return ToldProbe(nodes, self.rank, "GLOO_SOCKET_IFNAME", self.interface)
