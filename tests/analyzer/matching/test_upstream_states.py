"""Cases that torchfrtrace's matcher tells apart, and those that must not alarm."""

from __future__ import annotations

from typing import Any

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.verdict import Cause


def graph_of(*rows: list[Row], **details: Any) -> WaitForGraph:
    """Each argument is what one rank did in a world of as many."""
    details.setdefault("members", world(len(rows)))
    return build_wait_for_graph(
        [columns(rank, mine, **details) for rank, mine in enumerate(rows)],
        expected=range(len(rows)),
    )


def test_fully_matched() -> None:
    rows = [Row("all_reduce", 1), Row("broadcast", 2), Row("_all_gather_base", 3)]
    graph = graph_of(rows, rows, rows)
    assert not graph.divergences
    assert not graph.waits
    assert synchronization_findings(graph) == []
    assert graph.agreed == {graph.groups[0]: 3}


def test_collective_type_mismatch() -> None:
    good = [Row("all_reduce", 1), Row("all_reduce", 2, done=False)]
    bad = [Row("all_reduce", 1), Row("broadcast", 2, done=False)]
    graph = graph_of(good, bad, good)
    (divergence,) = graph.divergences
    assert divergence.difference is Difference.OPERATION
    assert (divergence.seq, divergence.deviating) == (2, (1,))
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])
    assert finding.collective is not None and finding.collective.op == "all_reduce"


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "reduce", "_reduce_scatter_base"])
def test_size_mismatch(op: str) -> None:
    good = [Row(op, 1, done=False, inputs=((8,),))]
    bad = [Row(op, 1, done=False, inputs=((9,),))]
    graph = graph_of(good, good, bad)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.SIZE_MISMATCH, [2])


def test_dtype_mismatch() -> None:
    good = [Row("all_reduce", 1, done=False)]
    bad = [Row("all_reduce", 1, done=False, dtype="BFloat16")]
    (finding,) = synchronization_findings(graph_of(bad, good, good))
    assert (finding.cause, finding.culprits) == (Cause.DTYPE_MISMATCH, [0])


def test_ranks_in_different_states_are_no_finding() -> None:
    graph = graph_of(
        [Row("all_reduce", 1)],
        [Row("all_reduce", 1, done=False, state="started")],
        [Row("all_reduce", 1, done=False)],
    )
    assert synchronization_findings(graph) == []


def test_all_stuck_in_the_same_operation_is_stalled() -> None:
    rows = [Row("all_reduce", 1, done=False)]
    graph = graph_of(rows, rows)
    assert synchronization_findings(graph) == []
    assert [wait.call.seq for wait in graph.stalled] == [1]


def test_undecided_all_to_all_is_no_finding() -> None:
    graph = graph_of(
        [Row("all_to_all", 1, inputs=((10, 2),), outputs=((6, 2),))],
        [Row("all_to_all", 1, inputs=((2, 2),), outputs=((6, 2),))],
    )
    assert synchronization_findings(graph) == []


def test_missing_rank() -> None:
    waits = [Row("all_reduce", 1), Row("all_reduce", 2, done=False)]
    graph = graph_of(waits, [Row("all_reduce", 1)], waits)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])
    assert finding.victims == [0, 2]
    assert finding.location is None
    (sink,) = graph.sinks
    assert sink.outside and sink.awaited.seq == 2
    assert sink.last is not None and sink.last.seq == 1


