"""``imbalance``: ranks that work longer because their inputs are larger."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np

from hanglab.analyzer.facts.aligned_collectives import Times
from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.facts.sampled_lines import busiest_line
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import SEEN, SHOWN, SLOW, UNCORRELATED
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.slowness.thresholds import (
    CORRELATED,
    FEWEST_IN_JOB,
    STRETCH_FLOOR_MS,
    TURNS_PART,
    TURNS_SHARE,
)


def imbalance(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    window = timing.window
    if any(t.batches < FEWEST_IN_JOB or not t.elements for t in window.times.values()):
        return
    persistent = [
        rank
        for rank in window.times
        if rank not in named and window.computes_for_larger_batches(rank)
    ]
    if persistent:
        yield _persistent(timing, persistent)
    elif not named:
        yield from _in_turns(timing)


def _persistent(timing: JobTiming, culprits: list[int]) -> Proposal:
    window = timing.window
    worst = timing.worst(culprits)
    cost = max(window.lateness[worst].excess_ns, window.beyond("work_ns", worst) or 0.0)
    line = busiest_line(timing.known, worst)
    return propose(
        timing.known,
        Cause.IMBALANCE,
        culprits,
        status=Status.SLOW,
        confidence=min(SHOWN, SLOW + window.share(cost)),
        summary=f"{name_ranks(culprits).capitalize()} gets batches "
        f"{window.larger_batches(worst):.1f} times as large as its peers', computes accordingly "
        "longer, and they wait for it.",
        evidence=_sizes(timing) + [timing.lag(rank) for rank in culprits],
        location=timing.known.ranks[worst].location(line) if line else None,
        effect=timing.effect(cost),
    )


def _sizes(timing: JobTiming) -> list[Evidence]:
    window = timing.window
    return [
        Evidence(
            "progress",
            rank,
            f"drew {did.batches} batches of {did.elements or 0:.0f} elements on average"
            + (
                f" and used {window.ms_per_step(did.work_ns):.1f} ms of processor time a step"
                if did.work_ns is not None
                else ""
            ),
        )
        for rank, did in sorted(timing.window.times.items())
    ]


def _in_turns(timing: JobTiming) -> Iterator[Proposal]:
    """No rank is slower than the others for long; whoever has the largest batch is late."""
    window = timing.window
    lost = window.lost_in_turns
    total = float(sum(lost.values()))
    if (
        not window.long_enough
        or window.share(total) < TURNS_SHARE
        or window.ms_per_step(total) < STRETCH_FLOOR_MS
    ):
        return
    correlation = _correlation(timing)
    if correlation < CORRELATED:
        return
    culprits = sorted(r for r in lost if lost[r] >= TURNS_PART * total)
    yield propose(
        timing.known,
        Cause.IMBALANCE,
        culprits,
        status=Status.SLOW,
        confidence=min(SEEN, UNCORRELATED + correlation / 2),
        summary=f"The ranks wait for each other {window.share(total):.0%} of the time: whichever "
        "has the largest batch is late.",
        evidence=[
            *_sizes(timing),
            Evidence(
                "flight_recorder",
                None,
                f"how late a rank is follows the size of its batch (correlation {correlation:.2f})",
            ),
        ],
        victims=[],
        effect=timing.effect(total),
    )


def _correlation(timing: JobTiming) -> float:
    """Between what ranks took and what their batches held, beyond the step's and the rank's means.

    A step lasts from one batch of a rank to its next.  0 where it cannot be told.
    """
    sizes, times = [], []
    for rank in sorted(timing.window.times):
        progress = timing.known.ranks[rank].progress
        assert progress is not None  # it drew batches
        drawn = timing.found.local(rank, (b.at_ns for b in progress.batches))
        own = timing.found.own(rank).before(drawn)
        elements = [float(b.elements) for b in progress.batches]
        sizes.append(elements[:-1])
        times.append([later - earlier for earlier, later in pairwise(own.tolist())])
    shortest = min(len(s) for s in sizes)
    if shortest < FEWEST_IN_JOB:
        return 0.0
    # The rings hold the latest: steps are counted from their ends.
    size = np.array([s[-shortest:] for s in sizes])
    took = np.array([t[-shortest:] for t in times])
    size, took = _centred(size), _centred(took)
    norm = float(np.sqrt((size**2).sum() * (took**2).sum()))
    return float((size * took).sum()) / norm if norm > 0 else 0.0


def _centred(values: Times) -> Times:
    centred: Times = (
        values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    )
    return centred
