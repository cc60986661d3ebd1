"""What all causes of a slow job are judged by: what is lost, and how much must be.

A rank is held to account only for its own time beyond its peers', where they
lose by it, again and again.  Which cause it is, what filled that time decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from hanglab.analyzer.facts.arrival_lag import Arrivals
from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.time_breakdown import (
    TimeBreakdown,
    beyond_peers,
    steps,
    time_breakdowns,
)
from hanglab.analyzer.verdict import Effect, Evidence

#: Share of the time that a rank must cost its peers, and exceed them by itself.
COST = 0.08
EXCESS = 0.08
#: Share of a rank's excess that a cause must account for to be the cause.
MAIN_PART = 0.5
#: Least excess a step, in milliseconds.
FLOOR_MS = 2.0
#: Fewest operations, and shortest time in nanoseconds, that say anything.
FEWEST = 12
SHORTEST_NS = 500_000_000
#: Excess over its standard error from which on it is no chance, and below which it may be.
CERTAIN = 4.0
LIKELY = 1.5
#: Share of the time that ranks wait for a processor from which on a machine is crowded.
CROWDED = 0.1


@dataclass
class JobTiming:
    """The job as the heuristics of slowness see it."""

    known: Known
    found: Arrivals
    did: dict[int, TimeBreakdown]
    steps: int

    @classmethod
    def of(cls, known: Known, found: Arrivals) -> JobTiming:
        return cls(known, found, time_breakdowns(known, found), steps(known, found))

    @property
    def long_enough(self) -> bool:
        return self.found.operations >= FEWEST and self.found.span_ns >= SHORTEST_NS

    def ms_per_step(self, ns: float) -> float:
        return ns / self.steps / 1e6

    def share(self, ns: float) -> float:
        return ns / self.found.span_ns if self.found.span_ns > 0 else 0.0

    def late(self, rank: int, certainty: float = LIKELY, share: float = EXCESS) -> bool:
        """Whether the rank's own time exceeds its peers' by enough, and they lose by it."""
        found = self.found
        return (
            self.long_enough
            and found.compared.get(rank, 0) >= FEWEST
            and found.late_share(rank) >= share / 2
            and found.excess_share(rank) >= share
            and self.ms_per_step(found.excess_ns[rank]) >= FLOOR_MS
            and found.certainty[rank] >= certainty
        )

    def late_but_for_run_queue_delay(self, rank: int) -> bool:
        """Whether it would be late on a machine with processors for all.

        On a crowded one the ranks wait for processors in turns, some more than
        others by chance.  The kernel's count of these waits is taken off.
        """
        waited = self.beyond("waited_ns", rank)
        if waited is None or not self.long_enough:
            return False
        usual = self.usual("waited_ns", rank)
        excess = self.found.excess_ns[rank] - waited
        span = self.found.span_ns - usual
        return (
            usual >= CROWDED * self.found.span_ns
            and excess >= EXCESS * span
            and self.ms_per_step(excess) >= FLOOR_MS
        )

    def run_queue_delay_ns(self, rank: int) -> float:
        """What the rank was kept from a processor beyond its peers, by no doing of its own.

        0 where the kernel does not tell.
        """
        return max(0.0, self.beyond("waited_ns", rank) or 0.0)

    def served_ns(self, rank: int) -> float:
        """The time less what the rank waited for a processor: what it would have taken alone."""
        return max(0.0, self.found.span_ns - (self.did[rank].waited_ns or 0.0))

    def tenths_beyond(self, rank: int, factor: float) -> int:
        """In how many tenths of the time it used ``factor`` times the processor of its peers."""
        parts = {r: d.cpu_parts for r, d in self.did.items()}
        peers = [p for r, p in parts.items() if r != rank]
        return sum(
            mine >= factor * median(peer[i] for peer in peers) for i, mine in enumerate(parts[rank])
        )

    def beyond(self, name: str, rank: int) -> float | None:
        """A field of ``TimeBreakdown`` beyond the peers' median; None where not all have it."""
        values = {r: getattr(d, name) for r, d in self.did.items()}
        if rank not in values or None in values.values() or len(values) < 2:
            return None
        return beyond_peers(values, rank)

    def usual(self, name: str, rank: int) -> float:
        """The median of the peers' quantity."""
        return float(getattr(self.did[rank], name)) - (self.beyond(name, rank) or 0.0)

    def effect(self, ns: float, section: str | None = None) -> Effect:
        return Effect(
            section=section,
            ms_per_step=round(self.ms_per_step(ns), 3),
            share_of_step=round(min(1.0, self.share(ns)), 4),
        )

    def lag(self, rank: int) -> Evidence:
        found = self.found
        return Evidence(
            "flight_recorder",
            rank,
            f"was last, by its own doing, into {found.last[rank]} of {found.compared[rank]} "
            f"operations; its own time exceeds its peers' by "
            f"{self.ms_per_step(max(0.0, found.excess_ns[rank])):.1f} ms a step, and they lost "
            f"{found.lost_ns[rank] / 1e6:.0f} ms to it, {found.share(rank):.0%} of the time",
        )
