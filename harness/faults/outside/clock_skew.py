"""A node whose clock is wrong, as where no time service runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.node_fault import LastingFault
from hanglab.harness.probes.clock import ClockProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes, NodeSettings

#: Where Debian keeps it; the loader replaces $LIB by lib/x86_64-linux-gnu or its like.
_LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"


@dataclass(frozen=True, kw_only=True)
class ClockSkew(LastingFault):
    """The node's wall clock is ``seconds`` ahead (or behind, if negative) from the start.

    libfaketime does it to every process of the node, the recorder's agent
    included; monotonic clocks and the times of files stay true.
    """

    seconds: float

    def settings(self, number: int, settings: NodeSettings) -> None:
        if self.rank not in settings.ranks:
            return
        settings.environment.update(
            LD_PRELOAD=_LIBRARY,
            FAKETIME=f"{self.seconds:+g}",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            # With its mend for old C libraries waits by monotonic clocks, as for Python's GIL,
            # end at once, and those who wait use up their processor.
            FAKETIME_FORCE_MONOTONIC_FIX="0",
            FAKETIME_DISABLE_SHM="1",
            NO_FAKE_STAT="1",
        )

    def strike_node(self, nodes: Nodes) -> None:
        """Done before: the container was made with it, and it ends with the container."""

    def probe(self, nodes: Nodes) -> ClockProbe:
        return ClockProbe(nodes.of_rank(self.rank).container, self.seconds)
