"""The verdict on the speed of a whole job, as ``hanglab analyze`` gives it, in lines of text."""

from __future__ import annotations

from pathlib import Path

from hanglab.analyzer.causes.straggler.speed_evidence import speed_evidence
from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.assembly import gather
from hanglab.analyzer.verdict import Status


def slow_findings(case: Path) -> list[str]:
    """A line for each finding of status ``slow``; empty where there is none."""
    return [
        f"Verdict: {finding.cause.value}: {finding.summary}"
        for finding in conclude(gather(case)).findings
        if finding.status is Status.SLOW and finding.cause is not None
    ]


def verdict_on_speed(case: Path) -> list[str]:
    """Lines on who is slow and why or, where nobody is, on how well that could be seen."""
    seen = speed_evidence(gather(case)).evidence
    return slow_findings(case) or [
        "Verdict: no rank is slow.",
        *(f"{f'Rank {one.rank} ' if one.rank is not None else ''}{one.detail}." for one in seen),
    ]
