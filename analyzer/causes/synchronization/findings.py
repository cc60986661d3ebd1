"""What the dumps alone prove about synchronization, and what they leave open."""

from __future__ import annotations

from hanglab.analyzer.causes.synchronization.cycles import cycle_findings, unmatched_findings
from hanglab.analyzer.causes.synchronization.divergence import (
    divergence_findings,
    question,
    undecided_divergence,
)
from hanglab.analyzer.causes.synchronization.missing_rank import accused, missing_findings
from hanglab.analyzer.causes.synchronization.wording import SOURCE, name_call
from hanglab.analyzer.graph.wait_for_graph import Picture
from hanglab.analyzer.proposal import name_ranks
from hanglab.analyzer.verdict import Evidence, Finding, Status


def synchronization_findings(picture: Picture) -> list[Finding]:
    """Findings that the dumps prove, gravest first; [] for a healthy or an undecidable picture."""
    return [
        *divergence_findings(picture),
        *cycle_findings(picture),
        *unmatched_findings(picture),
        *missing_findings(picture),
    ]


def open_question(picture: Picture) -> Finding | None:
    """An inconclusive finding where ranks wait and nothing proves for whom; else None."""
    if synchronization_findings(picture):
        return None
    divergence = undecided_divergence(picture)
    if divergence is not None:
        return question(picture, divergence)
    if not picture.waits:
        return None
    unsure = {sink.rank for sink in picture.sinks if sink.unknown or sink.hidden}
    unknown = sorted(unsure | set(picture.open))
    known = [sink.rank for sink in accused(picture) if not sink.hidden]
    waiting = sorted({wait.call.rank for wait in picture.waits})
    first = picture.waits[0].call
    if unknown:
        words = f"whether {name_ranks(unknown)} came cannot be told without more evidence"
    elif picture.stalled:
        words = "everybody has entered it and nobody finished"
    else:
        words = "the dumps do not show what holds it up"
    evidence = [
        Evidence(SOURCE, wait.call.rank, f"waits in {name_call(wait.call)}")
        for wait in picture.waits[:16]
    ]
    evidence += [Evidence(SOURCE, rank, "is certainly awaited") for rank in known[:16]]
    return Finding(
        status=Status.INCONCLUSIVE,
        victims=waiting,
        confidence=0.0,
        summary=(
            f"{name_ranks(waiting).capitalize()} wait, the first in {name_call(first)}; {words}."
        ),
        evidence=evidence,
        advice="Get " + ", ".join(picture.would_decide) + "." if picture.would_decide else "",
    )
