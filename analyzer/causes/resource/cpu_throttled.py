"""Processor time that a control group's quota takes away: ``cpu_throttled``."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import FEWEST_PERIODS, THROTTLED_PERIODS, THROTTLED_TIME
from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.host import Span
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import CONFIRMED
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.host_records import CpuGroup
from hanglab.recorder.slowness.thresholds import LOSS_SHARE


@detector_of(Cause.CPU_THROTTLED)
def cpu_throttled(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks in a group that is stopped again and again, and a job that loses time by it."""
    for host in facts.hosts.values():
        for span in host.cpu:
            ranks = [rank for rank in span.last.ranks if rank in facts.ranks]
            stood = _stood(span)
            if not ranks or not stood:
                continue
            share = _cost(facts, ranks, stood)
            if share < LOSS_SHARE:
                continue
            quota = span.last.quota_cpus
            limit = f"a quota of {quota:g} processors" if quota else "its quota"
            yield propose(
                facts,
                Cause.CPU_THROTTLED,
                ranks,
                status=Status.SLOW,
                confidence=CONFIRMED,
                summary=f"{name_ranks(ranks).capitalize()} used up {limit} and stood still for "
                f"{stood:.0%} of the time; the job waits for it.",
                evidence=[Evidence("host", rank, _words(span, stood)) for rank in ranks],
                effect=Effect(section=None, ms_per_step=0.0, share_of_step=round(share, 4)),
            )


def _stood(span: Span[CpuGroup]) -> float:
    """Share of the time for which the group was stopped; 0 where that was seldom."""
    periods = span.grown(lambda group: group.periods)
    throttled = span.grown(lambda group: group.throttled_periods)
    lost = span.grown(lambda group: group.throttled_s)
    if periods < FEWEST_PERIODS or throttled < THROTTLED_PERIODS * periods or span.seconds <= 0:
        return 0.0
    # Summed over processors: one that stood still for all the time counts one.
    share = lost / span.seconds
    return min(1.0, share) if share >= THROTTLED_TIME else 0.0


def _words(span: Span[CpuGroup], stood: float) -> str:
    periods = span.grown(lambda group: group.periods)
    throttled = span.grown(lambda group: group.throttled_periods)
    return (
        f"its control group {span.last.path} was throttled in {throttled:.0f} of {periods:.0f} "
        f"periods and stood still for {span.grown(lambda g: g.throttled_s):.1f} s of "
        f"{span.seconds:.1f} s"
    )


def _cost(facts: CaseFacts, ranks: list[int], stood: float) -> float:
    """Share of the time that the job loses: that of peers who wait, or everybody's own."""
    if set(ranks) == set(facts.ranks):
        return stood
    found = arrivals(facts)
    return sum(found.share(rank) for rank in ranks) if found is not None else 0.0
