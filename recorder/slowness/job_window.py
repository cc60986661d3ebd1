"""A window of a whole job: which rank its peers wait for, and what filled its time.

A rank is held to account only for its own time beyond its peers', where they lose by it,
again and again.  Which cause it is, what filled that time decides.  Processor time is not
stretched by a crowded machine; waits for a processor are counted apart and taken off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hanglab.recorder.slowness.section_costs import Costs, longer, slower_throughout
from hanglab.recorder.slowness.statistics import beyond_peers, median
from hanglab.recorder.slowness.thresholds import (
    ALL_TENTHS,
    BLURRED_SHARE,
    CERTAIN,
    CLEAR_FACTOR,
    CLEAR_TENTHS,
    COLD_CACHE_FACTOR,
    CROWDED_SHARE,
    FAINTLY_LATE,
    FEWEST_IN_JOB,
    HARDLY_DELAYED,
    INTERRUPTED_WORK,
    LARGER_BATCHES,
    LEAST_PROCESSOR_NS,
    LIKELY_LATE,
    LIKELY_SLOWED,
    LOSS_SHARE,
    MAIN_PART,
    MOST_TENTHS,
    MOSTLY_DELAYED,
    RUN_QUEUE_FACTOR,
    RUN_QUEUE_RATIO,
    RUN_QUEUE_SHARE,
    SHORTEST_JOB_NS,
    SLOW_FACTOR,
    STALLED_SHARE,
    STALLS,
    STRETCH_FLOOR_MS,
    THROUGHOUT,
    UNEQUAL_STALLS,
    WORK_ERROR,
    WORK_POWER,
)


@dataclass(frozen=True)
class Lateness:
    """Lateness of one rank into the operations of its groups, by its own doing; nanoseconds."""

    #: Length of the window.
    span_ns: int
    #: Operations that it was compared in, and that it was last into.
    compared: int = 0
    last: int = 0
    #: What the median peer lost by it, and the longest single wait.
    lost_ns: int = 0
    longest_ns: int = 0
    #: What it would have cost the median peer had no other been later.
    late_ns: int = 0
    #: Its own time beyond its peers', without the longest single one.
    excess_ns: float = 0.0
    #: Mean of that over its standard error.
    certainty: float = 0.0
    #: Its own time beyond its peers' in each of several equal parts of the window.
    excess_parts: Sequence[float] = ()

    @property
    def share(self) -> float:
        """Share of the window that its peers lost to it, again and again.

        Their longest wait is left out: once is not again.
        """
        return self._share(self.lost_ns - self.longest_ns)

    @property
    def late_share(self) -> float:
        """Like ``share``, but not hidden by another rank that is later still."""
        return self._share(self.late_ns - self.longest_ns)

    @property
    def excess_share(self) -> float:
        """Share of the window that is its own time beyond its peers'."""
        return self._share(self.excess_ns)

    def _share(self, ns: float) -> float:
        span = self.span_ns - self.longest_ns
        return ns / span if span > 0 else 0.0


@dataclass
class TimeBreakdown:
    """Breakdown of one rank's window: its processor, its loader, its garbage collector.

    Nanoseconds.  ``cpu_ns`` and ``waited_ns`` are what the process used and what its main
    thread waited for a processor; None where nobody looked.
    """

    #: Waits for its loader, and processor time of the main thread in them: without workers
    #: that is the loader's.
    input_ns: float = 0.0
    input_cpu_ns: float = 0.0
    collecting_ns: float = 0.0
    collections: int = 0
    cpu_ns: float | None = None
    waited_ns: float | None = None
    #: ``cpu_ns`` and ``waited_ns`` in each of several equal parts of the window.
    cpu_parts: Sequence[float] = field(default_factory=list)
    waited_parts: Sequence[float] = field(default_factory=list)
    #: Elements of the batches that it drew, on average, and their number.
    elements: float | None = None
    batches: int = 0

    @property
    def work_ns(self) -> float | None:
        """Processor time that neither the loader nor the garbage collector took."""
        if self.cpu_ns is None:
            return None
        return max(0.0, self.cpu_ns - self.input_cpu_ns - self.collecting_ns)


