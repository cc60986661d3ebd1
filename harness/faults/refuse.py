"""A port whose connections are refused, as by a firewall that says so."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.harness.faults.host_fault import LastingFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.faults.rendezvous_port import rendezvous_port
from hanglab.harness.hosts import Host, Hosts, neighbour
from hanglab.harness.system.listeners import listener_inode
from hanglab.harness.system.namespaces import connect
from hanglab.harness.system.packet_filter import (
    MARK,
    Rule,
    add_rules,
    counted,
    remove_rules,
    rules_of,
)


@dataclass(frozen=True, kw_only=True)
class RefuseConnections(LastingFault):
    """The node refuses new connections to the job's meeting point, of all or of ``other`` only."""

    other: int | None = None
    needs = "outside_filter"

    def strike_host(self, hosts: Hosts) -> Undo:
        pid = hosts.of_rank(self.rank).pid
        port = str(rendezvous_port(hosts, self.rank))
        source = ("-s", hosts.of_rank(self.other).address) if self.other is not None else ()
        opening = ("-p", "tcp", "--dport", port, "--syn")
        refuse = ("-j", "REJECT", "--reject-with", "tcp-reset")
        rules: list[Rule] = [("INPUT", "!", "-i", "lo", *source, *opening, *MARK, *refuse)]
        add_rules(pid, rules)
        return lambda: remove_rules(pid, rules)

    def probe(self, hosts: Hosts) -> RefusalProbe:
        node = hosts.of_rank(self.rank)
        here = neighbour(hosts, self.rank) if self.other is None else hosts.of_rank(self.other)
        return RefusalProbe(here, node, rendezvous_port(hosts, self.rank))


_PATIENCE_S = 2.0


class RefusalProbe:
    """Refused although somebody listens, and the packet filter counts it."""

    def __init__(self, here: Host, there: Host, port: int) -> None:
        self._here, self._there, self._port = here, there, port

    def struck(self) -> Reading:
        caught = counted(self._there.pid)
        open_here = listener_inode(self._there.pid, self._port) is not None
        came = connect(self._here.pid, self._there.address, self._port, _PATIENCE_S)
        return Reading(
            came == "refused" and open_here and caught > 0,
            f"port {self._port} of node {self._there.number} is "
            f"{'listened at' if open_here else 'not listened at'}, a connection was {came}, "
            f"{caught} packets were rejected",
            {"connection": came, "listened": int(open_here), "rejected": caught},
        )

    def ended(self) -> Reading:
        if gone := host_gone(self._here, self._there):
            return gone
        if listener_inode(self._there.pid, self._port) is not None:
            came = connect(self._here.pid, self._there.address, self._port, _PATIENCE_S)
            return Reading(came == "open", f"a connection was {came}", {"connection": came})
        # Nobody listens any more: only the rules can tell.
        left = rules_of(self._there.pid)
        return Reading(not left, f"{left} rules are left in the packet filter", {"rules": left})
