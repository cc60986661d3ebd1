"""A long way: packets to a node are held for a while before it gets them.

The kernel's netem does this where there is one.  Where there is none, as here,
the packet filter hands the packets to a process (NFQUEUE) that gives them back
later: they are the job's own packets, on its own connections.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.filtering import MARK, Rule, add_rules, remove_rules
from hanglab.harness.faults.outside.node_fault import LastingFault, Undo
from hanglab.harness.probes.trip import TripProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes

_QUEUE = 417
_PATIENCE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Delay(LastingFault):
    """Holds every packet to the node, or of ``other`` to it, for ``milliseconds``."""

    milliseconds: float
    other: int | None = None
    needs = "outside_delay"

    def strike_node(self, nodes: Nodes) -> Undo:
        pid = nodes.of_rank(self.rank).pid
        source = ("-s", nodes.of_rank(self.other).address) if self.other is not None else ()
        queue = ("-j", "NFQUEUE", "--queue-num", str(_QUEUE), "--queue-bypass")
        rules: list[Rule] = [("INPUT", "!", "-i", "lo", *source, *MARK, *queue)]
        holder = start_holder(pid, self.milliseconds)
        try:
            add_rules(pid, rules)
        except OSError:
            end_holder(holder)
            raise

        def shorten() -> None:
            # What it holds goes on when it has ended: no packet is lost.
            try:
                remove_rules(pid, rules)
            finally:
                end_holder(holder)

        return shorten

    def probe(self, nodes: Nodes) -> TripProbe:
        from hanglab.harness.probes.reach import neighbour

        here = neighbour(nodes, self.rank) if self.other is None else nodes.of_rank(self.other)
        return TripProbe(here, nodes.of_rank(self.rank), self.milliseconds)


def start_holder(pid: int, milliseconds: float) -> subprocess.Popen[str]:
    """A process that holds the packets of a queue in the network of ``pid``, once it is ready.

    It ends with its standard input, so also when hanglab is killed.  Raises OSError.
    """
    program = "hanglab.harness.faults.outside.holding"
    holder = subprocess.Popen(
        [sys.executable, "-m", program, str(pid), str(_QUEUE), str(milliseconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stderr is not None
    if holder.stdout.readline() != "ready\n":
        said = holder.stderr.read().strip().splitlines()
        end_holder(holder)
        raise OSError(f"packets cannot be held: {said[-1] if said else 'no answer'}")
    return holder


def end_holder(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.close()
    try:
        holder.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
    for stream in (holder.stdout, holder.stderr):
        if stream is not None:
            stream.close()
