"""A long way: packets to a node are held for a while before it gets them.

The kernel's netem does this where there is one.  Where there is none, as here,
the packet filter hands the packets to a process (NFQUEUE) that gives them back
later: they are the job's own packets, on its own connections.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import LastingFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts, neighbour
from hanglab.harness.system.namespaces import connect
from hanglab.harness.system.packet_filter import MARK, Rule, add_rules, remove_rules

_QUEUE = 417
#: How long a holder may take to end.
_END_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Delay(LastingFault):
    """Holds every packet to the node, or of ``other`` to it, for ``milliseconds``."""

    milliseconds: float
    other: int | None = None
    needs = "outside_delay"

    def strike_host(self, hosts: Hosts) -> Undo:
        pid = hosts.of_rank(self.rank).pid
        source = ("-s", hosts.of_rank(self.other).address) if self.other is not None else ()
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

    def probe(self, hosts: Hosts) -> TripProbe:
        here = neighbour(hosts, self.rank) if self.other is None else hosts.of_rank(self.other)
        return TripProbe(here, hosts.of_rank(self.rank), self.milliseconds)


def start_holder(pid: int, milliseconds: float) -> subprocess.Popen[str]:
    """A process that holds the packets of a queue in the network of ``pid``, once it is ready.

    It ends with its standard input, so also when hanglab is killed.  Raises OSError.
    """
    program = "hanglab.harness.system.packet_queue"
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
        holder.wait(_END_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
    for stream in (holder.stdout, holder.stderr):
        if stream is not None:
            stream.close()


_CLOSED = 1
_PATIENCE_S = 5.0
_TRIPS = 3
#: On a machine under load most trips take long.
_MANY_TRIPS = 30
_NEXT_TO_NOTHING = 0.1
#: Share of the delay that every one of several trips must take at least.
_MOST_OF_IT = 0.8


class TripProbe:
    """The shortest of several trips: load lengthens some, a delay all."""

    def __init__(self, here: Host, there: Host, milliseconds: float) -> None:
        self._here, self._there, self._delay = here, there, milliseconds
        self._before = self._shortest(_MANY_TRIPS)
        if self._before > milliseconds * _MOST_OF_IT:
            raise OSError(f"a trip took {self._before:.1f} ms even before")

    def struck(self) -> Reading:
        trip = self._shortest()
        return Reading(trip >= self._before + self._delay * _MOST_OF_IT, *self._said(trip))

    def ended(self) -> Reading:
        if gone := host_gone(self._here, self._there):
            return gone
        trip = self._shortest(_MANY_TRIPS)
        return Reading(trip < self._before + self._delay * _MOST_OF_IT, *self._said(trip))

    def _said(self, trip: float) -> tuple[str, dict[str, str | int | float | None]]:
        values: dict[str, str | int | float | None] = {
            "trip_ms": round(trip, 3),
            "before_ms": round(self._before, 3),
        }
        return f"a trip took {trip:.1f} ms, before the fault {self._before:.1f} ms", values

    def _shortest(self, most: int = _TRIPS) -> float:
        """Milliseconds; more trips than one are made until one takes next to no time."""
        shortest = float("inf")
        for _ in range(most):
            begun = time.monotonic()
            came = connect(self._here.pid, self._there.address, _CLOSED, _PATIENCE_S)
            if came != "refused":
                raise OSError(f"{self._there.address} is not reached: {came}")
            shortest = min(shortest, (time.monotonic() - begun) * 1e3)
            if shortest < self._delay * _NEXT_TO_NOTHING:
                break
        return shortest
