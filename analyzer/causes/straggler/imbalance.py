"""``imbalance``: ranks that work longer because their inputs are larger."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np

from hanglab.analyzer.causes.straggler.lost_time import COST, FLOOR_MS, JobTiming
from hanglab.analyzer.causes.straggler.slow_compute import computes_more
from hanglab.analyzer.facts.aligned_collectives import Times
from hanglab.analyzer.facts.sampled_lines import busiest_line
from hanglab.analyzer.proposal import Order, Proposal, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status

#: How much larger than its peers' a rank's batches must be to account for more work.
_LARGER = 1.15
#: Work grows with the square of a sequence's length at most, and is measured with an error.
_POWER = 2.0
_ERROR = 1.3
#: Batches, and least share of a rank's excess of time that follows the size of its batches.
_FEWEST = 12
_CORRELATED = 0.5
#: Share of the time that the ranks must lose to each other where they take turns.
_TURNS = 0.12


def imbalance(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    if any(d.batches < _FEWEST or not d.elements for d in timing.did.values()):
        return
    persistent = [rank for rank in timing.did if rank not in named and _explained(timing, rank)]
    if persistent:
        yield _persistent(timing, persistent)
    elif not named:
        yield from _in_turns(timing)


def _larger(timing: JobTiming, rank: int) -> float:
    """How many times as large as its peers' the rank's batches are, on average."""
    return (timing.did[rank].elements or 0.0) / max(timing.usual("elements", rank), 1.0)


def _explained(timing: JobTiming, rank: int) -> bool:
    """Whether the rank computes more, and as much more as larger batches ask for."""
    larger = _larger(timing, rank)
    if larger < _LARGER or not computes_more(timing, rank):
        return False
    work = (timing.did[rank].work_ns or 0.0) / max(timing.usual("work_ns", rank), 1.0)
    return bool(work <= _ERROR * larger**_POWER)


def _persistent(timing: JobTiming, culprits: list[int]) -> Proposal:
    worst = max(culprits, key=lambda rank: timing.found.excess_ns[rank])
    cost = max(timing.found.excess_ns[worst], timing.beyond("work_ns", worst) or 0.0)
    line = busiest_line(timing.known, worst)
    return propose(
        timing.known,
        Order.SLOW,
        Cause.IMBALANCE,
        culprits,
        status=Status.SLOW,
        confidence=min(0.95, 0.65 + timing.share(cost)),
        summary=f"{name_ranks(culprits).capitalize()} gets batches {_larger(timing, worst):.1f} "
        "times as large as its peers', computes accordingly longer, and they wait for it.",
        evidence=_sizes(timing) + [timing.lag(rank) for rank in culprits],
        location=timing.known.ranks[worst].location(line) if line else None,
        effect=timing.effect(cost),
    )


def _sizes(timing: JobTiming) -> list[Evidence]:
    return [
        Evidence(
            "progress",
            rank,
            f"drew {did.batches} batches of {did.elements or 0:.0f} elements on average"
            + (
                f" and used {timing.ms_per_step(did.work_ns):.1f} ms of processor time a step"
                if did.work_ns is not None
                else ""
            ),
        )
        for rank, did in sorted(timing.did.items())
    ]


def _in_turns(timing: JobTiming) -> Iterator[Proposal]:
    """No rank is slower than the others for long; whoever has the largest batch is late."""
    found = timing.found
    lost = {r: found.lost_ns[r] - found.longest_ns[r] for r in timing.did}
    total = float(sum(lost.values()))
    if (
        not timing.long_enough
        or timing.share(total) < max(_TURNS, COST)
        or timing.ms_per_step(total) < FLOOR_MS
    ):
        return
    correlation = _correlation(timing)
    if correlation < _CORRELATED:
        return
    culprits = sorted(r for r in lost if lost[r] >= 0.1 * total)
    yield propose(
        timing.known,
        Order.SLOW,
        Cause.IMBALANCE,
        culprits,
        status=Status.SLOW,
        confidence=min(0.9, 0.4 + correlation / 2),
        summary=f"The ranks wait for each other {timing.share(total):.0%} of the time: whichever "
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
    for rank in sorted(timing.did):
        progress = timing.known.ranks[rank].progress
        assert progress is not None  # it drew batches
        drawn = timing.found.local(rank, (b.at_ns for b in progress.batches))
        own = timing.found.own(rank).before(drawn)
        elements = [float(b.elements) for b in progress.batches]
        sizes.append(elements[:-1])
        times.append([later - earlier for earlier, later in pairwise(own.tolist())])
    shortest = min(len(s) for s in sizes)
    if shortest < _FEWEST:
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
