"""The decision: who is a culprit, and who failed or waits because of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from views import ended, job, raised, view

from hanglab.analyzer.decision import decide
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.matching.calls import Difference, Divergence, ProcessGroup
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.verdict import Cause, Status

LOST = "[pair.cc:547] Connection closed by peer [127.0.0.1]:4711"


def _facts() -> CaseFacts:
    """Rank 1 lost a peer and ended; the others live, and nothing moves."""
    return job([view(0), raised(view(1), "RuntimeError", LOST), view(2), view(3)])


def _proposal(
    facts: CaseFacts, cause: Cause, culprits: Sequence[int], status: Status = Status.HUNG
) -> Proposal:
    return propose(facts, cause, culprits, status=status, confidence=0.9, summary="It is.")


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


STOOD = job([view(0), view(1)])
MOVES = job([view(0), view(1)], trigger="request")
FAILED = job([view(0), ended(view(1), code=1)], trigger="exit")
SUCCEEDED = job([ended(view(0)), ended(view(1))], trigger=None)


@pytest.mark.parametrize(
    ("cause", "status", "fits", "fits_not"),
    [
        (Cause.IO_BLOCKED, Status.HUNG, [STOOD], [MOVES, FAILED, SUCCEEDED]),
        (Cause.SLOW_LINK, Status.SLOW, [MOVES, SUCCEEDED], [STOOD, FAILED]),
        (Cause.RANK0_WORK, Status.SLOW, [MOVES, SUCCEEDED], [STOOD, FAILED]),
        # What a time limit made of it.
        (Cause.RANK0_WORK, Status.FAILED, [FAILED], [SUCCEEDED]),
        (Cause.MISSING_RANK, Status.HUNG, [STOOD, MOVES], [SUCCEEDED]),
        (Cause.SIZE_MISMATCH, Status.CORRUPT, [SUCCEEDED, MOVES], []),
    ],
)
def test_the_catalogue_rules_causes_out(
    cause: Cause, status: Status, fits: list[CaseFacts], fits_not: list[CaseFacts]
) -> None:
    for facts in fits:
        assert _decided(facts, _proposal(facts, cause, [1], status)) == [(cause, [1])]
    for facts in fits_not:
        assert _decided(facts, _proposal(facts, cause, [1], status)) == []


def test_a_detector_of_what_is_ruled_out_does_not_look() -> None:
    looked = list[CaseFacts]()

    @detector_of(Cause.HOST_SYNC)
    def looks(facts: CaseFacts) -> list[Proposal]:
        looked.append(facts)
        return []

    diverged = job([view(0), view(1)])
    group = ProcessGroup("0", (0, 1), "default_pg")
    diverged.graph.divergences.append(Divergence(group, 3, Difference.SIZE, {}, (0,), (0, 1)))
    for facts in (diverged, MOVES, STOOD):
        list(looks(facts))
    assert looked == [STOOD]


@pytest.mark.parametrize(
    ("facts", "cause", "status"),
    [
        (STOOD, Cause.CRASH, Status.HUNG),
        (FAILED, Cause.CRASH, Status.FAILED),
        (FAILED, Cause.SIZE_MISMATCH, Status.FAILED),
        (MOVES, Cause.SLOW_LINK, Status.SLOW),
    ],
)
def test_a_status_is_that_of_the_job_unless_the_cause_slows_it(
    facts: CaseFacts, cause: Cause, status: Status
) -> None:
    assert propose(facts, cause, [1], confidence=0.9, summary="It is.").finding.status is status
