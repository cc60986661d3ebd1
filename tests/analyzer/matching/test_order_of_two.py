"""Two ranks that wait crosswise in two groups, and others that tell by what they came to first."""

from __future__ import annotations

from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding


def finding(*passed: int) -> Finding:
    """Rank 0 waits to collect from all, rank 1 has come to another group first.

    Those who ``passed`` have given their parts, and wait for rank 0 in a third group.
    """
    size = 2 + len(passed)
    members = {**world(size), "1": range(size), "2": [0, *passed]}
    rows = {
        0: [Row("gather", 1, "1", done=False)],
        1: [Row("all_reduce", 1, done=False)],
        **{rank: [Row("gather", 1, "1"), Row("all_reduce", 1, "2", done=False)] for rank in passed},
    }
    (found,) = synchronization_findings(
        build_wait_for_graph(columns(rank, mine, members=members) for rank, mine in rows.items())
    )
    return found


def test_those_who_went_on_tell_who_came_to_another_group_first() -> None:
    found = finding(2, 3)
    assert (found.cause, found.culprits) == (Cause.GROUP_ORDER, [1])


def test_of_two_alone_either_may_have_come_too_early() -> None:
    found = finding()
    assert (found.cause, found.culprits) == (Cause.GROUP_ORDER, [0, 1])
