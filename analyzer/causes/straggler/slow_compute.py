"""``slow_compute``: a rank that works longer than its peers, by its processor time or by where
it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hanglab.analyzer.causes.straggler.lost_time import CERTAIN, COST, EXCESS, FLOOR_MS, JobTiming
from hanglab.analyzer.facts.sampled_lines import busiest_line, shares_of_line
from hanglab.analyzer.facts.sections import heaviest_section, longer_section, slower_throughout
from hanglab.analyzer.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status

#: Processor time against the median of the peers'.  Where ranks take each other's place on a
#: processor their caches are cold, and the same work has been seen to take 20 % more on one of
#: them.  Up to CLEAR something besides must show that it is the work.
MORE = 1.15
PERSISTENT = 1.2
CLEAR = 1.5
#: Share of the time that the excess of processor time must fill, waits for a processor taken
#: off (on identical work up to 4 % were seen); and the least that clocks read now and then
#: can tell.
WORK = 0.08
LEAST_NS = 100_000_000
#: Tenths of the time in which a rank must work more, and in which it must where that is little.
OFTEN = 3
ALWAYS = 8
#: A rank that is kept from its processor for so many times its excess of processor time is a
#: crowd's victim; where no section tells, this much is.
MOSTLY_KEPT = 5.0
HARDLY_KEPT = 0.5
#: Part of the excess that every section shows where it is the processor that is slower.
THROUGHOUT = 0.5
#: Without more processor time: share of the time that a rank must cost its peers, and share of
#: its samples at one line of its own, of those that are not its peers' too.
LATE = 0.3
OWN_LINE = 0.5
#: Part of a rank's excess of processor time that a section must hold to be named.
SECTION_PART = 0.4


def computes_more(timing: JobTiming, rank: int) -> bool:
    """Whether the rank is late and uses more processor time than its peers by as much."""
    excess = timing.beyond("work_ns", rank)
    if excess is None:
        return False
    usual = timing.usual("work_ns", rank)
    if (
        excess < LEAST_NS
        or excess < WORK * timing.served_ns(rank)
        or timing.ms_per_step(excess) < FLOOR_MS
        or usual + excess < MORE * usual
    ):
        return False
    factor = (usual + excess) / max(usual, 1.0)
    tenths = timing.tenths_beyond(rank, MORE)
    if slower_throughout(timing.known, rank, 1 + THROUGHOUT * (factor - 1)):
        return False
    if factor >= CLEAR:
        return tenths >= OFTEN and (timing.late(rank) or timing.late_but_for_run_queue_delay(rank))
    if tenths < ALWAYS or timing.run_queue_delay_ns(rank) > MOSTLY_KEPT * excess:
        return False
    if heaviest_section(timing.known, rank, SECTION_PART * excess) is None:
        return (
            factor >= PERSISTENT
            and timing.late(rank, CERTAIN)
            and timing.run_queue_delay_ns(rank) <= HARDLY_KEPT * excess
        )
    late = timing.late(rank, 0.5, EXCESS / 2) or timing.late_but_for_run_queue_delay(rank)
    return late and longer_section(timing.known, rank) is not None


def slow_compute(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    culprits = [r for r in timing.did if r not in named and computes_more(timing, r)]
    if not culprits:
        yield from _slow_elsewhere(timing, named)
        return
    worst = max(culprits, key=lambda r: timing.found.excess_ns[r])
    excess = timing.beyond("work_ns", worst) or 0.0
    usual = timing.usual("work_ns", worst)
    section = heaviest_section(timing.known, worst, SECTION_PART * excess)
    line = busiest_line(timing.known, worst, section)
    # On a crowded machine its peers may have waited for a processor for as long.
    cost = max(timing.found.excess_ns[worst], excess)
    yield propose(
        timing.known,
        Order.SLOW,
        Cause.SLOW_COMPUTE,
        culprits,
        status=Status.SLOW,
        confidence=min(0.97, 0.65 + sum(timing.found.excess_share(r) for r in culprits)),
        summary=f"{name_ranks(culprits).capitalize()} computed "
        f"{(usual + excess) / max(usual, 1.0):.1f} times as long as its peers"
        + (f", most of it in section {section}," if section else "")
        + " and they wait for it.",
        evidence=[
            Evidence(
                "progress",
                r,
                f"used {timing.ms_per_step(did.work_ns or 0.0):.1f} ms of processor time a step",
            )
            for r, did in sorted(timing.did.items())
        ]
        + [timing.lag(r) for r in culprits],
        location=timing.known.ranks[worst].location(line) if line else None,
        effect=timing.effect(cost, section if section else None),
    )


def _slow_elsewhere(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    """A rank that its peers always wait for, seen at a line of its own, without computing more."""
    known, found = timing.known, timing.found
    for rank in timing.did:
        view = known.ranks[rank]
        if (
            rank in named
            or not timing.late(rank, CERTAIN)
            or found.share(rank) - timing.share(timing.run_queue_delay_ns(rank))
            < max(LATE, COST, EXCESS)
        ):
            continue
        line = busiest_line(known, rank)
        if line is None:
            continue
        shares = shares_of_line(known, line)
        own = shares.pop(rank)
        peers = shares.values()
        if own < OWN_LINE or not peers or own < 3 * max(peers):
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
            effect=timing.effect(found.excess_ns[rank]),
        )
