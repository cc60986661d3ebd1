"""Ports at which ranks of a job that has not formed yet stand: where they look for its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.links import latest

#: Functions of torch in which a rank looks for the store.
SEEKING = frozenset(
    {"_create_c10d_store", "_tcp_rendezvous_handler", "_env_rendezvous_handler", "rendezvous"}
)


@dataclass(frozen=True)
class RankPorts:
    """Ports of one rank: those that it has connected to, and those at which it listens.

    ``seeking``: it has not got the store yet.  None of it is known without samples.
    """

    rank: int
    reached: frozenset[str]
    listens: frozenset[str]
    seeking: bool
    known: bool = True

    @property
    def ports(self) -> frozenset[str]:
        return self.reached | self.listens


def standing_of(view: RankView) -> RankPorts:
    sample = latest(view.connections)
    stack = view.captured_stack
    if sample is None or stack is None:
        return RankPorts(view.rank, frozenset(), frozenset(), False, known=False)
    functions = {frame.function for thread in stack.threads for frame in thread.frames}
    listens = {_port(c.local) for c in sample.connections if c.state == "LISTEN"}
    reached = {
        _port(c.remote)
        for c in sample.connections
        if c.state == "ESTABLISHED" and _port(c.local) not in listens
    }
    return RankPorts(view.rank, frozenset(reached), frozenset(listens), bool(functions & SEEKING))


def ranks_elsewhere(standings: Sequence[RankPorts]) -> tuple[str, list[RankPorts]] | None:
    """The port at which most ranks stand, and the ranks that look for the job somewhere else.

    None where no majority stands at one, or a rank's place is not known.
    """
    counts = Counter(port for one in standings for port in one.ports)
    if not counts or not all(one.known for one in standings):
        return None
    # Of a formed mesh the ranks' own ports are as common as the store's, and all stand there.
    port, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    away = [one for one in standings if port not in one.ports]
    if not away or count <= len(away) or not all(_looks_elsewhere(one, counts) for one in away):
        return None
    return port, away


def _looks_elsewhere(one: RankPorts, counts: Counter[str]) -> bool:
    """True if it is still looking for the store, or has found one where no peer is."""
    return one.seeking or (bool(one.reached) and all(counts[port] == 1 for port in one.reached))


def _port(end: str) -> str:
    return end.rpartition(":")[2]
