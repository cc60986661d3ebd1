"""The proposal that detectors of resources make of a rank that ran out of one."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.failures import consequence_words
from hanglab.analyzer.facts.resource_failures import failed_in_consequence
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import CONFIRMED
from hanglab.analyzer.verdict import Cause, Evidence, Location
from hanglab.analyzer.wording import name_line, name_ranks


def resource_proposal(
    facts: CaseFacts,
    cause: Cause,
    culprits: Sequence[RankView],
    what: str,
    evidence: Sequence[Evidence],
    *,
    location: Location | None,
    confidence: float = CONFIRMED,
) -> Proposal:
    """A rank that ended, raised or stands still for want of a resource."""
    ranks = [view.rank for view in culprits]
    after = failed_in_consequence(facts, ranks)
    rows = list(evidence)
    if after:
        rows.append(Evidence("exceptions", None, consequence_words(after)))
    return propose(
        facts,
        cause,
        ranks,
        failure_on_record=True,
        confidence=confidence,
        summary=f"{name_ranks(ranks).capitalize()} {what}{name_line(location)}; its peers "
        f"{'wait for it' if facts.stuck else 'failed because it was gone'}.",
        evidence=rows,
        location=location,
    )
