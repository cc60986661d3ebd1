"""Programs with ranks, operations or calls left out."""

from __future__ import annotations

from itertools import groupby

from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.minimisation import (
    exactly_ranks,
    fewer_lines,
    fewer_operations,
    fewer_ranks,
    last_operations,
    shorter_rounds,
)
from hanglab.analyzer.program.reduced_program import (
    ReducedProgram,
    keep_operations,
    keep_ranks,
    operations_of,
    whole,
    without_call,
)

GROUPS = (
    ProgramGroup("0", (0, 1, 2, 3), "default_pg"),
    ProgramGroup("1", (1, 3), "pair"),
    ProgramGroup("2", (0, 2), "others"),
)
REDUCE = Action("all_reduce", 0, site=1)
PAIR = Action("all_gather", 1, site=2)


def program(*actions: tuple[Action, ...]) -> ReducedProgram:
    return whole(Program(GROUPS, actions))


def test_ranks_that_go_take_their_places_and_messages_along() -> None:
    reduced = program(
        (REDUCE, Action("send", 0, peer=1), Action("broadcast", 0, root=2)),
        (REDUCE, PAIR, Action("recv", 0, peer=0), Action("broadcast", 0, root=2)),
        (REDUCE, Action("broadcast", 0, root=2)),
        (REDUCE, PAIR, Action("broadcast", 0, root=2)),
    )
    cut = keep_ranks(reduced, [1, 3])
    assert cut.ranks == (1, 3)
    assert [group.members for group in cut.program.groups] == [(0, 1), (0, 1)]
    # The message went with its sender, and rank 2, the root, is none of those left.
    assert [a.op for a in cut.program.actions[0]] == ["all_reduce", "all_gather", "broadcast"]
    assert cut.program.actions[0][-1].root == 0
    again = keep_ranks(keep_ranks(reduced, [0, 1, 3]), [1, 2])
    assert again == cut
    alone = keep_ranks(reduced, [2])
    assert alone.calls == 0 and alone.program.groups == ()


def test_split_lists_lose_the_places_of_who_went() -> None:
    action = Action("all_to_all", 0, splits=((1, 2, 3, 4), (5, 6, 7, 8)))
    cut = keep_ranks(program((action,), (action,), (action,), (action,)), [1, 3])
    assert cut.program.actions[0][0].splits == ((2, 4), (6, 8))


def test_calls_that_meet_are_one_operation() -> None:
    send, recv = Action("send", 0, peer=1), Action("recv", 0, peer=0)
    anybody = Action("recv", 0, peer=None)
    to_last = Action("send", 0, peer=3)
    reduced = program((REDUCE, send, send), (REDUCE, recv, PAIR), (to_last,), (anybody, PAIR))
    places = [set(one.places) for one in operations_of(reduced.program)]
    assert places == [
        {(0, 0), (1, 0)},
        {(2, 0), (3, 0)},
        {(0, 1), (1, 1)},
        {(3, 1), (1, 2)},
        {(0, 2)},
    ]
    kept = keep_operations(reduced, operations_of(reduced.program)[2:4])
    assert kept.program.actions == (
        (send,),
        (recv, PAIR),
        (),
        (PAIR,),
    )
    assert without_call(kept, (1, 1)).calls == kept.calls - 1


def test_the_last_operations_grow_to_the_whole_program() -> None:
    reduced = program(*[(REDUCE,) * 300] * 3, (REDUCE,) * 299)
    sizes = [len(last.program.actions[0]) for last in last_operations(reduced)]
    assert sizes == [1, 3, 9, 33, 129, 300]


def test_ranks_are_cut_to_the_fewest_or_to_so_many() -> None:
    reduced = program((REDUCE,), (REDUCE, PAIR), (REDUCE,), (REDUCE, PAIR))

    def holds(one: ReducedProgram) -> bool:
        return {1, 3} <= set(one.ranks) and 0 in one.ranks

    assert fewer_ranks(reduced, holds, {3}).ranks == (0, 1, 3)
    four = exactly_ranks(reduced, holds, {3}, 4)
    assert four is not None and four.ranks == (0, 1, 2, 3)
    assert exactly_ranks(reduced, holds, {3}, 2) is None


def test_rounds_that_have_to_stay_alike_are_shortened_together() -> None:
    """Leaving a gather out of one round alone, or a reduction, makes the rounds differ."""
    gather, reduction = Action("all_gather", 0, site=1), Action("all_reduce", 0, site=2)
    turn = [gather] * 6 + [reduction]
    groups = (ProgramGroup("0", (0, 1), "default_pg"),)
    program = Program(groups, (tuple(turn * 2 + [gather] * 6), tuple(turn * 2 + [gather] * 5)))

    def alike(reduced: ReducedProgram) -> bool:
        made = [action.op for action in reduced.program.actions[0]]
        rounds = [len(list(calls)) for op, calls in groupby(made) if op == "all_gather"]
        fewer = len(reduced.program.actions[1]) == len(made) - 1
        return fewer and len(rounds) == 3 and len(set(rounds)) == 1

    begin = whole(program)
    assert alike(begin)
    assert fewer_operations(begin, alike) == begin
    left = shorter_rounds(begin, alike)
    assert len(left.program.actions[0]) == 5


def test_rounds_of_several_operations_are_shortened_too() -> None:
    first, second = Action("all_gather", 0, site=1), Action("all_reduce", 0, site=2)
    program = Program((ProgramGroup("0", (0, 1), "default_pg"),), (((first, second) * 5,) * 2))
    left = shorter_rounds(whole(program), lambda reduced: True)
    assert [action.op for action in left.program.actions[0]] == ["all_gather", "all_reduce"]


def test_what_a_line_did_goes_from_all_rounds_at_once() -> None:
    """Rounds that must stay alike lose their reductions together; the last, which waits, stays."""
    gather, reduction = Action("all_gather", 0, site=1), Action("all_reduce", 0, site=2)
    groups = (ProgramGroup("0", (0, 1), "default_pg"),)
    rounds = [reduction, gather] * 3
    program = Program(groups, ((*rounds, reduction), tuple(rounds)))

    def alike(reduced: ReducedProgram) -> bool:
        made = [action.op for action in reduced.program.actions[1]]
        uneven = len(reduced.program.actions[0]) == len(made) + 1
        rounds_alike = len(made) % 3 == 0 and made == made[: len(made) // 3] * 3
        return uneven and bool(made) and rounds_alike

    begin = whole(program)
    assert alike(begin)
    assert fewer_operations(begin, alike) == begin
    left = fewer_lines(begin, alike)
    assert [action.op for action in left.program.actions[0]] == ["all_gather"] * 3 + ["all_reduce"]
