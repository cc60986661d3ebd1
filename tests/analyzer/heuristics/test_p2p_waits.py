"""Rings of sends and receives as the boundary sees them."""

from __future__ import annotations

from views import job, progress, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.boundary import Operation


def issue(view: RankView, *calls: tuple[str, int, int], held: tuple[str, int, int]) -> RankView:
    """Finished calls (method, peer, tag), then one that the rank is held in."""
    progress(view, -1)
    assert view.progress is not None
    view.progress.operations = [
        Operation(
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
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.P2P_DEADLOCK)
    assert verdict.culprits == [1]


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
