"""Groups are told apart by name and members, whatever the dumps leave out or call differently."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause


def open_(seq: int, group: str = "0") -> Row:
    return Row("all_reduce", seq, group=group, done=False)


def test_split_groups_share_a_name() -> None:
    halves = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}
    done, waits = [Row("all_reduce", 1, "7")], [Row("all_reduce", 1, "7"), open_(2, "7")]
    dumps = [
        columns(rank, waits if rank == 3 else done, members={"7": members})
        for rank, members in halves.items()
    ]
    graph = build_wait_for_graph(dumps)
    assert {group.members for group in graph.groups} == {(0, 1), (2, 3)}
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [2]
    assert finding.victims == [3]


def test_replica_groups_that_number_their_ranks_from_zero() -> None:
    # torchft: each replica has its own world 0..1; the files carry global ranks.
    waits, done = [Row("all_reduce", 1), open_(2)], [Row("all_reduce", 1)]
    dumps = [
        columns(0, done, members=world(2)),
        columns(1, done, members=world(2)),
        columns(2, waits, members=world(2)),
        columns(3, done, members=world(2)),
    ]
    graph = build_wait_for_graph(dumps)
    assert {group.members for group in graph.groups} == {(0, 1), (2, 3)}
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [3]


def test_descriptions_may_differ() -> None:
    rows = [Row("all_reduce", 1), open_(2)]
    dumps = [
        columns(0, rows, members=world(3), descriptions={"0": "default_pg"}),
        columns(1, rows, members=world(3), descriptions={"0": "mesh_dp"}),
        columns(2, rows[:1], members=world(3), descriptions={"0": "default_pg"}),
    ]
    graph = build_wait_for_graph(dumps)
    (group,) = graph.groups
    assert group.description == "default_pg"
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [2]


def test_gloo_lists_no_members() -> None:
    rows = [Row("all_reduce", 1), Row("all_reduce", 1, "1")]
    dumps = [columns(rank, rows[: 2 if rank < 2 else 1], backend="gloo") for rank in range(3)]
    graph = build_wait_for_graph(dumps, expected=range(4))
    assert {group.name: group.members for group in graph.groups} == {
        "0": (0, 1, 2, 3),
        "1": (0, 1),
    }


def test_peers_tell_which_group_a_status_belongs_to() -> None:
    members = {"0": range(3), "5": range(3)}
    rows = [
        Row("all_reduce", 1),
        *[Row("all_reduce", seq, "5") for seq in range(1, 9)],
        open_(9, "5"),
    ]
    dumps = [
        columns(r, rows, members=members, pg_ids={"0": 0, "5": 3}, status={0: (1, 1), 3: (9, 8)})
        for r in (0, 2)
    ]
    dumps.append(columns(1, [], members=members, status={0: (1, 1), 3: (8, 8)}))
    graph = build_wait_for_graph(dumps)
    (sink,) = graph.sinks
    assert (sink.rank, sink.awaited.group.name, sink.awaited.seq) == (1, "5", 9)


def test_a_status_that_cannot_be_the_groups_is_left_alone() -> None:
    members = {"0": range(3), "5": range(3)}
    rows = [*[Row("all_reduce", seq, "5") for seq in range(1, 9)], open_(9, "5")]
    dumps = [columns(r, rows, members=members, pg_ids={"5": 3}, status={3: (9, 8)}) for r in (0, 2)]
    # By its own numbers, 3 is another group: nobody could have finished 8 without it.
    dumps.append(columns(1, [], members=members, status={3: (2, 2)}))
    graph = build_wait_for_graph(dumps)
    assert synchronization_findings(graph) == []
    assert graph.open == (1,)


def test_members_are_learned_from_peers() -> None:
    rows = [Row("all_reduce", 1), open_(2)]
    dumps = [
        columns(0, rows, members=world(3)),
        columns(1, rows, members={}),
        columns(2, rows[:1], members=world(3)),
    ]
    graph = build_wait_for_graph(dumps)
    assert len(graph.groups) == 1
    assert [finding.culprits for finding in synchronization_findings(graph)] == [[2]]


@pytest.mark.parametrize("beside", [(), (0,), (0, 1, 3), (0, 1, 2, 3)])
def test_a_group_on_gloo_takes_no_status_from_the_groups_on_nccl(beside: tuple[int, ...]) -> None:
    """Entries that never changed their state, so that only statuses tell what has finished."""
    done = [Row("all_reduce", seq, state="scheduled", retired=False) for seq in range(1, 11)]
    last = Row("all_reduce", 11, done=False)
    barrier = Row("barrier", 1, group="1", extra={"profiling_name": "gloo:barrier"})
    dumps = []
    for rank in range(4):
        rows = done if rank == 2 else [*done, last]
        side = [barrier] if rank in beside else []
        dumps.append(
            columns(
                rank,
                [*rows[:3], *side, *rows[3:]],
                members={"0": range(4), "1": range(4)},
                status={0: (len(rows), 10), 1: (1, 1)},
            )
        )
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(4)))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [2])


def test_a_status_without_entries_is_of_the_group_that_its_number_counts() -> None:
    """Each process numbers its own groups: the first of some that rank 2 is in is another's."""
    members = {"0": [0, 1, 2], "1": [0, 1], "2": [0, 1, 2]}
    status = {0: (1, 1), 1: (1, 1), 2: (2, 1)}
    dumps = [
        columns(rank, [open_(2, "2")], members=members, first_record=3, status=status)
        for rank in (0, 1)
    ]
    mine = {"0": [0, 1, 2], "2": [0, 1, 2]}
    dumps.append(columns(2, [], members=mine, status={0: (1, 1), 1: (1, 1)}))
    (sink,) = build_wait_for_graph(dumps).sinks
    assert (sink.rank, sink.outside, sink.awaited.group.name) == (2, True, "2")
