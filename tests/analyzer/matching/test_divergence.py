"""Deviating ranks, and the operations they left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.matching.group_history import continuation, left_out, period_of
from hanglab.analyzer.matching.signatures import alike
from hanglab.analyzer.strengths import TIED
from hanglab.analyzer.verdict import Cause

#: (operation, elements, line) of one step of a program.
Step = Sequence[tuple[str, int, int]]
STEP: Step = (("all_reduce", 8, 10), ("broadcast", 4, 11), ("all_reduce", 2, 12))


def rows(calls: Step, *, stuck: bool = True, frames: bool = True) -> list[Row]:
    return [
        Row(
            op,
            seq,
            inputs=((size,),),
            line=line if frames else 0,
            done=not stuck or seq < len(calls),
        )
        for seq, (op, size, line) in enumerate(calls, start=1)
    ]


def graph_of(*ranks: list[Row]) -> WaitForGraph:
    return build_wait_for_graph(
        [columns(r, mine, members=world(len(ranks))) for r, mine in enumerate(ranks)]
    )


def test_the_majority_is_right() -> None:
    good, bad = rows([*STEP, STEP[0]]), rows([*STEP, ("all_gather", 8, 30)])
    (finding,) = synchronization_findings(graph_of(good, bad, good))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])
    assert finding.location is not None
    assert (finding.location.line, finding.location.function) == (30, "step")


def test_a_skip_is_told_by_the_pattern_of_the_steps() -> None:
    good, bad = rows([*STEP, *STEP, STEP[0]]), rows([*STEP, *STEP, STEP[1]])
    (finding,) = synchronization_findings(graph_of(good, good, bad))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])
    assert finding.location is not None and finding.location.line == 11


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_who_alone_goes_on_as_in_each_round_before_is_not_accused_alone(
    left_out: int, frames: bool
) -> None:
    """Most left out what all did so far: they may be wrong, or it may have missed why."""
    rest = [*STEP[:left_out], *STEP[left_out + 1 :]]
    most = rows([*STEP, *STEP, *rest, *STEP[:2]], frames=frames)
    alone = rows([*STEP, *STEP, *STEP[: left_out + 1]], frames=frames)
    (finding,) = synchronization_findings(graph_of(most, alone, most))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [0, 1, 2])
    assert finding.confidence == TIED
    assert "Most speak against the few" in finding.summary


def test_what_repeats_itself_within_a_round_is_no_round_that_peers_left() -> None:
    """A validation of three batches, and of a fourth on one rank, after the first steps."""
    steps: Step = [("all_reduce", size, 10) for size in (8, 4)] * 5
    batches: Step = [("all_reduce", 1, 20)] * 3
    most = rows([*steps, *batches, steps[0]])
    more = rows([*steps, *batches, batches[0]])
    (finding,) = synchronization_findings(graph_of(more, most, most))
    assert finding.culprits == [0]
    assert "left it out" not in finding.summary


def test_who_makes_two_calls_in_the_other_order_left_none_out() -> None:
    """A step later they come in that order again, which is no step left out."""
    step: Step = [("all_gather", size, 10) for size in (4, 6, 9, 12)]
    good = rows([*step * 3, *step])
    swapped = rows([*step * 3, step[1], step[0], *step[2:]])
    for row in (*good, *swapped):
        object.__setattr__(row, "done", row.seq <= 12)
    (finding,) = synchronization_findings(graph_of(good, good, swapped))
    assert (finding.cause, finding.culprits) == (Cause.SIZE_MISMATCH, [2])


@pytest.mark.parametrize("wrong", range(4))
def test_who_is_ahead_by_one_in_rounds_of_equal_calls_left_one_out(wrong: int) -> None:
    """It is behind by all the others of a round as well, and its peers ahead by these."""
    step: Step = [("all_reduce", 8, line) for line in range(10, 15)]
    ranks = [rows(list(step) * 6) for _ in range(4)]
    ranks[wrong] = rows([*step * 3, *step[1:], *step * 2], stuck=False)
    (finding,) = synchronization_findings(graph_of(*ranks))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [wrong])


def test_between_two_ranks_the_pattern_decides() -> None:
    good, bad = rows([*STEP, *STEP, STEP[0]]), rows([*STEP, *STEP, STEP[1]])
    for ranks, culprit in (((good, bad), 1), ((bad, good), 0)):
        (finding,) = synchronization_findings(graph_of(*ranks))
        assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [culprit])


def test_between_two_ranks_without_a_pattern_nobody_is_accused_alone() -> None:
    (finding,) = synchronization_findings(graph_of(rows([STEP[0]]), rows([STEP[1]])))
    assert finding.culprits == [0, 1]
    assert finding.confidence <= 0.5


@pytest.mark.parametrize("before", [0, 1, 2])
def test_between_two_ranks_what_is_no_step_may_have_been_due(before: int) -> None:
    """An evaluation, which the other went on from, or the first one, which nobody has seen."""
    step, evaluation = ("all_reduce", 8, 10), ("all_gather", 4, 7)
    past: Step = [*[evaluation] * (before == 1), *[step] * 9, *[evaluation] * (before == 2)]
    past += [step] * 20
    for ranks in ((0, 1), (1, 0)):
        sides = (rows([*past, evaluation]), rows([*past, step]))
        (finding,) = synchronization_findings(graph_of(*(sides[r] for r in ranks)))
        assert finding.culprits == [0, 1] and finding.confidence <= 0.5


def test_as_many_may_have_gone_on_from_the_first_evaluation_as_made_it() -> None:
    step, evaluation = ("all_reduce", 8, 10), ("all_gather", 4, 7)
    made, went_on = rows([*[step] * 30, evaluation]), rows([*[step] * 31])
    (finding,) = synchronization_findings(graph_of(made, made, went_on, went_on))
    assert finding.culprits == [0, 1, 2, 3] and finding.confidence <= 0.5
    (finding,) = synchronization_findings(graph_of(made, went_on, went_on, went_on))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [0])


def test_between_two_ranks_without_lines_nobody_is_accused_alone() -> None:
    good = rows([*STEP, *STEP, STEP[0]], frames=False)
    bad = rows([*STEP, *STEP, STEP[1]], frames=False)
    (finding,) = synchronization_findings(graph_of(good, bad))
    assert finding.culprits == [0, 1]


def test_later_operations_show_a_skip_without_a_pattern() -> None:
    calls: Step = [("all_reduce", n, 10 + n) for n in range(1, 8)]
    good = [Row(r.op, r.seq, inputs=r.inputs, line=r.line, done=r.seq < 4) for r in rows(calls)]
    shifted = calls[:3] + calls[4:]
    bad = [Row(r.op, r.seq, inputs=r.inputs, line=r.line, done=r.seq < 4) for r in rows(shifted)]
    (finding,) = synchronization_findings(graph_of(good, good, bad))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])
    assert finding.collective is not None and finding.collective.seq == 4


@pytest.mark.parametrize("frames", [True, False])
def test_other_arguments_from_the_same_line_are_no_skip(frames: bool) -> None:
    good = rows([*STEP, STEP[0]], frames=frames)
    bad = rows([*STEP, ("all_reduce", 5, 10)], frames=frames)
    (finding,) = synchronization_findings(graph_of(good, bad, good))
    assert (finding.cause, finding.culprits) == (Cause.SIZE_MISMATCH, [1])


@pytest.mark.parametrize("bare", [0, 2])
def test_a_dump_without_lines_does_not_speak_for_its_side(bare: int) -> None:
    good = rows([*STEP, STEP[0]])
    bad = rows([*STEP, ("all_reduce", 5, 30)])
    ranks = [good, bad, good]
    ranks[bare] = rows([*STEP, STEP[0]], frames=False)
    (finding,) = synchronization_findings(graph_of(*ranks))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])


def test_a_skip_that_all_finished_shows_in_the_lines() -> None:
    # Same operation and size from two lines: nothing fails until one rank ends short.
    step: Step = (("all_reduce", 8, 10), ("all_reduce", 8, 20))
    calls = [*step, *step, *step, *step]
    short = [*calls[:4], *calls[5:]]
    bad = [Row(r.op, r.seq, inputs=r.inputs, line=r.line) for r in rows(short)]
    graph = graph_of(rows(calls), rows(calls), bad)
    (divergence,) = graph.divergences
    assert (divergence.seq, divergence.difference) == (5, Difference.CALL_SITE)
    assert (divergence.deviating, divergence.skipped) == ((2,), True)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])


def test_an_insertion_that_all_finished_accuses_the_one_that_inserted() -> None:
    step: Step = (("all_reduce", 8, 10), ("all_reduce", 8, 20))
    calls = [*step, *step, *step]
    longer = [*calls[:4], ("all_reduce", 8, 77), *calls[4:]]
    good = [Row(r.op, r.seq, inputs=r.inputs, line=r.line) for r in rows(calls)]
    graph = graph_of(good, rows(longer), good)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])


def test_a_skip_among_equal_calls_leaves_a_rank_outside() -> None:
    calls: Step = [("all_reduce", 8, 10)] * 6
    good = rows(calls)
    bad = [Row(r.op, r.seq, inputs=r.inputs, line=r.line) for r in rows(calls[:-1])]
    graph = graph_of(good, bad, good)
    assert not graph.divergences
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])


def test_a_branch_on_the_rank_is_no_divergence() -> None:
    root: Step = [("broadcast", 8, 10), ("all_reduce", 8, 12)] * 4
    others: Step = [("broadcast", 8, 14), ("all_reduce", 8, 12)] * 4
    stuck = graph_of(rows(root), rows(others), rows(others)[:-1])
    assert not stuck.divergences
    assert [finding.culprits for finding in synchronization_findings(stuck)] == [[2]]


def test_a_difference_that_harmed_nobody_explains_no_hang() -> None:
    a = rows([("all_reduce", 8, 10), ("all_reduce", 4, 11)], stuck=False)
    b = rows([("all_reduce", 8, 10), ("all_reduce", 5, 11)], stuck=False)
    graph = graph_of(a, a, b)
    assert [(d.seq, d.deviating) for d in graph.silent_mismatches] == [(2, (2,))]
    assert graph.divergences == [] and synchronization_findings(graph) == []


@pytest.mark.parametrize("wrong", [0, 3, 5])
@pytest.mark.parametrize("pairs", [2, 4])
def test_who_is_proved_wrong_in_one_group_is_wrong_in_another(wrong: int, pairs: int) -> None:
    # Tensor-parallel pairs (0 1) (2 3) ..., and data-parallel groups across them.
    size = 2 * max(pairs, 3)
    tensor = {str(1 + n): [2 * n, 2 * n + 1] for n in range(size // 2)}
    data = {str(50 + n): list(range(n, size, 2)) for n in range(2)}
    dumps = []
    for rank in range(size):
        mine = [name for name, ranks in {**tensor, **data}.items() if rank in ranks]
        # On a device both are queued: the pair waits in one, the row in the other.
        shape = ((8 + (rank == wrong),),)
        calls = [Row("all_reduce", 1, name, inputs=shape, done=False, line=10) for name in mine]
        members = {name: ranks for name, ranks in {**tensor, **data}.items() if rank in ranks}
        dumps.append(columns(rank, calls, members=members))
    findings = synchronization_findings(build_wait_for_graph(dumps))
    # The pair was the first that it came to: its row differs for the same reason.
    assert [(f.culprits, f.cause) for f in findings] == [([wrong], Cause.SIZE_MISMATCH)]
    assert findings[0].collective is not None
    assert findings[0].collective.ranks == tensor[str(1 + wrong // 2)]


def test_a_tie_of_innocents_stays_one_beside_a_proved_rank() -> None:
    members = {"1": [0, 1, 2], "2": [3, 4]}
    dumps = [
        columns(
            rank,
            [Row("all_reduce", 1, name, inputs=((8 + (rank in (2, 4)),),), done=False)],
            members={name: members[name]},
        )
        for rank, name in enumerate("11122")
    ]
    findings = synchronization_findings(build_wait_for_graph(dumps))
    assert [(f.culprits, f.confidence > 0.6) for f in findings] == [([2], True), ([3, 4], False)]


@pytest.mark.parametrize("skipper", [0, 2])
@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_who_is_further_on_in_straight_code_left_something_out(skipper: int, left_out: int) -> None:
    calls: Step = [("barrier", 1, 10), ("all_reduce", 4, 12), ("all_gather", 2, 15)]
    calls = [*calls, ("broadcast", 6, 21), ("all_reduce", 3, 30)]
    good, bad = calls[:2], [calls[0], calls[1 + left_out]]
    (finding,) = synchronization_findings(
        graph_of(*(rows(bad if rank == skipper else good) for rank in range(4)))
    )
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [skipper])


@pytest.mark.parametrize("line", [11, 9000])
def test_who_is_not_further_on_in_straight_code_left_nothing_out(line: int) -> None:
    # Before its peers' line it put something in, and no function is as long as that.
    good: Step = [("barrier", 1, 10), ("all_reduce", 4, 12)]
    bad: Step = [("barrier", 1, 10), ("all_gather", 4, line)]
    (finding,) = synchronization_findings(graph_of(rows(good), rows(bad), rows(good)))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])


def test_where_peers_went_on_past_the_line_without_it_nothing_was_left_out() -> None:
    good: Step = [("barrier", 1, 10), ("all_reduce", 4, 12), ("all_gather", 2, 20)]
    bad: Step = [("barrier", 1, 10), ("broadcast", 4, 15)]
    queued = [Row(r.op, r.seq, inputs=r.inputs, line=r.line, done=r.seq < 2) for r in rows(good)]
    (finding,) = synchronization_findings(graph_of(queued, rows(bad), queued))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])


def test_without_lines_other_sizes_and_dtypes_are_another_operation() -> None:
    good, bad = Row("all_reduce", 1, done=False), Row("all_reduce", 1, inputs=((7,),), done=False)
    for dtype, cause in (("Float", Cause.SIZE_MISMATCH), ("Long", Cause.COLLECTIVE_MISMATCH)):
        (finding,) = synchronization_findings(graph_of([good], [replace(bad, dtype=dtype)], [good]))
        assert (finding.cause, finding.culprits) == (cause, [1])


def test_the_order_of_another_group_settles_a_tie() -> None:
    # 2 and 3 part in the world; 0 and 1, who have yet to come there, wait for 3 in group 1.
    members = {"0": range(4), "1": [0, 1, 3]}
    waits = [Row("all_reduce", 1, "1", done=False)]
    dumps = [
        columns(0, waits, members=members),
        columns(1, waits, members=members),
        columns(2, [Row("barrier", 1, inputs=(), done=False)], members=members),
        columns(3, [Row("all_reduce", 1, done=False)], members=members),
    ]
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [3]


def test_patterns() -> None:
    assert period_of("abcabc") == 3
    assert period_of("xxabab") == 2
    assert period_of("aaaa") == 1
    assert period_of("abcd") is None
    assert period_of("abb") is None  # One operation twice in a row is no loop.
    assert period_of("abbb") == 1
    # A step that begins with a repetition is no pattern of that repetition alone.
    assert period_of("xaabaabaa") == 3
    assert period_of(["a", None, "a", None]) is None
    assert continuation("abab", 3) == ["a", "b", "a"]
    assert left_out("bc", "abc") == 1
    assert left_out("cd", "abcd") == 2
    assert left_out("ab", "abc") is None
    assert left_out("xb", "abc") is None


def test_what_died_with_a_rank_does_not_hide_that_it_went_on_in_the_pattern() -> None:
    # Operation, size, dtype, reduce operation, line: the fourth is read after the call.
    reduction, loss = (1, 64, 2, 5, 19), (1, 8, 2, 5, 24)
    unread = (*loss[:3], 0, loss[4])
    peers = [reduction, loss, reduction]
    assert left_out([unread], peers, same=alike) == 1
    assert left_out([(*loss[:3], 7, 24)], peers, same=alike) is None
    assert left_out([(*loss[:4], 25)], peers, same=alike) is None
    assert not alike(None, loss)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (("all_reduce", 2, 44), Cause.SIZE_MISMATCH),
        (("broadcast", 1, 44), Cause.COLLECTIVE_MISMATCH),
    ],
)
def test_a_branch_by_rank_is_told_by_its_own_line(
    wrong: tuple[str, int, int], cause: Cause
) -> None:
    """Half of the ranks call what comes last from a line of their own; one of these otherwise."""
    step: Step = [("broadcast", 4, 20), ("all_reduce", 8, 30)]
    usual, other = ([*step, *step, ("all_reduce", 1, line)] for line in (40, 44))
    ranks = [rows(usual), rows(usual), rows(other), rows([*step, *step, wrong])]
    (finding,) = synchronization_findings(graph_of(*ranks))
    assert (finding.cause, finding.culprits) == (cause, [3])


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize(("at", "told"), [(3, True), (6, False)])
def test_of_two_without_lines_it_is_who_calls_otherwise_than_ever(
    wrong: int, at: int, told: bool
) -> None:
    """What comes later counts as well; with nothing behind it one may be in another phase."""
    ranks = [
        [
            Row("all_reduce", seq, done=seq < at, inputs=((8 + (seq == at and rank == wrong),),))
            for seq in range(1, 7)
        ]
        for rank in (0, 1)
    ]
    (finding,) = synchronization_findings(graph_of(*ranks))
    assert (finding.cause, finding.culprits) == (
        Cause.SIZE_MISMATCH,
        [wrong] if told else [0, 1],
    )
