"""Differences of operations that the iterations of ranks' loops tell apart."""

from __future__ import annotations

import pytest
from views import C10D, job, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.records import CodeLoop, CodeShape, StackFrame


def at(rank: int, line: int, *counters: int | None) -> RankView:
    """In an operation at ``line`` of loops that lie in each other, with their counters."""
    one = view(rank, StackFrame("broadcast", C10D, 3245), user(line))
    loops = [CodeLoop(15 + i, 25 - i, counter) for i, counter in enumerate(counters)]
    one.shapes = [CodeShape("/home/me/train.py", "train", 10, 40, loops)]
    return one


def differing(views: list[RankView]) -> CaseFacts:
    """Rank 3 called an all_reduce under the number under which its peers called a broadcast."""
    facts = job(views)
    (group,) = facts.graph.groups
    calls = {r: Call(r, group, 7, "all_reduce" if r == 3 else "broadcast") for r in range(4)}
    facts.graph.divergences.append(
        Divergence(
            group=group,
            seq=7,
            difference=Difference.OPERATION,
            calls=calls,
            deviating=(3,),
            candidates=(),
        )
    )
    # A broadcast lets go of rank 2, which waits in its next operation.
    calls[2] = Call(2, group, 8, "all_reduce")
    facts.graph.waits[:] = [Wait(call, WaitKind.STALLED, ()) for call in calls.values()]
    return facts


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        ((61,), (60,), Cause.SKIPPED_COLLECTIVE),
        ((60,), (60,), Cause.COLLECTIVE_MISMATCH),
        ((60,), (61,), Cause.COLLECTIVE_MISMATCH),
        ((2, 5), (2, 4), Cause.SKIPPED_COLLECTIVE),
        ((2, 0), (1, 9), Cause.SKIPPED_COLLECTIVE),
        # Which iteration of the outer loop it is, nobody knows.
        ((None, 5), (None, 4), Cause.COLLECTIVE_MISMATCH),
    ],
)
def test_who_did_as_much_in_more_iterations_left_something_out(
    mine: tuple[int | None, ...], theirs: tuple[int | None, ...], cause: Cause
) -> None:
    views = [at(r, 22, *(mine if r == 2 else theirs)) for r in range(3)]
    verdict = conclude(differing([*views, at(3, 20, *mine)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])
    assert ("later iteration" in verdict.summary) is (cause is Cause.SKIPPED_COLLECTIVE)


@pytest.mark.parametrize(
    ("inner", "cause"), [(None, Cause.UNEVEN_INPUTS), (4, Cause.SKIPPED_COLLECTIVE)]
)
def test_as_many_epochs_say_nothing_of_their_steps(inner: int | None, cause: Cause) -> None:
    """Rank 3 is past an epoch's loop over data and the loop of epochs."""
    views = [at(r, 20, 1, inner) for r in range(3)]
    verdict = conclude(differing([*views, at(3, 30, 1, inner)]))
    assert (verdict.cause, verdict.culprits) == (cause, [3])
