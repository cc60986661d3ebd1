"""Numbers of a status where a group has both messages and collectives."""

from __future__ import annotations

from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph


def test_finished_messages_that_a_dump_leaves_out_are_no_finished_collectives() -> None:
    """Rank 1 sent rank 0 two messages; both broadcasts of the root, rank 0, are still to come."""
    dumps = []
    for rank, (messages, status) in enumerate([(2, (2, 2)), (2, (2, 2)), (0, (2, 0))]):
        rows = [
            Row("broadcast", seq, "1", done=False, extra={"op_id": seq + messages})
            for seq in (1, 2)
        ]
        dumps.append(
            columns(
                rank,
                rows if rank else [],
                members={"1": range(3)},
                status={1: status},
                first_record=messages,
            )
        )
    graph = build_wait_for_graph(dumps)
    assert sorted(graph.unfinished) == [0, 1, 2]
    assert len(graph.unfinished[1]) == len(graph.unfinished[2]) == 2
    assert not any(2 in found.culprits for found in synchronization_findings(graph))
