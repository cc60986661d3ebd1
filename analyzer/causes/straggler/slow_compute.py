"""``slow_compute``: a rank that works longer than its peers, by its processor time or by where
it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hanglab.analyzer.causes.straggler.lost_time import JobTiming
from hanglab.analyzer.facts.sampled_lines import busiest_line, shares_of_line
from hanglab.analyzer.proposal import Order, Proposal, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_line, name_ranks
from hanglab.recorder.slowness.section_costs import heaviest_section
from hanglab.recorder.slowness.thresholds import (
    ALWAYS_LATE_SHARE,
    CERTAIN,
    OWN_LINE_FACTOR,
    OWN_LINE_SHARE,
    SECTION_PART,
)


def slow_compute(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    window = timing.window
    culprits = [r for r in window.times if r not in named and window.computes_more(r)]
    if not culprits:
        yield from _slow_elsewhere(timing, named)
        return
    worst = timing.worst(culprits)
    excess = window.beyond("work_ns", worst) or 0.0
    usual = window.usual("work_ns", worst)
    section = heaviest_section(window.sections, worst, SECTION_PART * excess)
    line = busiest_line(timing.known, worst, section)
    # On a crowded machine its peers may have waited for a processor for as long.
    cost = max(window.lateness[worst].excess_ns, excess)
    yield propose(
        timing.known,
        Order.SLOW,
        Cause.SLOW_COMPUTE,
        culprits,
        status=Status.SLOW,
        confidence=min(0.97, 0.65 + sum(window.lateness[r].excess_share for r in culprits)),
        summary=f"{name_ranks(culprits).capitalize()} computed "
        f"{(usual + excess) / max(usual, 1.0):.1f} times as long as its peers"
        + (f", most of it in section {section}," if section else "")
        + " and they wait for it.",
        evidence=[
            Evidence(
                "progress",
                r,
                f"used {window.ms_per_step(did.work_ns or 0.0):.1f} ms of processor time a step",
            )
            for r, did in sorted(window.times.items())
        ]
        + [timing.lag(r) for r in culprits],
        location=timing.known.ranks[worst].location(line) if line else None,
        effect=timing.effect(cost, section if section else None),
    )


def _slow_elsewhere(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    """A rank that its peers always wait for, seen at a line of its own, without computing more."""
    known, window = timing.known, timing.window
    for rank in window.times:
        view = known.ranks[rank]
        if (
            rank in named
            or not window.is_late(rank, CERTAIN)
            or window.lateness[rank].share - window.share(window.run_queue_delay_ns(rank))
            < ALWAYS_LATE_SHARE
        ):
            continue
        line = busiest_line(known, rank)
        if line is None:
            continue
        shares = shares_of_line(known, line)
        own = shares.pop(rank)
        peers = shares.values()
        if own < OWN_LINE_SHARE or not peers or own < OWN_LINE_FACTOR * max(peers):
            continue
        location = view.location(line)
        yield propose(
            known,
            Order.SLOW,
            Cause.SLOW_COMPUTE,
            [rank],
            status=Status.SLOW,
            confidence=0.7,
            summary=f"Rank {rank} is always last: it spends {own:.0%} of its own "
            f"time{name_line(location)}, where its peers spend next to none; it does not compute "
            "more than they do, so it waits for something there.",
            evidence=[
                timing.lag(rank),
                Evidence(
                    "progress",
                    rank,
                    f"{own:.0%} of the samples that are not its peers' too{name_line(location)}",
                ),
            ],
            location=location,
            effect=timing.effect(window.lateness[rank].excess_ns),
        )
