"""``memory_pressure``: ranks that the kernel slows down for want of memory."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import (
    AT_MEMORY_LIMIT,
    REFAULTS_PER_S,
    REFUSALS_PER_S,
    SHORTEST_WATCH_S,
    STALLED_SHARE,
)
from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.host import HostView, Span
from hanglab.analyzer.facts.resource_failures import size
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import CONFIRMED
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.host_records import MemoryGroup
from hanglab.recorder.slowness.thresholds import LOSS_SHARE


@detector_of(Cause.MEMORY_PRESSURE)
def memory_pressure(facts: CaseFacts) -> Iterator[Proposal]:
    """A job that moves, whose ranks stand at their limit and read again what they had dropped."""
    for host in facts.hosts.values():
        for span in host.memory:
            words = _short_of_memory(host, span)
            if not words:
                continue
            ranks = [r for r in span.last.ranks if r in facts.ranks]
            share = _cost(facts, host, ranks)
            if not ranks or share < LOSS_SHARE:
                continue
            yield propose(
                facts,
                Cause.MEMORY_PRESSURE,
                ranks,
                status=Status.SLOW,
                confidence=CONFIRMED,
                summary=f"{name_ranks(ranks).capitalize()} is at the memory limit of "
                f"{size(span.last.limit_bytes or span.last.high_bytes)} and spends its time in "
                "getting back what was dropped; the job waits for it.",
                evidence=[Evidence("host", rank, words) for rank in ranks],
                effect=Effect(section=None, ms_per_step=0.0, share_of_step=round(share, 4)),
            )


def _short_of_memory(host: HostView, span: Span[MemoryGroup]) -> str:
    group = span.last
    limit = min((x for x in (group.limit_bytes, group.high_bytes) if x), default=None)
    used = max((g.used_bytes or 0 for g in span.every), default=0)
    if limit is None or span.seconds < SHORTEST_WATCH_S:
        return ""
    met = span.grown(lambda g: g.refused) + span.grown(lambda g: g.slowed)
    refaults = span.grown(lambda g: g.refaults)
    faults = 0
    for rank in group.ranks:
        loads = host.loads(rank)
        if loads:
            faults += loads[-1].major_faults - loads[0].major_faults
    read = max(refaults, float(faults))
    if used < AT_MEMORY_LIMIT * limit:
        return ""
    if met >= REFUSALS_PER_S * span.seconds and read >= REFAULTS_PER_S * span.seconds:
        words = f", met its limit {met / span.seconds:.0f} times a second"
    elif refaults >= REFAULTS_PER_S * span.seconds and not host.memory_is_scarce:
        # Where there is no swap, version 1 counts no meetings.  Pages are dropped for want of
        # room in the group or on the host, and the host has room.
        words, read = "", refaults
    else:
        return ""
    return (
        f"its control group {group.path} used {size(used)} of {size(limit)}{words} and read "
        f"{read / span.seconds:.0f} pages a second again"
    )


def _cost(facts: CaseFacts, host: HostView, ranks: list[int]) -> float:
    """Share of the time that the job loses: peers that wait, or everybody who stalls."""
    if set(ranks) < set(facts.ranks):
        found = arrivals(facts)
        return sum(found.share(rank) for rank in ranks) if found is not None else 0.0
    share = host.stalled_share("memory", full=True)
    return share if share >= STALLED_SHARE else 0.0
