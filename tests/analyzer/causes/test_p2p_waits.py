"""Sends and receives that miss each other, as the boundary sees them."""

from __future__ import annotations

import pytest
from views import job, progress, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.progress_records import OperationCall


def issue(view: RankView, *calls: tuple[str, int, int], held: tuple[str, int, int]) -> RankView:
    """Finished calls (method, peer, tag), then one that the rank is held in."""
    progress(view, -1)
    assert view.progress is not None
    view.progress.operations = [
        OperationCall(
            index=i,
            method=method,
            group="0",
            entered_ns=i,
            returned_ns=i,
            wait_entered_ns=i,
            wait_returned_ns=i if i < len(calls) else None,
            completed=i < len(calls),
            peer=peer,
            tag=tag,
            file="/home/me/train.py",
            line=10 + i,
            function="exchange",
        )
        for i, (method, peer, tag) in enumerate([*calls, held])
    ]
    return view


def test_another_tag_is_no_other_half() -> None:
    past = [("send", 1, 0), ("recv", 1, 0)] * 3
    back = [("recv", 0, 0), ("send", 0, 0)] * 3
    views = [
        issue(waiting(0), *past, held=("send", 1, 0)),
        issue(waiting(1), *back, held=("recv", 0, 7)),
    ]
    verdict = conclude(job(views))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.P2P_UNMATCHED)
    assert verdict.culprits == [1]
    assert "rank 0 in send to rank 1, tag 0" in verdict.summary
    assert "rank 1 in recv from rank 0, tag 7" in verdict.summary
    assert verdict.location is not None and verdict.location.rank == 1


def test_a_pair_whose_tags_never_agreed_is_unmatched_by_both() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 1)),
        issue(waiting(1), held=("recv", 0, 2)),
        waiting(2),
    ]
    verdict = conclude(job(views))
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert verdict.victims == [2]


@pytest.mark.parametrize(
    ("tags", "culprits"), [((4, 4, 6), [1]), ((4, 6, 4), [0]), ((4, 5, 6), [0, 1])]
)
def test_tags_that_count_steps_tell_who_miscounted(
    tags: tuple[int, int, int], culprits: list[int]
) -> None:
    first, mine, theirs = tags
    views = [
        issue(waiting(0), *[("send", 1, tag) for tag in range(first)], held=("send", 1, mine)),
        issue(waiting(1), *[("recv", 0, tag) for tag in range(first)], held=("recv", 0, theirs)),
    ]
    verdict = conclude(job(views))
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, culprits)


def test_a_half_over_another_group_does_not_meet() -> None:
    views = [
        issue(waiting(0), *[("send", 1, 0)] * 4, held=("send", 1, 0)),
        issue(waiting(1), *[("recv", 0, 0)] * 4, held=("recv", 0, 0)),
        waiting(2),
    ]
    known = job(views)
    known.graph.groups.append(ProcessGroup("5", (0, 1), "pair"))
    assert views[0].progress is not None
    views[0].progress.operations[-1].group = "5"
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0])
    assert "group pair" in verdict.summary and "group default_pg" in verdict.summary


def test_a_message_started_under_another_tag_misses_only_whom_its_sender_waits_for() -> None:
    """Rank 0 started its send and went on; as long as it does not wait, more may come."""

    def evidence(*taken: tuple[str, int, int], waits: bool) -> CaseFacts:
        sender = issue(waiting(0), held=("send", 1, 1))
        assert sender.progress is not None
        sender.progress.operations[-1].wait_entered_ns = None
        known = job([sender, issue(waiting(1), *taken, held=("recv", 0, 2)), waiting(2)])
        if waits:
            later = Call(0, known.graph.groups[0], 7, "all_reduce")
            known.graph.waits.append(Wait(later, WaitKind.NOT_ENTERED, (1,)))
        return known

    assert conclude(evidence(waits=False)).culprits == []
    # Nobody waited for it, but it has arrived.
    assert conclude(evidence(("recv", 0, 1), waits=True)).culprits == []
    verdict = conclude(evidence(waits=True))
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert verdict.confidence < 0.8


def test_a_pair_that_meets_is_no_ring() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 0)),
        issue(waiting(1), held=("recv", 0, 0)),
    ]
    assert conclude(job(views)).culprits == []


def test_send_send_is_a_deadlock_of_both() -> None:
    views = [
        issue(waiting(0), held=("send", 1, 0)),
        issue(waiting(1), held=("send", 0, 0)),
        waiting(2),
    ]
    verdict = conclude(job(views))
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_DEADLOCK, [0, 1])


def test_a_message_to_the_wrong_neighbour_is_unmatched() -> None:
    def ring(rank: int, held: tuple[str, int, int]) -> RankView:
        past = [("send", (rank + 1) % 3, 0), ("recv", (rank - 1) % 3, 0)] * 3
        return issue(waiting(rank), *past, held=held)

    views = [
        ring(0, ("recv", 2, 0)),
        ring(1, ("recv", 0, 0)),
        ring(2, ("send", 1, 0)),
    ]
    verdict = conclude(job(views))
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [2])
