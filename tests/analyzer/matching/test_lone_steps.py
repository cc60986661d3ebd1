"""Ties that one rank's steps decide: to a call to which nobody came from there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import RECV, SEND, Called, Row, columns, dump_of

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.lone_steps import LoneStep, LoneSteps
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.signatures import call_site
from hanglab.analyzer.verdict import Cause

REDUCE = "all_reduce"
WORLD = "0"


def graph_of(
    ranks: Sequence[Sequence[Called]],
    *,
    members: Mapping[str, Sequence[int]] | None = None,
    unfinished: Sequence[int] | None = None,
) -> WaitForGraph:
    groups = members or {WORLD: range(len(ranks))}
    still_open = unfinished or [1] * len(ranks)
    return build_wait_for_graph(
        [dump_of(r, calls, still_open[r], groups) for r, calls in enumerate(ranks)]
    )


def steps_of(graph: WaitForGraph) -> LoneSteps:
    assert graph.lone_steps is not None
    return graph.lone_steps


def line_of(step: LoneStep | None) -> tuple[int, int | None, int | None]:
    """The rank, and the lines of its call and of the one that it usually made there."""
    assert step is not None and step.call is not None
    lines = [call_site(call.stack) for call in (step.call, step.usual) if call is not None]
    call, *usual = [frame.line for frame in lines if frame is not None]
    return step.rank, call, usual[0] if usual else None


STEP: list[Called] = [
    (WORLD, REDUCE, 10, 8),
    (WORLD, "broadcast", 12, 8),
    (WORLD, "all_gather", 14, 8),
]


@pytest.mark.parametrize("wrong", [0, 2])
def test_a_call_left_out_in_the_third_round(wrong: int) -> None:
    ranks = [[*STEP * 2, *STEP[:2]] for _ in range(3)]
    ranks[wrong] = [*STEP * 2, STEP[0], STEP[2]]
    steps = steps_of(graph_of(ranks))
    assert line_of(steps.taken_by_one_of(range(3))) == (wrong, 14, 12)
    assert steps.taken_by_one_of({0, 1, 2} - {wrong}) is None


def test_a_call_made_twice_at_once_needs_no_round_of_its_own() -> None:
    """Two others went on from there, and did not make it twice."""
    ranks = [STEP[:2], STEP[:2], [STEP[0], STEP[0]]]
    step = steps_of(graph_of(ranks)).taken_by_one_of([0, 2])
    assert line_of(step) == (2, 10, None)


def test_the_end_of_a_loop_within_a_loop_is_no_such_step() -> None:
    """Behind its third layer a rank comes to the next step, where nobody else has come yet."""
    layers = [STEP[1], STEP[2]] * 3
    one_round = [STEP[0], *layers]
    ranks = [one_round, one_round, [*one_round, STEP[0]]]
    assert steps_of(graph_of(ranks)).taken_by_one_of(range(3)) is None


def test_where_two_took_steps_of_their_own_neither_is_told() -> None:
    ranks = [[*STEP * 2, STEP[0], STEP[2]], [*STEP * 2, STEP[2]], [*STEP * 2, *STEP[:2]]]
    assert steps_of(graph_of(ranks)).taken_by_one_of(range(3)) is None


def test_without_lines_nothing_is_told() -> None:
    rows = [
        Row(op, number + 1, inputs=((size,),), line=0)
        for number, (_, op, _, size) in enumerate([*STEP * 2, STEP[0], STEP[2]])
    ]
    dumps = [columns(rank, rows, members={WORLD: range(2)}) for rank in range(2)]
    assert steps_of(build_wait_for_graph(dumps)).taken_by_one_of([0, 1]) is None


@pytest.mark.parametrize("line", [10, 12])
def test_another_operation_on_a_line_that_never_made_one(line: int) -> None:
    """Where one line makes all calls, another one may be of the next phase."""
    step: list[Called] = [(WORLD, REDUCE, 10, 8), (WORLD, "all_gather", line, 8)]
    ranks = [[*step * 2, *step] for _ in range(3)]
    ranks[1][-1] = (WORLD, "broadcast", line, 8)
    step_taken = steps_of(graph_of(ranks)).taken_by_one_of(range(3))
    assert (step_taken is not None and step_taken.rank == 1) is (line == 12)


PAIRS = {WORLD: range(4), "1": [0, 1], "2": [2, 3]}


def rounds(group: str, count: int) -> list[Called]:
    """Steps in which a pair reduces, and then everybody."""
    return [(group, "all_gather", 10, 8), (group, REDUCE, 12, 8), (WORLD, REDUCE, 20, 4)] * count


def test_a_call_in_another_group_than_ever_from_its_line() -> None:
    ranks = [[*rounds("1", 3), *rounds("1", 1)[:2]] for _ in range(2)]
    ranks += [[*rounds("2", 3), *rounds("2", 1)[:2]] for _ in range(2)]
    ranks[3][-1] = (WORLD, REDUCE, 12, 8)
    steps = steps_of(graph_of(ranks, members=PAIRS))
    assert line_of(steps.taken_by_one_of(range(4))) == (3, 12, 12)


def test_a_line_that_comes_to_its_next_group_first_is_no_such_step() -> None:
    """Layers of a first phase, and the first of the second, which another group has."""
    first = [("1", "all_gather", 10, 8), ("1", REDUCE, 12, 8)] * 3
    ranks = [[*first, (WORLD, "all_gather", 10, 8)], first, first, first]
    members = {WORLD: range(4), "1": range(4)}
    assert steps_of(graph_of(ranks, members=members)).taken_by_one_of(range(4)) is None


def test_those_of_a_ring_who_came_to_it_as_before_are_left_out() -> None:
    """Both ranks wait in a receive; one of them never received twice from that line."""
    ranks: list[list[Called]] = [
        [(WORLD, SEND, 20, 1), (WORLD, RECV, 22, 1)] * 3,
        [(WORLD, RECV, 20, 0), (WORLD, SEND, 22, 0)] * 2 + [(WORLD, RECV, 20, 0)] * 2,
    ]
    assert steps_of(graph_of(ranks)).came_anew([0, 1]) == [1]


def test_one_that_waits_alone_in_a_call_that_it_made_twice() -> None:
    """All others have ended what it called before; in each round it has another peer."""
    ranks: list[list[Called]] = [[], [], [], []]
    for distance in (1, 2, 3):
        for rank, calls in enumerate(ranks):
            peer = rank ^ distance
            calls += [(WORLD, SEND, 20, peer), (WORLD, RECV, 20, peer), (WORLD, REDUCE, 30, 8)]
    ranks[2].append((WORLD, REDUCE, 30, 8))
    (found,) = synchronization_findings(graph_of(ranks, unfinished=[0, 0, 1, 0]))
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [2])
    assert "as nobody had done before" in found.summary


def test_one_that_waits_alone_in_the_next_call_of_its_round_is_not_accused() -> None:
    done = [*STEP, *STEP]
    ranks = [done, done, [*done, STEP[0]], done]
    assert synchronization_findings(graph_of(ranks, unfinished=[0, 0, 1, 0])) == []


@pytest.mark.parametrize("alone", [0, 2])
def test_a_batch_with_two_neighbours_who_have_ended_all(alone: int) -> None:
    """A ring of three; the one that waits in another batch has one more than both."""

    def passes(rank: int, count: int) -> list[Called]:
        return [(WORLD, SEND, 20, (rank + 1) % 3), (WORLD, RECV, 20, (rank - 1) % 3)] * count

    ranks = [passes(rank, 3 + (rank == alone)) for rank in range(3)]
    (found,) = synchronization_findings(
        graph_of(ranks, unfinished=[2 * (rank == alone) for rank in range(3)])
    )
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [alone])


def test_a_batch_with_one_neighbour_who_has_ended_all_is_of_either() -> None:
    """It may have stopped as well."""
    ranks = [[(WORLD, SEND, 20, 1 - r), (WORLD, RECV, 20, 1 - r)] * (4 - r) for r in range(2)]
    found = synchronization_findings(graph_of(ranks, unfinished=[2, 0]))
    assert [0] not in [one.culprits for one in found]


@pytest.mark.parametrize(("parts", "step"), [(3, None), (2, (1, 30, 12))])
def test_a_loop_ends_after_as_many_rounds_as_on_others(
    parts: int, step: tuple[int, int, int] | None
) -> None:
    """Rank 1 goes on to work that it alone does; a part fewer of the model, and it is amiss."""
    head, part = (WORLD, REDUCE, 10, 8), (WORLD, "broadcast", 12, 8)
    work = ("1", REDUCE, 30, 8)
    ranks = [[head, *[part] * 3] * 3 for _ in range(3)]
    ranks[1] = [*[work] * 5, *[part] * parts, *[work] * 3, part]
    graph = graph_of(ranks, members={WORLD: range(3), "1": [1]})
    found = steps_of(graph).taken_by_one_of(range(3))
    assert found is None if step is None else line_of(found) == step
