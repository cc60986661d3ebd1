"""Decides between ranks that may have held each other up, by what one of them alone did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from hanglab.analyzer.facts.call_wording import location, name_step, observation
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.waiting_ranks import all_victims, cycles_of
from hanglab.analyzer.graph.lone_steps import LoneSteps
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.hypotheses.thresholds import TIE_DECIDED
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.strengths import CANDIDATES
from hanglab.analyzer.verdict import Cause, Status
from hanglab.analyzer.wording import name_ranks

#: Causes by what ranks call, and in which order; arguments are no step from one line to another.
_OF_ORDER = frozenset(
    {
        Cause.COLLECTIVE_MISMATCH,
        Cause.GROUP_ORDER,
        Cause.MISSING_RANK,
        Cause.P2P_UNMATCHED,
        Cause.SKIPPED_COLLECTIVE,
    }
)


def settle_ties(facts: CaseFacts, proposals: Iterable[Proposal]) -> list[Proposal]:
    """The proposals; one that names several, of whom one did it, names that one if it is told.

    Not where it is proved of one of them what it did: it holds the others up by that.
    """
    several = list(proposals)
    hung = [one.finding for one in several if one.finding.status is Status.HUNG]
    proved = {rank for one in hung if one.confidence > CANDIDATES for rank in one.culprits}
    return [
        one if _is_tied(one) and not proved.isdisjoint(one.finding.culprits)
        else _settled(facts.graph, one)
        for one in several
    ]  # fmt: skip


def _is_tied(proposal: Proposal) -> bool:
    return proposal.finding.confidence <= CANDIDATES and len(proposal.finding.culprits) > 1


def _settled(graph: WaitForGraph, proposal: Proposal) -> Proposal:
    finding = proposal.finding
    if (
        graph.lone_steps is None
        or finding.status is not Status.HUNG
        or finding.cause not in _OF_ORDER
        or not _is_tied(proposal)
        or any(cycle.parted for cycle in cycles_of(graph, finding.culprits))
    ):
        return proposal
    step = graph.lone_steps.taken_by_one_of(finding.culprits)
    if step is None or step.call is None:
        return _narrowed(graph, graph.lone_steps, proposal)
    cause = finding.cause
    if cause is Cause.MISSING_RANK and step.rank in {wait.call.rank for wait in graph.waits}:
        cause = Cause.COLLECTIVE_MISMATCH  # It is the one that waits, in a call too many.
    settled = msgspec.structs.replace(
        finding,
        cause=cause,
        category=cause.category,
        advice=cause.advice,
        culprits=[step.rank],
        victims=all_victims(graph, [step.rank]),
        location=location(step.call) or finding.location,
        confidence=max(finding.confidence, TIE_DECIDED),
        summary=(
            f"{name_step(step)} Of {name_ranks(finding.culprits)}, who hold each other up, it "
            "alone left what it did before."
        ),
        evidence=[*finding.evidence, observation(step.call)],
    )
    return replace(proposal, finding=settled)


def _narrowed(graph: WaitForGraph, steps: LoneSteps, proposal: Proposal) -> Proposal:
    """The proposal without those of several in a ring that came to what they wait in as before."""
    finding = proposal.finding
    if len(finding.culprits) == 2 or not any(
        {*finding.culprits} <= {*cycle.ranks} for cycle in graph.cycles
    ):
        return proposal
    culprits = steps.came_anew(finding.culprits)
    if not culprits or len(culprits) == len(finding.culprits):
        return proposal
    usual = sorted({*finding.culprits} - {*culprits})
    narrowed = msgspec.structs.replace(
        finding,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        summary=(
            f"{finding.summary} {name_ranks(usual).capitalize()} came to that as before; "
            f"{name_ranks(culprits)} did not."
        ),
    )
    return replace(proposal, finding=narrowed)
