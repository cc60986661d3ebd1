"""Places in the source at which ranks stand, which a replay and a smaller script keep."""

from __future__ import annotations

from views import C10D, job, progress, user, view

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.source_positions import SourcePosition, positions_among, source_positions
from hanglab.recorder.case.records import CodeBlock, CodeLoop, CodeShape, StackFrame

#: A loop, an if with line 20 in one branch and 21 in the other one, and lines 22 and 30 behind.
BLOCKS = [
    CodeBlock([18], [1, 2]), CodeBlock([20], [3]), CodeBlock([21], [3]), CodeBlock([22, 30], [])
]  # fmt: skip


def at(rank: int, line: int, counter: int | None = None, step: int = -1) -> RankView:
    """In an operation at a line, with the counter of the loop of lines 15 to 25."""
    one = view(rank, StackFrame("broadcast", C10D, 3245), user(line))
    loops = [CodeLoop(15, 25, counter)]
    one.shapes = [CodeShape("/home/me/train.py", "train", 10, 40, loops, BLOCKS)]
    return progress(one, step)


def differing(*views: RankView, seq: int | None = 7) -> CaseFacts:
    """The last rank called an all_reduce where its peers called a broadcast."""
    facts = job(list(views))
    (group,) = facts.graph.groups
    last = views[-1].rank
    calls = {
        one.rank: Call(one.rank, group, seq, "all_reduce" if one.rank == last else "broadcast")
        for one in views
    }
    facts.graph.divergences.append(
        Divergence(group, 7, Difference.OPERATION, calls, (last,), (), skipped=False)
    )
    facts.graph.waits[:] = [Wait(call, WaitKind.STALLED, ()) for call in calls.values()]
    return facts


def test_iterations_of_a_loop_are_compared_by_its_counter_or_by_marked_steps() -> None:
    later = {r: SourcePosition(step=2 * (r == 3)) for r in range(4)}
    counted = differing(at(0, 20, 9), at(1, 20, 9), at(2, 20, 9), at(3, 22, 11))
    assert source_positions(counted) == later
    marked = differing(*(at(r, 20, step=9) for r in range(3)), at(3, 20, step=11))
    assert source_positions(marked) == later
    assert later[3].words and not later[0].words


def test_a_rank_behind_the_loop_of_its_peers_is_told_with_the_iterations_of_both() -> None:
    facts = differing(at(0, 20, 9), at(1, 22, 9), at(2, 20, 9), at(3, 30, 8))
    found = source_positions(facts)
    assert found[3] == SourcePosition(step=0, behind=True)
    assert {found[r] for r in range(3)} == {SourcePosition(step=1)}


def test_lines_of_one_iteration_are_in_order_and_branches_are_in_none() -> None:
    lines = differing(at(0, 20, 9), at(1, 20, 9), at(2, 20, 9), at(3, 22, 9))
    assert source_positions(lines)[3] == SourcePosition(line=1)
    branches = differing(at(0, 20, 9), at(1, 20, 9), at(2, 20, 9), at(3, 21, 9))
    assert source_positions(branches) == {}


def test_nothing_is_told_where_all_stand_alike_or_messages_are_awaited() -> None:
    assert source_positions(differing(*(at(r, 20, 9) for r in range(4)))) == {}
    messages = differing(*(at(r, 20, 9) for r in range(3)), at(3, 22, 11), seq=None)
    assert source_positions(messages) == {}
    agreeing = differing(*(at(r, 20, 9) for r in range(3)), at(3, 22, 11))
    agreeing.graph.divergences.clear()
    assert source_positions(agreeing) == {}


def test_of_ranks_that_are_left_the_order_is_kept() -> None:
    steps = {0: SourcePosition(step=1), 2: SourcePosition(step=4), 5: SourcePosition(step=1)}
    assert positions_among(steps, (2, 5)) == {0: SourcePosition(step=3), 1: SourcePosition()}
    assert positions_among(steps, (0, 5)) == {}
    lines = {0: SourcePosition(line=0), 1: SourcePosition(line=1), 2: SourcePosition(line=3)}
    assert positions_among(lines, (1, 2)) == {0: SourcePosition(), 1: SourcePosition(line=1)}
