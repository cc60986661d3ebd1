"""A job that moves, but slowly: starved of data, or held up by some of its ranks.

What everybody suffers from is looked at before any comparison, and what can be
measured exactly (input, garbage, the run queue) before what is left over.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.data_starvation.slow_input import all_waits, input_starved, slow_input
from hanglab.analyzer.causes.software.rank0_work import rank0_work
from hanglab.analyzer.causes.straggler.gc_pause import gc_pause
from hanglab.analyzer.causes.straggler.imbalance import imbalance
from hanglab.analyzer.causes.straggler.slow_compute import slow_compute
from hanglab.analyzer.causes.straggler.slow_host import slow_host
from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.proposal import Proposal, detector_of
from hanglab.analyzer.verdict import Cause


@detector_of(
    Cause.INPUT_STARVED,
    Cause.SLOW_INPUT,
    Cause.RANK0_WORK,
    Cause.GC_PAUSE,
    Cause.SLOW_HOST,
    Cause.IMBALANCE,
    Cause.SLOW_COMPUTE,
)
def slow_job(known: CaseFacts) -> Iterator[Proposal]:
    """The causes of a job that moves or has ended well."""
    if not known.case:
        return
    waits = all_waits(known)
    starved = list(input_starved(known, waits))
    if starved:
        yield from starved
        return
    found = arrivals(known)
    if found is None:
        return
    timing = JobTiming.of(known, found)
    alone = list(rank0_work(timing))
    yield from alone
    proposals = [*slow_input(timing, waits), *gc_pause(timing), *slow_host(timing)]
    named = {rank for proposal in proposals for rank in proposal.finding.culprits}
    proposals += imbalance(timing, named)
    # One long stretch of work alone is more processor time, too.
    named |= {rank for proposal in (*proposals, *alone) for rank in proposal.finding.culprits}
    proposals += slow_compute(timing, named)
    yield from proposals