@pytest.mark.parametrize(
    "root, others",
    [
        (Row("gather", 1, outputs=((4, 4),)), Row("gather", 1, outputs=())),
        (
            Row("scatter", 1, inputs=((3, 4),), outputs=((4,),)),
            Row("scatter", 1, inputs=(), outputs=((4,),)),
        ),
        (
            Row("all_to_all", 1, inputs=((9, 5),), outputs=((3, 5),)),
            Row("all_to_all", 1, inputs=((1, 5),), outputs=((4, 5),)),
        ),
        (
            Row("all_gather", 1, inputs=((5,),), outputs=((5,), (2,), (2,))),
            Row("all_gather", 1, inputs=((2,),), outputs=((5,), (2,), (2,))),
        ),
        (
            Row("_broadcast_oop", 1, inputs=((5,),), outputs=((5,),)),
            Row("_broadcast_oop", 1, inputs=((2,),), outputs=((5,),)),
        ),
        (
            Row("_all_gather_base", 1, inputs=((4,),), outputs=((12,),)),
            Row("_all_gather_base", 1, inputs=((4,),), outputs=((12,),)),
        ),
        (
            Row("_reduce_scatter_base", 1, inputs=((12,),), outputs=((4,),)),
            Row("_reduce_scatter_base", 1, inputs=((2, 6),), outputs=((4,),)),
        ),
        (Row("all_reduce", 1, inputs=((2, 4),)), Row("all_reduce", 1, inputs=((8,),))),
        (Row("sparse_all_reduce", 1), Row("sparse_all_reduce", 1)),
    ],
)
@pytest.mark.parametrize("done", [True, False])
def test_healthy_shapes_differ_without_alarm(root: Row, others: Row, done: bool) -> None:
    def once(row: Row) -> list[Row]:
        return [Row(**{**row.__dict__, "done": done})]

    graph = graph_of(once(root), once(others), once(others))
    assert not graph.divergences
    assert synchronization_findings(graph) == []


def test_all_to_all_that_sends_less_than_is_taken() -> None:
    graph = graph_of(
        [Row("all_to_all", 1, done=False, inputs=((10, 2),), outputs=((6, 2),))],
        [Row("all_to_all", 1, done=False, inputs=((3, 2),), outputs=((6, 2),))],
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.SPLIT_MISMATCH, [0, 1])
    assert finding.confidence <= 0.5


def test_all_to_all_of_lists_shows_who_does_not_fit() -> None:
    def rows(outputs: list[int]) -> list[Row]:
        sizes = tuple((length,) for length in outputs)
        return [Row("all_to_all", 1, done=False, inputs=((2,), (2,), (2,)), outputs=sizes)]

    graph = graph_of(rows([2, 2, 2]), rows([3, 3, 2]), rows([2, 2, 2]))
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.SPLIT_MISMATCH, [1])


def test_coalesced_end_stands_for_its_members() -> None:
    def batch(sizes: list[int], done: bool) -> list[Row]:
        members = [
            Row("_broadcast_oop", 1, inputs=((n,),), done=False, retired=False) for n in sizes
        ]
        end = Row("ALLGATHER_coalesced", 1, inputs=(), done=done)
        return [*members, end, Row("all_reduce", 2, done=done)]

    assert synchronization_findings(graph_of(batch([5, 2], True), batch([5, 2], True))) == []
    stuck = graph_of(batch([5, 2], False), [])
    assert [sink.rank for sink in stuck.sinks] == [1]


def test_a_manager_that_leaves_one_entry() -> None:
    rows = [Row("allreduce_coalesced", 1, inputs=((4,), (8,)), outputs=((4,), (8,)))]
    assert synchronization_findings(graph_of(rows, rows)) == []


def test_without_sizes_operations_still_match() -> None:
    bare = [Row("all_reduce", 1, inputs=(), outputs=(), done=False)]
    full = [Row("all_reduce", 1, done=False)]
    assert not graph_of(bare, full).divergences


def test_record_offsets_and_skewed_rings_mean_nothing() -> None:
    rows = [Row("all_reduce", seq) for seq in range(1, 60)]
    dumps = [
        columns(0, rows, members=world(3)),
        columns(1, rows[20:], members=world(3), first_record=520),
        columns(2, rows[41:], members=world(3), first_record=41),
    ]
    graph = build_wait_for_graph(dumps)
    assert synchronization_findings(graph) == []
    assert not graph.waits
