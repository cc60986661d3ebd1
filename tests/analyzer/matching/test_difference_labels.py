"""What a difference is called: other arguments, or one call too many that shifts the others."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.difference_labels import label_by_sides
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.verdict import Cause

#: Entries tell their thread, so that they are an order.
THREAD = {"thread_id": "1", "thread_name": "main"}
MEMBERS = {"0": range(3), "1": range(3), "2": range(3)}


@pytest.mark.parametrize(("line", "label"), [(22, Difference.SIZE), (23, Difference.CALL_SITE)])
def test_a_call_of_an_own_order_from_its_peers_line_is_none_too_many(
    line: int, label: Difference
) -> None:
    """Each rank has an order of its own; rank 1 gives another size, or has a call of its own."""
    free = Row("all_reduce", 1, "1", line=21, extra=THREAD)
    held = Row("all_reduce", 1, "2", done=False, line=22, extra=THREAD)
    other = Row("all_reduce", 1, "2", done=False, line=line, inputs=((5,),), extra=THREAD)
    dumps = [
        columns(rank, [other, free] if rank == 1 else [free, held], members=MEMBERS)
        for rank in range(3)
    ]
    (found,) = build_wait_for_graph(dumps).divergences
    assert (found.difference, found.deviating) == (label, (1,))


def test_who_is_named_is_told_by_its_own_difference() -> None:
    """Rank 1 gives another dtype, and rank 2, which is named, another size."""
    rows = {
        1: Row("all_reduce", 1, done=False, line=10, dtype="Half"),
        2: Row("all_reduce", 1, done=False, line=10, inputs=((6,),)),
    }
    right = Row("all_reduce", 1, done=False, line=10)
    dumps = [columns(rank, [rows.get(rank, right)], members={"0": range(4)}) for rank in range(4)]
    (found,) = build_wait_for_graph(dumps).divergences
    assert found.difference is Difference.DTYPE
    found.deviating, found.candidates = (2,), ()
    label_by_sides(found)
    assert found.difference is Difference.SIZE


def test_one_of_two_that_waits_for_nothing_may_have_stopped_in_an_own_order() -> None:
    done = [Row("all_reduce", 1, group, line=20 + int(group), extra=THREAD) for group in ("0", "1")]
    more = Row("all_reduce", 1, "2", done=False, line=22, extra=THREAD)
    members = {"0": range(2), "1": range(2), "2": range(2)}
    dumps = [columns(0, [more, *done], members=members), columns(1, done, members=members)]
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [0, 1])


@pytest.mark.parametrize(
    ("mine", "theirs", "label"),
    [
        (688, 0, Difference.OPERATION),  # what DDP's reducer issues has no line
        (0, 688, Difference.OPERATION),
        (688, 688, Difference.SIZE),
        (0, 0, Difference.SIZE),
    ],
)
@pytest.mark.parametrize("lined", [True, False], ids=["with_lines", "without_lines"])
def test_a_call_with_a_line_is_none_that_has_no_line(
    mine: int, theirs: int, label: Difference, lined: bool
) -> None:
    """Unless the dump that has no line of that has none at all."""
    dumps = []
    for rank in range(4):
        first = Row("broadcast", 1, line=10 if lined else 0, extra=THREAD)
        size, line = (1, mine) if rank == 2 else (64, theirs)
        last = Row("all_reduce", 2, done=False, line=line, inputs=((size,),), extra=THREAD)
        dumps.append(columns(rank, [first, last], members={"0": range(4)}))
    (found,) = build_wait_for_graph(dumps).divergences
    assert found.deviating == (2,)
    assert found.difference is (label if lined else Difference.SIZE)
