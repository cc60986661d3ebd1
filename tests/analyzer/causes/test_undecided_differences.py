"""Differences left undecided as a dump is lost, which a rank's place in its loops may tell."""

from __future__ import annotations

import pytest
from views import job, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, UnknownCall
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.records import CodeLoop, CodeShape


def with_loop(one: RankView, counter: int) -> RankView:
    one.shapes = [CodeShape("/home/me/train.py", "train", 10, 40, [CodeLoop(15, 25, counter)])]
    return one


def differing(views: list[RankView]) -> CaseFacts:
    """Rank 0 called a barrier where rank 1 called an all_reduce; rank 2 left no dump."""
    known = job(views)
    (group,) = known.graph.groups
    calls = {0: Call(0, group, 7, "barrier"), 1: Call(1, group, 7, "all_reduce")}
    known.graph.divergences.append(
        Divergence(
            group=group,
            seq=7,
            difference=Difference.OPERATION,
            calls=calls,
            deviating=(),
            candidates=(0, 1),
            unknown_calls={2: UnknownCall.NO_EVIDENCE},
        )
    )
    known.graph.ranks = (0, 1)
    known.graph.waits[:] = [Wait(call, WaitKind.STALLED, ()) for call in calls.values()]
    return known


def test_the_lost_dump_is_asked_for() -> None:
    verdict = conclude(differing([waiting(rank) for rank in range(3)]))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "rank 0 called barrier, rank 1 called all_reduce" in verdict.summary
    assert verdict.inputs.would_decide[0] == "rank 2's dump"


@pytest.mark.parametrize("line_of_the_lost", [20, 30])
def test_who_alone_has_left_the_loop_is_told(line_of_the_lost: int) -> None:
    views = [
        with_loop(view(0, user(30)), 3),
        with_loop(waiting(1, 20), 5),
        with_loop(view(2, user(line_of_the_lost)), 5),
    ]
    verdict = conclude(differing(views))
    if line_of_the_lost == 20:
        assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [0])
    else:
        # It has left it, too, so that rank 1 may be the one that goes on for too long.
        assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
