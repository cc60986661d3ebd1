"""From proposals to one verdict: root over symptom, in the order of decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from hanglab.analyzer.catalogue import Stage
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.strengths import CANDIDATES
from hanglab.analyzer.verdict import Alternative, Cause, Finding, Verdict


class FallReason(Enum):
    """Reasons for which a proposal does not stand."""

    #: Of the job as a whole something was seen that the cause or its status excludes.
    RULED_OUT = "ruled out"
    #: An earlier one names its culprits, or explains why they failed or wait.
    EXPLAINED = "explained"
    #: Its culprits wait for those of an earlier one.
    SYMPTOM = "symptom"
    #: Only ranks that an earlier one accuses wait for its culprits.
    FOR_CULPRITS_ALONE = "for culprits alone"


@dataclass(frozen=True)
class Fallen:
    """A proposal that does not stand, and why."""

    proposal: Proposal
    reason: FallReason


def _merge(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Unite proposals of one cause and stage: their culprits are found by one mechanism."""
    merged: dict[tuple[Stage, Cause | None, str, bool], Proposal] = {}
    for proposal in proposals:
        finding = proposal.finding
        # One that names all who could be meant gains no confidence from one that proves.
        proved = finding.confidence > CANDIDATES
        key = (proposal.stage, finding.cause, finding.status.value, proved)
        earlier = merged.get(key)
        if earlier is None:
            merged[key] = proposal
            continue
        first, second = earlier.finding, finding
        if second.confidence > first.confidence:
            first, second = second, first
        culprits = sorted({*first.culprits, *second.culprits})
        merged[key] = Proposal(
            finding=Finding(
                status=first.status,
                category=first.category,
                cause=first.cause,
                culprits=culprits,
                victims=sorted({*first.victims, *second.victims} - set(culprits)),
                collective=first.collective or second.collective,
                location=first.location or second.location,
                confidence=first.confidence,
                # What one found alone says it; another may add evidence of the same.
                summary=first.summary
                if set(second.culprits) <= set(first.culprits)
                else f"{first.summary} {second.summary}",
                evidence=[*first.evidence, *second.evidence],
                advice=first.advice,
                effect=first.effect or second.effect,
            ),
            failure_on_record=earlier.failure_on_record or proposal.failure_on_record,
            alternatives=[*earlier.alternatives, *proposal.alternatives],
        )
    return list(merged.values())


def decide(
    facts: CaseFacts, proposals: Sequence[Proposal], fallen: list[Fallen] | None = None
) -> tuple[list[Proposal], Verdict | None]:
    """The proposals that stand, and the verdict that they make; None where none stands.

    One falls where the catalogue rules its cause or status out, a later one where an
    earlier one names its culprits already or explains why they failed or wait; those that fall
    are added to ``fallen``.
    """
    observed = facts.observed
    fell = fallen if fallen is not None else []
    fell += [Fallen(one, FallReason.RULED_OUT) for one in proposals if not one.fits(observed)]
    proposals = [one for one in proposals if one.fits(observed)]
    accepted: list[Proposal] = []
    explained: set[int] = set()
    for proposal in sorted(_merge(proposals), key=lambda p: (p.stage, -p.finding.confidence)):
        culprits = set(proposal.finding.culprits)
        if proposal.stage is Stage.CORRUPT:
            # Wrong results are a fault of their own, whoever else holds the job up.
            if not any(_covers(earlier.finding, proposal.finding) for earlier in accepted):
                accepted.append(proposal)
            continue
        reason = _why_it_falls(facts, proposal, accepted, explained)
        if reason is not None:
            fell.append(Fallen(proposal, reason))
            continue
        if not accepted:
            # Whoever lost a peer, gave up or was ended did so for want of the first.
            explained |= {one.view.rank for one in failures(facts) if one.consequence}
        accepted.append(proposal)
        # What is nobody's fault holds up all who wait.
        explained |= culprits or set(proposal.finding.victims)
    if not accepted:
        return [], None
    findings = [_advised(p.finding) for p in accepted]
    first = findings[0]
    return accepted, Verdict(
        status=first.status,
        category=first.category,
        cause=first.cause,
        culprits=first.culprits,
        victims=first.victims,
        collective=first.collective,
        location=first.location,
        confidence=first.confidence,
        summary=first.summary,
        evidence=first.evidence,
        advice=first.advice,
        effect=first.effect,
        alternatives=[
            Alternative(cause=cause, culprits=ranks, confidence=confidence)
            for cause, ranks, confidence in accepted[0].alternatives
        ],
        findings=findings,
        inputs=facts.inputs,
    )


