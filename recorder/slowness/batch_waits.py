"""Waits for input batch by batch: whether all loaders are too slow, or one rank's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.recorder.slowness.input_waits import InputWait
from hanglab.recorder.slowness.job_window import JobWindow, Lateness
from hanglab.recorder.slowness.statistics import median
from hanglab.recorder.slowness.thresholds import (
    BATCH_FLOOR_MS,
    BUSY_LOADER,
    DOMINANT_INPUT_SHARE,
    IDLE_LOADER,
    INPUT_SHARE,
    LOADER_FACTOR,
    LOSS_SHARE,
    MAIN_PART,
    UNSEEN_WAIT_SHARE,
)


@dataclass(frozen=True)
class BatchWait(InputWait):
    """One rank's waits batch by batch: how many, and milliseconds of one."""

    count: int = 0
    wait_ms: float = 0.0
    #: Milliseconds to make a batch, all workers together, waits for a processor left out; None
    #: if not known.
    batch_ms: float | None = None
    #: The rank makes its batches itself: it waits for all that they take.
    in_process: bool = False


def starved_ranks(by_rank: Mapping[int, BatchWait], world_size: int) -> list[int]:
    """The ranks that are seen to wait, the longest first, where every rank's loader is too slow.

    Empty where that is not proved of every rank.  The others wait for those, behind a loader
    that is no faster: they wait in turns, and whose is behind just then keeps all the others.
    """
    behind = [
        wait
        for wait in by_rank.values()
        if wait.share >= DOMINANT_INPUT_SHARE or (wait.busy or 0.0) >= BUSY_LOADER
    ]
    waiting = sorted(
        (
            rank
            for rank, wait in by_rank.items()
            if wait.share >= UNSEEN_WAIT_SHARE and wait.wait_ms >= BATCH_FLOOR_MS
        ),
        key=lambda rank: -by_rank[rank].share,
    )
    proved = all(wait.saturated for wait in by_rank.values())
    enough = INPUT_SHARE if proved else DOMINANT_INPUT_SHARE
    if len(behind) < world_size or sum(by_rank[rank].share for rank in waiting) < enough:
        return []
    return waiting


def starved_share(by_rank: Mapping[int, BatchWait], waiting: list[int]) -> float:
    """Share of the time that a starved job waits for its input."""
    shares = [wait.share for wait in by_rank.values()]
    if all(share >= DOMINANT_INPUT_SHARE for share in shares):
        return median(shares)
    return min(1.0, sum(by_rank[rank].share for rank in waiting))


def input_excess_ms(by_rank: Mapping[int, BatchWait], rank: int) -> float:
    """Milliseconds that the rank waits for a batch beyond its peers."""
    return by_rank[rank].wait_ms - _usual_ms(by_rank, rank)


def cost_of_slow_input(
    window: JobWindow, by_rank: Mapping[int, BatchWait], rank: int
) -> float | None:
    """Share of the time that the rank's loader costs the job; None where its peers' do not keep up
    either, or nothing shows that it is the loader."""
    wait = by_rank[rank]
    if _may_starve_unseen(by_rank, rank):
        return None
    if wait.busy is not None and wait.busy < IDLE_LOADER:
        return None  # its loader makes batches fast enough; they came late for another reason
    if _merely_delayed(by_rank, rank):
        return None
    late = window.lateness.get(rank, Lateness(window.span_ns))
    cost = max(late.late_share, late.excess_share)
    cost -= window.share(window.run_queue_delay_ns(rank))
    excess_ms = max(input_excess_ms(by_rank, rank), _own_ms(window, rank, late))
    if (
        wait.share >= LOSS_SHARE
        and wait.wait_ms >= LOADER_FACTOR * _usual_ms(by_rank, rank)
        and excess_ms >= BATCH_FLOOR_MS
        and cost >= LOSS_SHARE
        and late.late_share >= LOSS_SHARE / 2
    ):
        return cost
    return None


def _usual_ms(by_rank: Mapping[int, BatchWait], rank: int) -> float:
    return median(wait.wait_ms for r, wait in by_rank.items() if r != rank)


def _own_ms(window: JobWindow, rank: int, late: Lateness) -> float:
    """Waits for input in the rank's own time beyond its peers', if they are most of its excess."""
    waited = window.beyond("input_ns", rank) or 0.0
    if rank not in window.times or waited < MAIN_PART * late.excess_ns:
        return 0.0
    return window.ms_per_step(waited)


def _merely_delayed(by_rank: Mapping[int, BatchWait], rank: int) -> bool:
    """True if its batches take no longer than the peers' but for waits for a processor."""
    own = by_rank[rank].batch_ms
    peers = [wait.batch_ms for r, wait in by_rank.items() if r != rank]
    known = [ms for ms in peers if ms is not None]
    return own is not None and len(known) == len(peers) and own < LOADER_FACTOR * median(known)


def _may_starve_unseen(by_rank: Mapping[int, BatchWait], rank: int) -> bool:
    """True if another rank's loader may be as slow, hidden by the time its rank waits anyway."""
    own = by_rank[rank].busy
    peers = [wait for r, wait in by_rank.items() if r != rank]
    if own is not None and all(peer.busy is not None for peer in peers):
        return own < LOADER_FACTOR * median(peer.busy or 0.0 for peer in peers)
    return any(
        peer.busy is None and not peer.in_process and peer.share >= UNSEEN_WAIT_SHARE
        for peer in peers
    )
