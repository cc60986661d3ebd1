"""Whether one node reaches another: by trying, from inside its network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.filtering import counted
from hanglab.harness.faults.outside.namespaces import connect
from hanglab.harness.probes.probe import Reading

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Node, Nodes

#: A port that nobody listens at: a node that is reached refuses at once.
_CLOSED = 1
_PATIENCE_S = 0.5
#: Even a machine under load answers a neighbour within this time.
_LONG_S = 5.0


def neighbour(nodes: Nodes, rank: int) -> Node:
    """The first other node.  Raises OSError where there is none."""
    own = nodes.of_rank(rank).number
    for number in nodes:
        if number != own:
            return nodes[number]
    raise OSError("the job has one node only: there is nobody to cut it off from")


class ReachProbe:
    """Connects from ``here`` to ``there``; ``filtered`` are those whose packet filters count."""

    def __init__(self, here: Node, there: Node, filtered: Sequence[Node]) -> None:
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
        for node in (self._here, self._there):
            if not os.path.exists(f"/proc/{node.pid}/ns/net"):
                return Reading(True, "the container has gone")
        came = connect(self._here.pid, self._there.address, _CLOSED, _LONG_S)
        return Reading(
            came == "refused",
            f"a connection to node {self._there.number} from node {self._here.number}: {came}",
            {"connection": came},
        )
