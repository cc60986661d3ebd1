"""The same call of the program on different groups, which is no order of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns, line_frames

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

Called = tuple[str, int]
"""Group and line; the last of a rank's has not finished."""


def finding(
    ranks: Sequence[Sequence[Called]], *, outer: Sequence[int] = (), sizes: Sequence[int] = ()
) -> Finding:
    """``outer``: for each rank the line from which the one with the call is called.

    ``sizes``: for each rank the size of its last tensor.
    """
    dumps = []
    for rank, calls in enumerate(ranks):
        numbers = Counter[str]()
        rows = []
        for index, (group, line) in enumerate(calls):
            numbers[group] += 1
            frames = line_frames(line)
            if outer:
                frames[-1]["line"] = outer[rank]
            done = index < len(calls) - 1
            extra = {"frames": frames}
            size = [[4 if done or not sizes else sizes[rank]]]
            rows.append(
                Row("all_reduce", numbers[group], group, done, size, line=line, extra=extra)
            )
        everybody = list(range(len(ranks)))
        members = dict.fromkeys(("0", "1", "2"), everybody)
        dumps.append(columns(rank, rows, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    return found


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("steps", [2, 9])
def test_of_two_the_one_whose_group_is_new_to_the_call(wrong: int, steps: int) -> None:
    ranks = [[("1", 7)] * (steps + 1), [("1", 7)] * (steps + 1)]
    ranks[wrong][-1] = ("2", 7)
    found = finding(ranks)
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [wrong])
    assert "in different groups" in found.summary
    assert found.location is not None and found.location.line == 7


@pytest.mark.parametrize("wrong", [0, 3])
def test_without_a_past_the_one_that_is_alone(wrong: int) -> None:
    found = finding([[("2" if rank == wrong else "1", 7)] for rank in range(4)])
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [wrong])


def test_of_two_without_a_past_either_may_be_wrong() -> None:
    found = finding([[("1", 7)], [("2", 7)]])
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [0, 1])
    assert found.confidence <= 0.6


def test_a_call_that_goes_over_several_groups_has_an_order_of_them() -> None:
    past = [("1", 7), ("2", 7)] * 3
    found = finding([[*past, ("1", 7)], [*past, ("2", 7)]])
    assert found.cause is Cause.GROUP_ORDER


@pytest.mark.parametrize("outer", [(30, 40), ()])
def test_calls_on_two_lines_are_two_calls(outer: tuple[int, ...]) -> None:
    """On lines of their own, or of one function that is called from two."""
    lines = (7, 7) if outer else (7, 8)
    found = finding([[("1", lines[0])], [("2", lines[1])]], outer=outer)
    assert (found.cause, found.culprits) == (Cause.GROUP_ORDER, [0, 1])


def test_the_first_round_of_a_loop_over_groups_comes_with_what_belongs_to_each() -> None:
    found = finding([[("1", 7)], [("2", 7)]], sizes=[4, 64])
    assert found.cause is Cause.GROUP_ORDER


def stray(wrong: int, past: int) -> Finding:
    """Rank ``wrong`` of the first three calls their line 7 on the group of all four."""
    dumps = []
    for rank in range(4):
        mine = [Row("barrier", 1)]
        numbers = range(1, past + 1) if rank < 3 else ()
        extra = {"frames": line_frames(7)}
        mine += [Row("all_reduce", number, "1", extra=extra) for number in numbers]
        if rank < 3:
            number, group = (1, "2") if rank == wrong else (past + 1, "1")
            mine.append(Row("all_reduce", number, group, False, extra=extra))
        members = {"0": range(4), "1": range(3), "2": range(4)}
        dumps.append(columns(rank, mine, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    return found


@pytest.mark.parametrize("past", [0, 1, 5])
@pytest.mark.parametrize("wrong", [0, 2])
def test_those_whom_a_wrong_group_waits_for_are_innocent(wrong: int, past: int) -> None:
    found = stray(wrong, past)
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [wrong])
    assert 3 not in found.victims


def test_a_group_whose_names_drifted_holds_up_the_operations_behind_it() -> None:
    """One rank made a group more of its own: later ones bear other names on it."""
    frames = {"frames": line_frames(7)}
    dumps = []
    for rank in range(3):
        name = "2" if rank == 1 else "1"
        rows = [Row("all_reduce", n, name, False, extra=frames) for n in (1, 2, 3)]
        dumps.append(columns(rank, rows, members={name: range(3)}))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.GROUP_CREATION, [1])


