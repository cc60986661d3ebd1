"""``slow_host``: a rank that is kept from its processor by something that is no part of the job.

Ranks that may use the same processors are kept from them by turns, on a crowded
machine also unfairly: that is the machine's load and nobody's fault.  It is held
against a rank's place only where that differs from its peers', by host or by
binding.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hanglab.analyzer.causes.straggler.lost_time import CERTAIN, COST, MAIN_PART, Scene
from hanglab.analyzer.proposal import Order, Proposal, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status

#: Share of the time that a rank must wait for a processor beyond its peers.
_KEPT = 0.15
#: Its waits per processor time against the median of its peers': who works more waits more.
_FACTOR = 2.5
#: What it may compute more than its peers for each second that it waits beyond them: work
#: that is interrupted again and again finds its caches cold.
_OWN_WORK = 0.5


def slow_host(scene: Scene) -> Iterator[Proposal]:
    """Runnable without a processor, by the kernel's own count, far more than its peers."""
    culprits = [rank for rank in scene.did if _kept_waiting(scene, rank)]
    if not culprits or len(culprits) == len(scene.did):
        return
    worst = max(culprits, key=lambda rank: scene.found.excess_ns[rank])
    cost = scene.found.excess_ns[worst]
    yield propose(
        scene.known,
        Order.SLOW,
        Cause.SLOW_HOST,
        culprits,
        status=Status.SLOW,
        confidence=min(0.95, 0.65 + scene.share(cost)),
        summary=f"{name_ranks(culprits).capitalize()} does no more work than its peers but waits "
        f"for a processor {_share(scene, worst):.0%} of the time; the others wait for it.",
        evidence=[
            Evidence(
                "progress",
                rank,
                f"was runnable without a processor {_share(scene, rank):.0%} of the time",
            )
            for rank in sorted(scene.did)
        ]
        + [scene.lag(rank) for rank in culprits]
        + _pinned(scene, culprits),
        effect=scene.effect(cost),
    )


def _share(scene: Scene, rank: int) -> float:
    return scene.share(scene.did[rank].waited_ns or 0.0)


def _kept_waiting(scene: Scene, rank: int) -> bool:
    waited = scene.beyond("waited_ns", rank)
    worked = scene.beyond("work_ns", rank)
    if waited is None or worked is None or not scene.late(rank, CERTAIN):
        return False
    excess = scene.found.excess_ns[rank]
    ratio = {r: (d.waited_ns or 0.0) / max(d.cpu_ns or 0.0, 1e6) for r, d in scene.did.items()}
    usual = median(ratio[r] for r in ratio if r != rank)
    return (
        scene.share(waited) >= max(_KEPT, COST)
        and waited >= MAIN_PART * excess
        and worked <= _OWN_WORK * waited
        and ratio[rank] >= _FACTOR * max(usual, 0.02)
        and _placed_apart(scene, rank)
    )


def _placed_apart(scene: Scene, rank: int) -> bool:
    """Whether its host or its processors are not those of any peer's."""
    known = scene.known
    host = known.ranks[rank].host
    mine = _processors(scene, rank)
    here = [r for r in scene.did if r != rank and known.ranks[r].host == host]
    return all(
        mine is not None and (theirs := _processors(scene, r)) is not None and theirs != mine
        for r in here
    )


def _processors(scene: Scene, rank: int) -> str | None:
    """Processors that the rank may use, as in ``0-3,8``; None where nobody looked."""
    loads = scene.known.host_of(rank).loads(rank)
    return (loads[-1].cpus or None) if loads else None


def _pinned(scene: Scene, culprits: list[int]) -> list[Evidence]:
    return [
        Evidence("host", rank, f"may run on processor {cpus} only, unlike its peers")
        for rank in culprits
        if (cpus := _processors(scene, rank)) is not None
        and any(_processors(scene, r) != cpus for r in scene.did if r != rank)
    ]
