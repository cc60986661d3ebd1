"""The decision: who is a culprit, and who failed or waits because of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence

from views import job, raised, view

from hanglab.analyzer.decision import decide
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.verdict import Cause, Status

LOST = "[pair.cc:547] Connection closed by peer [127.0.0.1]:4711"


def _facts() -> CaseFacts:
    """Rank 1 lost a peer and ended; the others live, and nothing moves."""
    return job([view(0), raised(view(1), "RuntimeError", LOST), view(2), view(3)])


def _proposal(facts: CaseFacts, cause: Cause, culprits: Sequence[int]) -> Proposal:
    return propose(facts, cause, culprits, status=Status.HUNG, confidence=0.9, summary="It is.")


def _decided(facts: CaseFacts, *proposals: Proposal) -> list[tuple[Cause | None, list[int]]]:
    accepted, _ = decide(facts, proposals)
    return [(one.finding.cause, one.finding.culprits) for one in accepted]


def test_who_lost_a_peer_is_not_accused_beside_an_earlier_cause() -> None:
    facts = _facts()
    frozen = _proposal(facts, Cause.PROCESS_FROZEN, [0])
    away = [_proposal(facts, Cause.MISSING_RANK, [1]), _proposal(facts, Cause.TEARDOWN, [2])]
    assert _decided(facts, *away, frozen) == [
        (Cause.PROCESS_FROZEN, [0]),
        (Cause.TEARDOWN, [2]),
    ]


def test_who_waits_for_what_is_nobodys_fault_is_not_accused() -> None:
    facts = _facts()
    fabric = _proposal(facts, Cause.FABRIC_STALLED, [])
    fabric.failure_on_record = True
    away = _proposal(facts, Cause.TEARDOWN, [2])
    assert _decided(facts, away, fabric) == [(Cause.FABRIC_STALLED, [])]
