"""``rank0_work``: one long stretch that only one rank worked in while the others waited."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import LONG_WORK_DIVISOR, LONG_WORK_NS, LONG_WORK_PATIENCE
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
        waited = late.longest_ns
        if waited < long_ns or waited < found.span_ns / LONG_WORK_DIVISOR:
            continue
        line = busiest_line(known, rank)
        location = known.ranks[rank].location(line) if line else None
        yield propose(
            known,
            Cause.RANK0_WORK,
            [rank],
            status=Status.SLOW,
            confidence=INFERRED,
            summary=f"Rank {rank} worked alone for {waited / 1e9:.1f} s{name_line(location)} "
            "while the others waited for it in one operation.",
            evidence=[
                Evidence(
                    "flight_recorder",
                    rank,
                    f"entered one operation {waited / 1e9:.1f} s after its peers",
                )
            ],
            location=location,
            effect=Effect(
                section=None,
                ms_per_step=round(waited / 1e6, 3),
                share_of_step=round(waited / found.span_ns, 4),
            ),
        )
