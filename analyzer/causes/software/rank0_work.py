"""``rank0_work``: long stretches that only one rank worked in while the others waited."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hanglab.analyzer.causes.thresholds import (
    ALONE_FACTOR,
    LONG_WORK_AGAIN_NS,
    LONG_WORK_DIVISOR,
    LONG_WORK_NS,
    LONG_WORK_PATIENCE,
)
from hanglab.analyzer.facts.arrival_lag import Arrivals
from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.facts.sampled_lines import busiest_line
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import INFERRED
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.analyzer.wording import name_line


def rank0_work(timing: JobTiming) -> Iterator[Proposal]:
    known, found = timing.known, timing.found
    patience = known.job.hang_after_s if known.job else None
    long_ns = min(LONG_WORK_NS, LONG_WORK_PATIENCE * patience * 1e9) if patience else LONG_WORK_NS
    for rank, late in found.lateness.items():
        waited, times, again = late.longest_ns, 1, _stretches_alone(found, rank)
        if len(again) > 1 and (total := round(sum(again))) > waited:
            waited, times = total, len(again)
        if waited < found.span_ns / LONG_WORK_DIVISOR or (times == 1 and waited < long_ns):
            continue
        often = "" if times == 1 else f", in {times} stretches,"
        in_what = "one operation" if times == 1 else "one operation each time"
        in_all = "" if times == 1 else ", in all"
        which = "one operation" if times == 1 else f"{times} operations"
        line = busiest_line(known, rank)
        location = known.ranks[rank].location(line) if line else None
        yield propose(
            known,
            Cause.RANK0_WORK,
            [rank],
            status=Status.SLOW,
            confidence=INFERRED,
            summary=f"Rank {rank} worked alone for {waited / 1e9:.1f} s{often}"
            f"{name_line(location)} while the others waited for it in {in_what}.",
            evidence=[
                Evidence(
                    "flight_recorder",
                    rank,
                    f"entered {which} {waited / 1e9:.1f} s after its peers{in_all}",
                )
            ],
            location=location,
            effect=Effect(
                section=None,
                ms_per_step=round(waited / 1e6, 3),
                share_of_step=round(waited / found.span_ns, 4),
            ),
        )


def _stretches_alone(found: Arrivals, rank: int) -> list[float]:
    """Nanoseconds that peers lost in each long stretch of a rank's in which they had hardly any."""
    alone: list[float] = []
    for lag in found.group_lags:
        if rank not in lag.members or len(lag.members) < 2:
            continue
        mine = lag.members.index(rank)
        others = np.median(np.delete(lag.own, mine, axis=1), axis=1)
        kept = (lag.last == mine) & (lag.lost >= LONG_WORK_AGAIN_NS)
        alone += lag.lost[kept & (lag.own[:, mine] >= ALONE_FACTOR * others)].tolist()
    return alone
