"""A rank that advertises or looks for an address at which nobody can meet."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import LastingFault
from hanglab.harness.faults.proof import Reading
from hanglab.harness.faults.rendezvous_port import variable
from hanglab.harness.hosts import Hosts, HostSettings


@dataclass(frozen=True, kw_only=True)
class WrongAddress(LastingFault):
    """The node's ranks are told that the job meets at ``address``.

    The default is what a host's own name resolves to on Debian: the host itself.
    """

    address: str = "127.0.1.1"
    needs = "outside_processes"

    def settings(self, number: int, settings: HostSettings) -> None:
        if self.rank in settings.ranks:
            settings.environment["MASTER_ADDR"] = self.address

    def strike_host(self, hosts: Hosts) -> None:
        """Done before: the ranks are started with it."""

    def probe(self, hosts: Hosts) -> EnvironmentProbe:
        return EnvironmentProbe(hosts, self.rank, "MASTER_ADDR", self.address)


@dataclass(frozen=True, kw_only=True)
class WrongInterface(LastingFault):
    """The node's ranks listen on ``interface``, and tell their peers its address."""

    interface: str = "lo"
    needs = "outside_processes"

    def settings(self, number: int, settings: HostSettings) -> None:
        if self.rank in settings.ranks:
            settings.environment["GLOO_SOCKET_IFNAME"] = self.interface

    def strike_host(self, hosts: Hosts) -> None:
        """Done before: the ranks are started with it."""

    def probe(self, hosts: Hosts) -> EnvironmentProbe:
        return EnvironmentProbe(hosts, self.rank, "GLOO_SOCKET_IFNAME", self.interface)


class EnvironmentProbe:
    """A variable that the rank's process was really started with, by the kernel."""

    def __init__(self, hosts: Hosts, rank: int, name: str, value: str) -> None:
        self._hosts, self._rank, self._name, self._value = hosts, rank, name, value

    def struck(self) -> Reading:
        mine = variable(self._hosts, self._rank, self._name)
        return Reading(
            mine == self._value, f"rank {self._rank} has {self._name}={mine}", {self._name: mine}
        )

    def ended(self) -> Reading:
        return Reading(True, "a variable of a process, and gone with it")