@dataclass(frozen=True)
class JobWindow:
    """The ranks of a job over one span of time, compared with each other."""

    span_ns: int
    #: Operations that ranks were compared in; and steps of the job or, where none are marked,
    #: stretches of work between its operations: at least 1.
    operations: int
    steps: int
    lateness: Mapping[int, Lateness]
    times: Mapping[int, TimeBreakdown]
    #: Processor time of sections, where any were marked.
    sections: Costs = field(default_factory=dict)
    #: All ranks have the same part in the job, as stages of a pipeline have not.
    alike: bool = False

    @property
    def long_enough(self) -> bool:
        return self.operations >= FEWEST_IN_JOB and self.span_ns >= SHORTEST_JOB_NS

    @property
    def lost_in_turns(self) -> dict[int, int]:
        """Nanoseconds that its peers lost to each rank, without the longest single wait."""
        return {rank: one.lost_ns - one.longest_ns for rank, one in self.lateness.items()}

    def ms_per_step(self, ns: float) -> float:
        return ns / self.steps / 1e6

    def share(self, ns: float) -> float:
        return ns / self.span_ns if self.span_ns > 0 else 0.0

    def beyond(self, name: str, rank: int) -> float | None:
        """A field of ``TimeBreakdown`` beyond the median of the peers that have it, too.

        None where the rank or all of them lack it.
        """
        known = {r: ns for r, t in self.times.items() if (ns := getattr(t, name)) is not None}
        return beyond_peers(known, rank) if rank in known and len(known) > 1 else None

    def usual(self, name: str, rank: int) -> float:
        """The median of the peers' field."""
        return float(getattr(self.times[rank], name)) - (self.beyond(name, rank) or 0.0)

    def is_late(self, rank: int, certainty: float = LIKELY_LATE, share: float = LOSS_SHARE) -> bool:
        """True if the rank's own time exceeds its peers' by enough, and they lose by it."""
        late = self.lateness.get(rank)
        return (
            late is not None
            and self.long_enough
            and late.compared >= FEWEST_IN_JOB
            and late.late_share >= share / 2
            and late.excess_share >= share
            and self.ms_per_step(late.excess_ns) >= STRETCH_FLOOR_MS
            and late.certainty >= certainty
        )

    def is_late_without_delay(self, rank: int) -> bool:
        """True if it would be late on a machine with processors for all.

        On a crowded one the ranks wait for processors in turns, some more than
        others by chance.  The kernel's count of these waits is taken off.
        """
        waited = self.beyond("waited_ns", rank)
        if waited is None or not self.long_enough:
            return False
        usual = self.usual("waited_ns", rank)
        excess = self.lateness[rank].excess_ns - waited
        span = self.span_ns - usual
        return (
            usual >= CROWDED_SHARE * self.span_ns
            and excess >= LOSS_SHARE * span
            and self.ms_per_step(excess) >= STRETCH_FLOOR_MS
        )

    def run_queue_delay_ns(self, rank: int) -> float:
        """Waits of the rank for a processor beyond its peers', by no doing of its own.

        0 where the kernel does not tell.
        """
        return max(0.0, self.beyond("waited_ns", rank) or 0.0)

    def own_excess_ns(self, rank: int) -> float | None:
        """Own time of the rank beyond its peers', computing or blocked (sleep, file, remote call).

        Its waits for a processor and for its loader and its garbage collector's runs are taken
        off.  None where the kernel does not tell of the waits.
        """
        if self.beyond("waited_ns", rank) is None:
            return None
        others = (self.beyond(name, rank) or 0.0 for name in ("input_ns", "collecting_ns"))
        taken = self.run_queue_delay_ns(rank) + sum(max(0.0, ns) for ns in others)
        return self.lateness[rank].excess_ns - taken

    def is_blocked(self, rank: int) -> bool:
        """True if the rank is late for most part by own time in which it does not compute."""
        own, work = self.own_excess_ns(rank), self.beyond("work_ns", rank)
        if own is None or work is None:
            return False
        if own - max(0.0, work) >= MAIN_PART * own and self._stalls(rank, own):
            return True
        if not self.is_late(rank, CERTAIN):
            return False
        late = self.lateness[rank]
        return (
            own - self._unseen_ns(rank) >= LOSS_SHARE * self.span_ns
            and own * late.certainty >= CERTAIN * late.excess_ns
            and own - max(0.0, work) >= MAIN_PART * own
            and self._tenths_blocked(rank) >= ALL_TENTHS
        )

    def _stalls(self, rank: int, own: float) -> bool:
        """True if few long stalls of the rank cost its peers much of the time.

        The mean of n equal ones among many short stretches has a certainty of the root of n,
        however much they cost.  That they come again in most parts of the window tells.
        """
        late = self.lateness[rank]
        number = late.excess_ns / late.longest_ns if late.longest_ns else 0.0
        return (
            late.certainty < CERTAIN  # Of more, the mean tells.
            and STALLS <= number <= UNEQUAL_STALLS * late.certainty**2
            and own - self._unseen_ns(rank) >= STALLED_SHARE * self.span_ns
            and self.is_late(rank, LIKELY_SLOWED, STALLED_SHARE)
            and self._tenths_blocked(rank) >= MOST_TENTHS
        )

    def _unseen_ns(self, rank: int) -> float:
        """Nanoseconds that the rank waited for a processor, and nobody counts, at most.

        Its main thread waits for others of its own (autograd's, a loader's), and these for a
        processor, as main threads do on this machine: in 60 steps of a sound job one waited for
        0.44 of the time, the others for 0.04, and a rank was 0.14 of it behind.
        """
        return max(
            (times.waited_ns or 0.0 for peer, times in self.times.items() if peer != rank),
            default=0.0,
        )

    def _tenths_blocked(self, rank: int) -> int:
        """Number of tenths of the window that lost as much to it, waits for a processor taken off.

        Steps are not independent of each other: a machine that disturbs one rank for half a
        second makes dozens of them late, and the mean of all as certain as if it were the rank's.
        """
        excess = self.lateness[rank].excess_parts
        own = self.times[rank].waited_parts
        peers = [t.waited_parts for r, t in self.times.items() if r != rank and t.waited_parts]
        least = LOSS_SHARE * self.span_ns / max(1, len(excess))
        return sum(
            late - max(0.0, waited - median(peer[i] for peer in peers)) >= least
            for i, (late, waited) in enumerate(zip(excess, own, strict=False))
        )

    def computes_more(self, rank: int) -> bool:
        """True if the rank is late and uses more processor time than its peers by as much."""
        excess = self.beyond("work_ns", rank)
        if excess is None:
            return False
        usual = self.usual("work_ns", rank)
        if (
            excess < LEAST_PROCESSOR_NS
            or excess < LOSS_SHARE * self._served_ns(rank)
            or self.ms_per_step(excess) < STRETCH_FLOOR_MS
            or usual + excess < SLOW_FACTOR * usual
        ):
            return False
        factor = (usual + excess) / max(usual, 1.0)
        tenths = self._tenths_beyond(rank)
        if slower_throughout(self.sections, rank, 1 + THROUGHOUT * (factor - 1)):
            return False
        delayed = self.run_queue_delay_ns(rank) > MOSTLY_DELAYED * excess
        delayed = delayed and self._waits_far_more(rank)
        shown = longer(self.sections, rank)
        # The quickest fifth of its entries has told already that they all take longer.
        if shown and tenths >= CLEAR_TENTHS and self._hides_lateness and not delayed:
            return self.long_enough
        if factor >= CLEAR_FACTOR:
            # Work that shows all through proves itself; the lateness that it makes is noisier, as
            # that of a few long stretches among many short ones.
            certainty = FAINTLY_LATE if tenths >= ALL_TENTHS else LIKELY_LATE
            late = self.is_late(rank, certainty) or self.is_late_without_delay(rank)
            return tenths >= CLEAR_TENTHS and late
        if tenths < ALL_TENTHS or delayed:
            return False
        if not self.sections:
            return (
                factor >= COLD_CACHE_FACTOR
                and self.is_late(rank, CERTAIN)
                and self.run_queue_delay_ns(rank) <= HARDLY_DELAYED * excess
            )
        return shown and self.keeps_peers_waiting(rank)

    def keeps_peers_waiting(self, rank: int) -> bool:
        """True if the rank is late, however faintly, or would be with processors for all."""
        faintly = self.is_late(rank, FAINTLY_LATE, LOSS_SHARE / 2)
        return faintly or self.is_late_without_delay(rank)

    @property
    def _hides_lateness(self) -> bool:
        """True if ranks wait for processors so long that who is late hangs on chance.

        Processors are what such a machine lacks: what one rank takes of them beyond its peers
        costs these as much, whoever enters an operation last.  Of ranks with parts of their own
        lateness alone is compared between those that have the same.
        """
        if not self.alike:
            return False
        waited = [times.waited_ns for times in self.times.values() if times.waited_ns is not None]
        return sum(waited) > BLURRED_SHARE * self.span_ns * len(self.times)

    def _served_ns(self, rank: int) -> float:
        """The window less what the rank waited for a processor: what it would take alone."""
        return max(0.0, self.span_ns - (self.times[rank].waited_ns or 0.0))

    def _tenths_beyond(self, rank: int) -> int:
        """Number of tenths of the window in which it used so much more processor than its peers."""
        peers = [
            times.cpu_parts for r, times in self.times.items() if r != rank and times.cpu_parts
        ]
        return sum(
            own >= SLOW_FACTOR * median(peer[i] for peer in peers)
            for i, own in enumerate(self.times[rank].cpu_parts)
        )

    def larger_batches(self, rank: int) -> float:
        """Size of the rank's batches on average over its peers'."""
        return (self.times[rank].elements or 0.0) / max(self.usual("elements", rank), 1.0)

    def computes_for_larger_batches(self, rank: int) -> bool:
        """True if the rank computes more, and as much more as larger batches ask for."""
        larger = self.larger_batches(rank)
        if larger < LARGER_BATCHES or not self.computes_more(rank):
            return False
        work = (self.times[rank].work_ns or 0.0) / max(self.usual("work_ns", rank), 1.0)
        return bool(work <= WORK_ERROR * larger**WORK_POWER)

    def lacks_a_processor(self, rank: int) -> bool:
        """True if the rank is late since it waits for a processor far more than its peers."""
        waited = self.beyond("waited_ns", rank)
        worked = self.beyond("work_ns", rank)
        if waited is None or worked is None or not self.is_late(rank, CERTAIN):
            return False
        return (
            self.share(waited) >= RUN_QUEUE_SHARE
            and waited >= MAIN_PART * self.lateness[rank].excess_ns
            and worked <= INTERRUPTED_WORK * waited
            and self._waits_far_more(rank)
        )

    def _waits_far_more(self, rank: int) -> bool:
        """True if it waits for a processor far more than its peers for each second of work."""
        ratio = {
            r: times.waited_ns / max(times.cpu_ns or 0.0, 1e6)
            for r, times in self.times.items()
            if times.waited_ns is not None
        }
        usual = median(ratio[r] for r in ratio if r != rank)
        return ratio[rank] >= RUN_QUEUE_FACTOR * max(usual, RUN_QUEUE_RATIO)