def test_of_two_the_one_whose_name_is_that_of_another_group_of_it_has_drifted() -> None:
    frames = {"frames": line_frames(7)}
    pair = {rank: "3" if rank == 0 else "2" for rank in (0, 1)}
    dumps = [
        columns(rank, [Row("all_reduce", 1, name, False, extra=frames)], members={name: (0, 1)})
        for rank, name in pair.items()
    ]
    others = Row("all_reduce", 1, "3", False, extra={"frames": line_frames(9)})
    dumps += [columns(rank, [others], members={"3": (0, 2, 3)}) for rank in (2, 3)]
    found = synchronization_findings(build_wait_for_graph(dumps))
    assert [(one.cause, one.culprits) for one in found] == [(Cause.GROUP_CREATION, [0])]


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize(
    ("size", "subgroup", "odd"), [(4, (0, 2), 0), (4, (0, 2), 2), (4, (0, 1, 2), 1), (6, (1, 3), 3)]
)
@pytest.mark.parametrize("rounds", [0, 4])
def test_a_collective_of_a_subgroup_against_one_of_all(
    size: int, subgroup: tuple[int, ...], odd: int, rounds: int, backend: str
) -> None:
    """Ranks in a barrier, and one in a reduce of a subgroup: its own past tells, or nothing does.

    Without one each member of the subgroup that is in the barrier may have left the reduce out;
    most of the subgroup are right.
    """
    dumps = []
    for rank in range(size):
        rows = []
        for number in range(1, rounds + 1):
            rows.append(Row("barrier", number, extra={"frames": line_frames(10)}))
            if rank in subgroup:
                rows.append(Row("reduce", number, "1", extra={"frames": line_frames(11)}))
        op, group, line = ("reduce", "1", 11) if rank == odd else ("barrier", "0", 10)
        rows.append(Row(op, rounds + 1, group, False, extra={"frames": line_frames(line)}))
        members = {"0": range(size)} | ({"1": subgroup} if rank in subgroup else {})
        dumps.append(columns(rank, rows, members=members, backend=backend))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    if rounds or len(subgroup) > 2:
        assert found.culprits == [odd]
    else:
        assert (found.culprits, found.confidence) == (list(subgroup), 0.6)


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(("wrong", "at"), [(1, 1), (2, 2), (3, 3)])
def test_a_message_on_a_wrong_group_where_the_usual_one_lacks_it(
    wrong: int, at: int, eager: bool, frames: bool
) -> None:
    """Hosts have issued all of a pipeline, so that its stages come to their second phase alike."""
    dumps = []
    for rank in range(4):
        ends = [("recv", rank - 1)] if rank else []
        ends += [("send", rank + 1)] if rank < 3 else []
        back = [("recv", rank + 1)] if rank < 3 else []
        back += [("send", rank - 1)] if rank else []
        calls = [(*call, n) for n in range(5) for call in ends]
        calls += [(*call, 5 + n) for n in range(5) for call in back]
        rows = []
        for half, peer, n in calls:
            group = "0" if (rank, half, n) == (wrong, "recv", at) else "1"
            arrow = "->" if half == "send" else "<-"
            line = (20 if half == "recv" else 22) * frames
            place = 1 + sum(row.group == group for row in rows)
            op = f"{half} {rank}{arrow}{peer}"
            ended = n < at or (eager and rank < wrong and n < 5)
            rows.append(Row(op, 0, group, ended, p2p_seq=place, line=line))
        rows.append(Row("all_reduce", 1, "0", False, line=40 * frames))
        dumps.append(columns(rank, rows, members={"0": range(4), "1": range(4)}))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [wrong])
    assert f"recv from rank {wrong - 1} (default_pg) has no counterpart" in found.summary


def test_a_message_of_a_next_phase_is_not_on_a_wrong_group() -> None:
    """Rank 0 has come to what it does on another group; rank 1 sent once more on the first one."""
    dumps = []
    for rank, peer in ((0, 1), (1, 0)):
        half, arrow = ("send", "->") if rank else ("recv", "<-")
        rows = [
            Row(f"{half} {rank}{arrow}{peer}", 0, "1", p2p_seq=n, line=10 + rank)
            for n in range(1, 4)
        ]
        group, place = ("2", 1) if rank == 0 else ("1", 4)
        op = f"{half} {rank}{arrow}{peer}"
        rows.append(Row(op, 0, group, rank == 1, p2p_seq=place, line=30 - 19 * rank))
        dumps.append(columns(rank, rows, members={"1": (0, 1), "2": (0, 1)}))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert found.culprits == [0, 1] and found.confidence <= 0.5
