"""Ranks caught in a ring of waits because some of them have left the loop that the others are in.

A rank whose input ended early goes on to what comes after the loop, meets its
peers there in another group, and both wait for each other.  That looks like
groups in opposite order; the lines at which they stand tell it apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hanglab.analyzer.facts.call_wording import name_group
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.loop_decisions import not_for_input
from hanglab.analyzer.facts.loops import (
    Loop,
    batches_compared,
    counter_of,
    is_past,
    loops_around,
    passes,
    same_loop,
    steps_compared,
    together,
)
from hanglab.analyzer.graph.wait_for_graph import Cycle
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import ALTERNATIVE, INFERRED, PLAUSIBLE, REMOTE_ALTERNATIVE, SHOWN
from hanglab.analyzer.verdict import Cause, Evidence, Location, Status
from hanglab.analyzer.wording import BEHIND_LOOP, name_line, name_ranks


@dataclass(frozen=True)
class _LoopExit:
    """``gone`` left ``loop`` too soon, ``inside`` are in it still."""

    loop: Loop
    gone: tuple[RankView, ...]
    inside: tuple[RankView, ...]
    #: The loop lies in another one, in whose same iteration they all are.
    nested: bool
    #: Each is known to have passed the loop less often than another.
    counted: bool


@detector
def departures(facts: CaseFacts) -> Iterator[Proposal]:
    """``uneven_inputs`` or ``skipped_collective`` of those that are past their peers' loop.

    Before the cycles in the order of decision: the ring is what followed from it.
    """
    if not facts.stuck or facts.graph.divergences:
        return
    for cycle in facts.graph.cycles:
        waiting = {wait.call.rank for wait in facts.graph.waits} | set(cycle.ranks)
        views = [facts.ranks[rank] for rank in sorted(waiting) if rank in facts.ranks]
        if len(views) < len(waiting) or any(v.ended is not None for v in views):
            continue
        loop_exit = _find_loop_exit(views)
        if loop_exit is None or not {v.rank for v in loop_exit.gone} & set(cycle.ranks):
            continue
        labelled = _label(facts, cycle, loop_exit)
        if labelled is not None:
            cause, confidence, words = labelled
            told = not_for_input(facts, loop_exit.gone[0].rank, [loop_exit.loop])
            if cause is Cause.UNEVEN_INPUTS and told:
                labelled = Cause.SKIPPED_COLLECTIVE, confidence, f"{words}; {told}".strip("; ")
            yield _proposal(cycle, facts, views, loop_exit, *labelled)
            return


def _label(facts: CaseFacts, cycle: Cycle, loop_exit: _LoopExit) -> tuple[Cause, float, str] | None:
    """Cause, confidence and what counted it; None where the counts speak against it."""
    accounts = [_account(facts, view, loop_exit) for view in loop_exit.gone]
    told = [account for account in accounts if account is not None]
    p2p = any(call.seq is None for call in cycle.calls)
    if not told:
        # A message that was left out is told more closely by its other half.
        sure = not p2p and (loop_exit.counted or not loop_exit.nested)
        return (Cause.UNEVEN_INPUTS, PLAUSIBLE, "") if sure else None
    if len(told) < len(accounts) or any(difference > 0 for difference, _ in told):
        return None
    if all(difference < 0 for difference, _ in told):
        return Cause.UNEVEN_INPUTS, SHOWN, told[0][1]
    if any(difference < 0 for difference, _ in told) or p2p:
        return None
    return Cause.SKIPPED_COLLECTIVE, INFERRED, told[0][1]


def _account(facts: CaseFacts, view: RankView, loop_exit: _LoopExit) -> tuple[int, str] | None:
    """Steps that the rank did fewer (negative) or more than its peers, and what counted them."""
    loop = loop_exit.loop
    if not loop_exit.nested:
        return steps_compared(facts, view.rank, [loop])
    # Steps may be those of the outer loop, in which they still are together.
    mine = counter_of(view, loop)
    peers = [count for peer in loop_exit.inside if (count := counter_of(peer, loop)) is not None]
    if mine is None or not peers:
        return batches_compared(facts, view.rank, loop)
    return mine - min(peers), f"loop counter {mine}, its peers' {min(peers)}"


def _proposal(
    cycle: Cycle,
    facts: CaseFacts,
    views: Sequence[RankView],
    loop_exit: _LoopExit,
    cause: Cause,
    confidence: float,
    counted: str,
) -> Proposal:
    culprits = [view.rank for view in loop_exit.gone]
    calls = {call.rank: call for call in cycle.calls}
    first = next(rank for rank in culprits if rank in calls)
    group = calls[first].group
    one = len(culprits) == 1
    skipped = cause is Cause.SKIPPED_COLLECTIVE
    when = "after as many steps as the others" if skipped else "sooner than the others"
    return propose(
        facts,
        cause,
        culprits,
        status=Status.HUNG,
        confidence=confidence,
        summary=f"{name_ranks(culprits).capitalize()} {'has' if one else 'have'} left a loop "
        f"{when}{f' ({counted})' if counted else ''}, and "
        f"{'waits' if one else 'wait'} for them in {calls[first].op} of "
        f"{name_group(group)}.",
        evidence=[
            Evidence(
                "stack",
                view.rank,
                (BEHIND_LOOP if is_past(view, loop_exit.loop) else "in the loop")
                + name_line(_line(view)),
            )
            for view in views
        ],
        location=_line(facts.ranks[first]),
        collective=collective_ref(calls[first]),
        alternatives=[]
        if counted
        else [
            (Cause.SKIPPED_COLLECTIVE, culprits, ALTERNATIVE),
            (Cause.GROUP_ORDER, sorted(cycle.ranks), REMOTE_ALTERNATIVE),
        ],
    )


def _line(view: RankView) -> Location | None:
    frame = next(iter(view.code.user_frames(view.program_frames)), None)
    return view.location(frame) if frame is not None else None


def _find_loop_exit(views: Sequence[RankView]) -> _LoopExit | None:
    """The outermost loop that some are in and all others past, and who left it too soon.

    Where nobody knows how often each has passed it, that are all who are past it; not if
    they are many, as then the others may have done too much.
    """
    around = {view.rank: loops_around(view) for view in views}
    for loop in sorted(
        (loop for loops in around.values() for loop in loops), key=lambda one: one.first - one.last
    ):
        inside = [v for v in views if any(same_loop(one, loop) for one in around[v.rank])]
        past = [v for v in views if is_past(v, loop)]
        gone, counted = _too_soon(past, inside, loop)
        few = len(gone) == 1 or 2 * len(gone) < len(views) + counted
        if len(inside) + len(past) != len(views) or not gone or not few:
            continue
        shared = [
            (view, peer, outer)
            for view in gone
            for peer in inside
            for outer in around[peer.rank]
            if any(same_loop(outer, mine) for mine in around[view.rank])
        ]
        if all(together(*one) for one in shared):
            return _LoopExit(loop, tuple(gone), tuple(inside), bool(shared), counted)
    return None


def _too_soon(
    past: Sequence[RankView], inside: Sequence[RankView], loop: Loop
) -> tuple[list[RankView], bool]:
    """Ranks past the loop that passed it less often than another; True if that is counted.

    Uncounted, that are all who are past it and were in it.
    """
    times = {view.rank: passes(view, loop) for view in [*past, *inside]}
    counted = all(
        view.progress is not None
        and view.progress.operations_total <= len(view.progress.operations)
        for view in [*past, *inside]
    )
    most = max(times.values(), default=0)
    gone = [v for v in past if times[v.rank] and (times[v.rank] < most or not counted)]
    return gone, counted
