"""``gc_pause``: ranks that collect garbage while their peers wait for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hanglab.analyzer.facts.aligned_collectives import Bool, Times
from hanglab.analyzer.facts.arrival_lag import GroupLag, OwnTime
from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.facts.time_breakdown import collector_runs
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import MEASURED_SLOW, PROVED
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.slowness.thresholds import (
    COLLECTION_PART,
    FEWEST_COLLECTIONS,
    LOSS_SHARE,
    MAIN_PART,
    STRETCH_FLOOR_MS,
)


def gc_pause(timing: JobTiming) -> Iterator[Proposal]:
    """Each wait for a late rank, as far as that rank spent it in its garbage collector.

    So ranks are found that pause in turns, too, where none is later than the
    others on average.  No line is named: nobody can look at one while the collector runs.
    """
    if not timing.window.long_enough:
        return
    waits = {rank: _waits(timing, rank) for rank in timing.window.times}
    # Once is not again and again.
    lost = {rank: sum(w) - max(w, default=0.0) for rank, w in waits.items()}
    total = sum(lost.values())
    culprits = [
        rank
        for rank, ns in lost.items()
        if ns >= COLLECTION_PART * total
        and len(waits[rank]) >= FEWEST_COLLECTIONS
        and sum(waits[rank]) >= MAIN_PART * timing.window.lateness[rank].lost_ns
    ]
    cost = sum(lost[rank] for rank in culprits)
    if (
        not culprits
        or timing.window.share(cost) < LOSS_SHARE
        or timing.window.ms_per_step(cost) < STRETCH_FLOOR_MS
    ):
        return
    yield propose(
        timing.known,
        Cause.GC_PAUSE,
        culprits,
        status=Status.SLOW,
        confidence=min(PROVED, MEASURED_SLOW + timing.window.share(cost)),
        summary=f"The others wait for {name_ranks(culprits)} while Python collects garbage there, "
        f"{timing.window.share(cost):.0%} of the time.",
        evidence=[_evidence(timing, rank, waits[rank]) for rank in sorted(timing.window.times)],
        effect=timing.effect(cost),
    )


def _waits(timing: JobTiming, rank: int) -> list[float]:
    """Time that the peers lost to each of the rank's collections, in nanoseconds."""
    progress = timing.known.ranks[rank].progress
    if progress is None or not progress.pauses:
        return []
    pauses = OwnTime(collector_runs(progress, rank, timing.found))
    waits: list[float] = []
    for stretch in timing.found.group_lags:
        if rank not in stretch.members:
            continue
        place = stretch.members.index(rank)
        late = stretch.last == place
        paused = pauses.overlap(stretch.base[late, place], stretch.entered[late, place])
        together = _of_peers(timing, stretch, place, late)
        waits += np.minimum(paused - together, stretch.lost[late]).tolist()
    return [ns for ns in waits if ns > 0]


def _of_peers(timing: JobTiming, stretch: GroupLag, place: int, rows: Bool) -> Times:
    """Time that the median peer collected before the same operations: nobody loses by that."""
    collected = []
    for j, peer in enumerate(stretch.members):
        progress = timing.known.ranks[peer].progress
        if j == place:
            continue
        spans = collector_runs(progress, peer, timing.found) if progress else np.zeros((0, 2))
        collected.append(OwnTime(spans).overlap(stretch.base[rows, j], stretch.entered[rows, j]))
    middle: Times = np.median(collected, axis=0)
    return middle


def _evidence(timing: JobTiming, rank: int, waits: list[float]) -> Evidence:
    did = timing.window.times[rank]
    return Evidence(
        "progress",
        rank,
        f"collected garbage {did.collections} times for more than 0.2 ms, "
        f"{did.collecting_ns / 1e6:.0f} ms in all; its peers lost {sum(waits) / 1e6:.0f} ms to it",
    )
