"""``slow_host``: a rank that is kept from its processor by something that is no part of the job.

Ranks that may use the same processors are kept from them by turns, on a crowded
machine also unfairly: that is the machine's load and nobody's fault.  It is held
against a rank's place only where that differs from its peers', by host or by
binding.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import SHOWN, SLOW
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_ranks


def slow_host(timing: JobTiming) -> Iterator[Proposal]:
    """Runnable without a processor, by the kernel's own count, far more than its peers."""
    window = timing.window
    culprits = [
        rank
        for rank in window.times
        if window.lacks_a_processor(rank) and _placed_apart(timing, rank)
    ]
    if not culprits or len(culprits) == len(window.times):
        return
    worst = timing.worst(culprits)
    cost = window.lateness[worst].excess_ns
    yield propose(
        timing.known,
        Cause.SLOW_HOST,
        culprits,
        status=Status.SLOW,
        confidence=min(SHOWN, SLOW + window.share(cost)),
        summary=f"{name_ranks(culprits).capitalize()} does no more work than its peers but waits "
        f"for a processor {_share(timing, worst):.0%} of the time; the others wait for it.",
        evidence=[
            Evidence(
                "progress",
                rank,
                f"was runnable without a processor {_share(timing, rank):.0%} of the time",
            )
            for rank in sorted(window.times)
        ]
        + [timing.lag(rank) for rank in culprits]
        + _pinned(timing, culprits),
        effect=timing.effect(cost),
    )


def _share(timing: JobTiming, rank: int) -> float:
    return timing.window.share(timing.window.times[rank].waited_ns or 0.0)


def _placed_apart(timing: JobTiming, rank: int) -> bool:
    """True if its host or its processors are not those of any peer's."""
    known = timing.known
    host = known.ranks[rank].host
    mine = _processors(timing, rank)
    here = [r for r in timing.window.times if r != rank and known.ranks[r].host == host]
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
        and any(_processors(timing, r) != cpus for r in timing.window.times if r != rank)
    ]