def _why_it_falls(
    facts: CaseFacts, proposal: Proposal, accepted: Sequence[Proposal], explained: set[int]
) -> FallReason | None:
    """The reason for which a later proposal falls before those accepted; None where it stands."""
    culprits = set(proposal.finding.culprits)
    if not accepted:
        return None
    if not culprits or culprits & explained:
        return FallReason.EXPLAINED
    if proposal.stage < Stage.DIVERGENCE:
        return None
    if _is_symptom(facts, proposal, accepted):
        return FallReason.SYMPTOM
    if _is_for_culprits_alone(facts, proposal, accepted):
        return FallReason.FOR_CULPRITS_ALONE
    return None


def _advised(finding: Finding) -> Finding:
    """The finding; its advice does not point to a place where none is named."""
    cause = finding.cause
    placed = finding.location is not None or (finding.effect and finding.effect.section)
    if placed or cause is None or not cause.advice_without_place or finding.advice != cause.advice:
        return finding
    return msgspec.structs.replace(finding, advice=cause.advice_without_place)


def _covers(earlier: Finding, later: Finding) -> bool:
    return earlier.cause is later.cause and set(later.culprits) <= set(earlier.culprits)


def _is_symptom(facts: CaseFacts, proposal: Proposal, accepted: Sequence[Proposal]) -> bool:
    """True if the proposal's culprits merely wait for an earlier proposal's."""
    roots = {rank for earlier in accepted for rank in earlier.finding.culprits}
    reach = dict[int, set[int]]()
    for wait in facts.graph.waits:
        reach.setdefault(wait.call.rank, set()).update(wait.on)
    for rank, on in facts.graph.host_waits.items():
        reach.setdefault(rank, set()).update(on)
    pending = list(proposal.finding.culprits)
    seen: set[int] = set()
    while pending:
        rank = pending.pop()
        if rank in seen:
            continue
        seen.add(rank)
        pending += reach.get(rank, ())
    return bool(seen & roots)


def _is_for_culprits_alone(
    facts: CaseFacts, proposal: Proposal, accepted: Sequence[Proposal]
) -> bool:
    """True if nobody waits for the proposal's culprits but ranks that an earlier one accuses.

    Who did otherwise may wait for what nobody else would ever call.  Of candidates one alone did,
    and the others' waits may be as they should.
    """
    accused = {
        rank
        for earlier in accepted
        if earlier.finding.confidence > CANDIDATES or len(earlier.finding.culprits) == 1
        for rank in earlier.finding.culprits
    }
    waiters = _waiters_for(facts.graph, set(proposal.finding.culprits))
    return bool(waiters) and waiters <= accused


def _waiters_for(graph: WaitForGraph, culprits: set[int]) -> set[int]:
    """Ranks that wait for any of those, or else who have queued what lacks them."""
    waiters = {wait.call.rank for wait in graph.waits if not culprits.isdisjoint(wait.on)}
    if waiters:
        return waiters
    lacking = [(s.awaited.group, s.awaited.seq) for s in graph.sinks if s.rank in culprits]
    return {
        rank
        for rank, calls in graph.unfinished.items()
        if any(call.seq == seq and call.group == g for call in calls for g, seq in lacking)
    }
