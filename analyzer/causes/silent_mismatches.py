"""Calls with arguments that differ and that nobody waits in: the job goes on with wrong results."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.synchronization.divergence import silent_findings
from hanglab.analyzer.causes.synchronization.messages import silent_message_findings
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Proposal, detector


@detector
def silent_mismatches(facts: CaseFacts) -> Iterator[Proposal]:
    """Status ``corrupt`` with the cause of the mismatch, whatever else is wrong with the job."""
    for finding in [*silent_findings(facts.graph), *silent_message_findings(facts.graph)]:
        yield Proposal(finding=finding)
