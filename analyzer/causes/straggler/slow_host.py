"""``slow_host``: a rank that is kept from its processor by something that is no part of the job.

Ranks that may use the same processors are kept from them by turns, on a crowded
machine also unfairly: that is the machine's load and nobody's fault.  It is held
against a rank's place only where that differs from its peers', by host or by
binding.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hanglab.analyzer.causes.straggler.lost_time import CERTAIN, COST, MAIN_PART, JobTiming
from hanglab.analyzer.proposal import Order, Proposal, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status

#: Share of the time that a rank must wait for a processor beyond its peers.
_KEPT = 0.15
#: Its waits per processor time against the median of its peers': who works more waits more.
_FACTOR = 2.5
#: What it may compute more than its peers for each second that it waits beyond them: work
#: that is interrupted again and again finds its caches cold.
_OWN_WORK = 0.5


def slow_host(timing: JobTiming) -> Iterator[Proposal]:
    """Runnable without a processor, by the kernel's own count, far more than its peers."""
    culprits = [rank for rank in timing.did if _kept_waiting(timing, rank)]
    if not culprits or len(culprits) == len(timing.did):
        return
    worst = max(culprits, key=lambda rank: timing.found.excess_ns[rank])
    cost = timing.found.excess_ns[worst]
    yield propose(
        timing.known,
        Order.SLOW,
        Cause.SLOW_HOST,
        culprits,
        status=Status.SLOW,
        confidence=min(0.95, 0.65 + timing.share(cost)),
        summary=f"{name_ranks(culprits).capitalize()} does no more work than its peers but waits "
        f"for a processor {_share(timing, worst):.0%} of the time; the others wait for it.",
        evidence=[
            Evidence(
                "progress",
                rank,
                f"was runnable without a processor {_share(timing, rank):.0%} of the time",
            )
            for rank in sorted(timing.did)
        ]
        + [timing.lag(rank) for rank in culprits]
        + _pinned(timing, culprits),
        effect=timing.effect(cost),
    )


def _share(timing: JobTiming, rank: int) -> float:
    return timing.share(timing.did[rank].waited_ns or 0.0)


def _kept_waiting(timing: JobTiming, rank: int) -> bool:
    waited = timing.beyond("waited_ns", rank)
    worked = timing.beyond("work_ns", rank)
    if waited is None or worked is None or not timing.late(rank, CERTAIN):
        return False
    excess = timing.found.excess_ns[rank]
    ratio = {r: (d.waited_ns or 0.0) / max(d.cpu_ns or 0.0, 1e6) for r, d in timing.did.items()}
    usual = median(ratio[r] for r in ratio if r != rank)
    return (
        timing.share(waited) >= max(_KEPT, COST)
        and waited >= MAIN_PART * excess
        and worked <= _OWN_WORK * waited
        and ratio[rank] >= _FACTOR * max(usual, 0.02)
        and _placed_apart(timing, rank)
    )


def _placed_apart(timing: JobTiming, rank: int) -> bool:
    """Whether its host or its processors are not those of any peer's."""
    known = timing.known
    host = known.ranks[rank].host
    mine = _processors(timing, rank)
    here = [r for r in timing.did if r != rank and known.ranks[r].host == host]
    return all(
        mine is not None and (theirs := _processors(timing, r)) is not None and theirs != mine
        for r in here
    )


def _processors(timing: JobTiming, rank: int) -> str | None:
    """Processors that the rank may use, as in ``0-3,8``; None where nobody looked."""
    loads = timing.known.host_of(rank).loads(rank)
    return (loads[-1].cpus or None) if loads else None


def _pinned(timing: JobTiming, culprits: list[int]) -> list[Evidence]:
    return [
        Evidence("host", rank, f"may run on processor {cpus} only, unlike its peers")
        for rank in culprits
        if (cpus := _processors(timing, rank)) is not None
        and any(_processors(timing, r) != cpus for r in timing.did if r != rank)
    ]
