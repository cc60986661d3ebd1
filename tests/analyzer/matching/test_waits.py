"""Waits for peers, and where the waiting ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import open_finding, synchronization_findings
from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph, WaitKind
from hanglab.analyzer.matching.issue_order import IssueOrder, issue_order_at, jumps_over
from hanglab.analyzer.matching.summary import Pending
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED
from hanglab.analyzer.verdict import Cause, Finding, Inputs, Status
from hanglab.analyzer.wording import name_needs

GRID = {"0": range(4), "1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}


def open_(op: str, seq: int, group: str = "0", **more: Any) -> Row:
    return Row(op, seq, group=group, done=False, **more)


def graph_of(rows: dict[int, list[Row]], **details: Any) -> WaitForGraph:
    details.setdefault("members", GRID)
    dumps = [columns(rank, mine, **details) for rank, mine in rows.items()]
    return build_wait_for_graph(dumps, expected=range(4))


def test_blame_passes_through_groups_to_the_one_rank_outside() -> None:
    # 3 left group 2; 2 waits for it there, 0 waits for 2, 1 for 0 in the world.
    done = Row("all_reduce", 1)
    graph = graph_of(
        {
            0: [done, open_("all_reduce", 1, "3")],
            1: [done, open_("all_reduce", 2)],
            2: [done, open_("all_reduce", 1, "2")],
            3: [done],
        }
    )
    assert [(sink.rank, sink.outside) for sink in graph.sinks] == [(3, True)]
    assert graph.sinks[0].victims == (0, 1, 2)
    assert graph.sinks[0].awaited.group.name == "2"
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [3])


def test_groups_in_opposite_order() -> None:
    graph = graph_of(
        {
            0: [open_("all_reduce", 1, "1")],
            1: [open_("all_reduce", 1, "0")],
            2: [open_("all_reduce", 1, "0")],
            3: [open_("all_reduce", 1, "0")],
        }
    )
    (cycle,) = graph.cycles
    assert set(cycle.ranks) == {0, 1} and not cycle.p2p
    (finding,) = synchronization_findings(graph)
    assert finding.cause is Cause.GROUP_ORDER
    assert set(finding.culprits) == {0, 1}
    assert finding.victims == [2, 3]


def test_the_one_rank_whose_order_differs_is_named() -> None:
    graph = graph_of(
        {
            0: [open_("all_reduce", 1, "5")],
            1: [open_("all_reduce", 1)],
            2: [open_("all_reduce", 1)],
            3: [open_("all_reduce", 1)],
        },
        members={"0": range(4), "5": range(4)},
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.GROUP_ORDER, [0])


def test_order_on_the_device_alone() -> None:
    # NCCL: every rank has enqueued both, in another order.
    one = [open_("all_reduce", 1, "1"), open_("all_reduce", 1)]
    graph = graph_of({0: one, 1: one[::-1]}, members={"0": range(2), "1": range(2)})
    (finding,) = synchronization_findings(graph)
    assert finding.cause is Cause.GROUP_ORDER
    assert set(finding.culprits) == {0, 1}


def test_sends_that_face_sends() -> None:
    graph = graph_of(
        {
            0: [open_("send 0->1", 0, "1", p2p_seq=1)],
            1: [open_("send 1->0", 0, "1", p2p_seq=1)],
            2: [open_("all_reduce", 1)],
            3: [open_("all_reduce", 1)],
        }
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, [0, 1])
    assert finding.victims == [2, 3]
    assert finding.collective is not None and finding.collective.seq is None


def test_a_ring_of_three() -> None:
    def around(rank: int) -> list[Row]:
        return [open_(f"recv {rank}<-{(rank - 1) % 3}", 0, p2p_seq=1)]

    graph = build_wait_for_graph([columns(r, around(r), members=world(3)) for r in range(3)])
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, [0, 1, 2])


def test_the_one_new_message_of_a_ring_is_unmatched_and_no_deadlock_of_all() -> None:
    # All have exchanged messages with their neighbours; nobody ever had 0 receive from 2.
    rows = {
        0: [Row("recv 0<-1", 0, p2p_seq=1), open_("recv 0<-2", 0, p2p_seq=2)],
        1: [
            Row("send 1->0", 0, p2p_seq=1),
            Row("recv 1<-0", 0, p2p_seq=2),
            Row("send 1->2", 0, p2p_seq=3),
            open_("recv 1<-0", 0, p2p_seq=4),
        ],
        2: [Row("recv 2<-1", 0, p2p_seq=1), open_("recv 2<-1", 0, p2p_seq=2)],
    }
    rows[0].insert(1, Row("send 0->1", 0, p2p_seq=2))
    graph = build_wait_for_graph([columns(r, rows[r], members=world(3)) for r in rows])
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 2])
    assert finding.victims == [1] and finding.confidence <= 0.5


def test_a_message_on_a_group_that_nobody_else_uses_for_messages_is_unmatched() -> None:
    members = {"0": range(2), "1": range(2)}
    sent = [Row("send 0->1", 0, "1", p2p_seq=1), open_("recv 0<-1", 0, "1", p2p_seq=2)]
    taken = [Row("recv 1<-0", 0, "1", p2p_seq=1), open_("recv 1<-0", 0, "0", p2p_seq=1)]
    graph = build_wait_for_graph(
        [columns(r, rows, members=members) for r, rows in enumerate((sent, taken))]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])


def test_a_rank_whose_messages_have_arrived_is_further_than_its_empty_dump() -> None:
    taken = [Row("recv 1<-0", 0, p2p_seq=1), open_("all_reduce", 1)]
    graph = build_wait_for_graph(
        [
            columns(0, [], members=world(3)),
            columns(1, taken, members=world(3)),
            columns(2, [open_("all_reduce", 1)], members=world(3)),
        ]
    )
    assert graph.progressing == (0,)
    assert synchronization_findings(graph) == []


def test_members_of_a_batch_do_not_block_each_other() -> None:
    # Both post a send and a receive at once: nothing is wrong with the order.
    def batch(me: int, other: int) -> list[Row]:
        return [
            open_(f"send {me}->{other}", 0, "1", p2p_seq=1, retired=False),
            open_(f"recv {me}<-{other}", 0, "1", p2p_seq=1, retired=False),
            open_("coalesced", 0, "1", p2p_seq=1, inputs=()),
        ]

    graph = graph_of({0: batch(0, 1), 1: batch(1, 0)}, members={"1": [0, 1]})
    assert not graph.cycles
    assert synchronization_findings(graph) == []


def test_members_of_a_batch_that_has_ended_wait_for_nobody() -> None:
    rows = [
        open_("send 0->1", 0, "1", p2p_seq=1, retired=False),
        open_("recv 0<-1", 0, "1", p2p_seq=1, retired=False),
        Row("coalesced", 0, "1", p2p_seq=1, inputs=()),
    ]
    graph = graph_of({0: rows, 1: []}, members={"1": [0, 1]})
    assert not graph.waits


def test_healthy_point_to_point_in_a_larger_group() -> None:
    graph = graph_of(
        {
            0: [Row("send 0->1", 0, p2p_seq=1), Row("send 0->2", 0, p2p_seq=2)],
            1: [Row("recv 1<-0", 0, p2p_seq=1)],
            2: [Row("recv 2<-0", 0, p2p_seq=1), Row("all_reduce", 1, "2", p2p_seq=0)],
            3: [Row("all_reduce", 1, "2")],
        }
    )
    assert synchronization_findings(graph) == []
    assert not graph.waits


def test_receive_from_any_source() -> None:
    graph = graph_of({0: [open_("send 0->1", 0, "1", p2p_seq=1)], 1: [open_("recv 1<--1", 0)]})
    assert synchronization_findings(graph) == []


def test_a_send_whose_peer_waits_elsewhere() -> None:
    graph = graph_of(
        {
            0: [open_("send 0->1", 0, "1", p2p_seq=1)],
            1: [open_("barrier", 1, "1", inputs=())],
        },
        members={"1": [0, 1]},
    )
    (finding,) = synchronization_findings(graph)
    assert finding.cause is Cause.P2P_UNMATCHED
    assert set(finding.culprits) == {0, 1}
    assert finding.confidence <= 0.5
    (unmatched,) = graph.unmatched
    assert unmatched.call.peer == 1


def test_a_device_that_stopped_is_where_it_ends() -> None:
    ahead = [Row("all_reduce", 1), Row("all_reduce", 2), open_("all_reduce", 3)]
    behind = [Row("all_reduce", 1), open_("all_reduce", 2)]
    graph = build_wait_for_graph(
        [columns(r, behind if r == 2 else ahead, members=world(4)) for r in range(4)]
    )
    (sink,) = graph.sinks
    assert (sink.rank, sink.stopped_device) == (2, True)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [2])
    assert {wait.kind for wait in graph.waits if wait.call.rank == 2} == {WaitKind.DEVICE}


def test_a_link_may_have_stalled_where_only_one_device_may_have_stopped() -> None:
    """Rank 1's device has gone on to another group since, so it is not that one."""
    members = {"0": range(3), "1": [1, 2]}
    begun = Row("all_reduce", 1)
    dumps = [
        columns(0, [begun, open_("send 0->1", 1, p2p_seq=1)], members={"0": range(3)}),
        columns(
            1,
            [begun, open_("recv 1<-0", 1, p2p_seq=1), Row("all_reduce", 1, "1")],
            members=members,
        ),
        columns(2, [begun, Row("all_reduce", 1, "1")], members=members),
    ]
    graph = build_wait_for_graph(dumps)
    (sink,) = graph.sinks
    assert (sink.rank, sink.stopped_device, sink.stalled) == (0, True, (0, 1))
    (finding,) = synchronization_findings(graph)
    assert (finding.culprits, finding.confidence) == ([0], CANDIDATES)
    assert "what passes between ranks 0 and 1 does not come through" in finding.summary


def test_a_device_that_has_older_work_to_wait_for_has_not_stopped() -> None:
    """The root of a broadcast is through with it; the other is held up before it comes there."""
    members = {"0": range(3), "1": range(2)}
    odd = [
        Row("broadcast", 1, line=7),
        Row("broadcast", 1, group="1"),
        open_("all_reduce", 2, "1"),
    ]
    stuck = [open_("all_gather", 1), open_("broadcast", 1, "1"), open_("all_reduce", 2, "1")]
    dumps = [
        columns(0, odd, members=members),
        columns(1, stuck, members=members),
        columns(2, stuck[:1], members={"0": range(3)}),
    ]
    graph = build_wait_for_graph(dumps)
    assert [sink for sink in graph.sinks if sink.stopped_device] == []
    findings = synchronization_findings(graph)
    assert {rank for finding in findings for rank in finding.culprits} == {0}


def test_broadcast_finishes_early_on_its_root() -> None:
    # The root is through although 2 never came: 1 did not stop, it waits.
    graph = build_wait_for_graph(
        [
            columns(0, [Row("broadcast", 1), open_("all_reduce", 2)], members=world(3)),
            columns(1, [open_("broadcast", 1)], members=world(3)),
            columns(2, [], members=world(3), status={}),
        ]
    )
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [2]


def test_the_known_laggard_is_named_although_a_dump_is_missing() -> None:
    waits = [Row("all_reduce", 1), open_("all_reduce", 2)]
    graph = build_wait_for_graph(
        [
            columns(0, waits, members=world(4)),
            columns(1, [Row("all_reduce", 1)], members=world(4)),
            columns(2, waits, members=world(4)),
        ]
    )
    assert graph.missing == (3,)
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [1]


def test_a_missing_dump_that_alone_is_awaited_leaves_it_open() -> None:
    waits = [Row("all_reduce", 1), open_("all_reduce", 2)]
    graph = build_wait_for_graph([columns(r, waits, members=world(3)) for r in (0, 2)])
    assert synchronization_findings(graph) == []
    assert name_needs(graph.needs) == ["rank 1's dump"]
    question = open_finding(graph)
    assert question is not None and question.status is Status.INCONCLUSIVE
    assert question.culprits == []


def test_a_rank_without_entries_entered_nothing() -> None:
    waits = [open_("all_reduce", 1)]
    dumps = [columns(r, waits if r else [], members=world(3), status={}) for r in range(3)]
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [0]


def test_an_idle_status_without_entries_puts_a_rank_outside() -> None:
    waits = [Row("all_reduce", 1), open_("all_reduce", 2)]
    dumps = [columns(r, waits, members=world(3)) for r in (0, 2)]
    dumps.append(columns(1, [], members=world(3), status={0: (1, 1)}))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [1]


@pytest.mark.parametrize(("waiting", "confidence"), [(4, 0.9), (3, CANDIDATES)])
def test_as_many_as_wait_may_be_right(waiting: int, confidence: float) -> None:
    """Half of a job that is away may have left a call out, or the other half have one too many."""
    rows = [Row("all_reduce", 1), open_("all_reduce", 2)]
    dumps = [columns(r, rows[: 2 if r < waiting else 1], members=world(6)) for r in range(6)]
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [*range(waiting, 6)]
    assert finding.confidence == confidence


@pytest.mark.parametrize("threads", [False, True])
def test_a_receive_that_all_have_open_from_the_start_keeps_nobody(threads: bool) -> None:
    """Such as one for a signal to stop; rank 2 alone has nothing else open, and is missed."""

    def rows(rank: int) -> list[Row]:
        thread = {"thread_id": "7", "thread_name": "watcher"} if threads else {}
        main = {"thread_id": "1", "thread_name": "main"} if threads else {}
        stop = [Row(f"recv {rank}<-0", 0, group="1", p2p_seq=1, done=False, extra=thread)]
        calls = [Row("all_reduce", n, done=n < 9, extra=main) for n in range(1, 10 - (rank == 2))]
        return [*(stop if rank else []), *calls]

    members = {"0": range(4), "1": range(4)}
    graph = graph_of({rank: rows(rank) for rank in range(4)}, members=members)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [2])


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_receive_that_is_posted_a_step_ahead_is_another_one(ranks: int) -> None:
    """Rank 1 leaves its send to 2 out; others have the receive of the next step open by right."""
    pairs = {str(10 + at): [2 * at, 2 * at + 1] for at in range(ranks // 2)}

    def rows(rank: int) -> list[Row]:
        ends = f"{rank}<-{(rank - 1) % ranks}", f"{rank}->{(rank + 1) % ranks}"
        made = [Row(f"recv {ends[0]}", 0, group="1", p2p_seq=1, line=9, done=False)]
        for step in range(1, 5):
            last = step == 4
            if not (last and rank == 1):
                made.append(Row(f"send {ends[1]}", 0, group="1", p2p_seq=2 * step, line=10))
            if last and rank == 2:
                return made
            at = next(n for n, one in enumerate(made) if not one.done)
            made[at] = replace(made[at], done=True)
            ahead = Row(f"recv {ends[0]}", 0, group="1", p2p_seq=2 * step + 1, line=9, done=False)
            made += [ahead, Row("all_reduce", step, group=str(10 + rank // 2), line=30)]
            if last and rank == 3:
                made[-1] = replace(made[-1], done=False)
                return made
            made.append(Row("all_reduce", step, line=40, done=not last))
        return made

    groups = {"0": range(ranks), "1": range(ranks), **pairs}
    dumps = [
        columns(rank, rows(rank), members={g: m for g, m in groups.items() if rank in m})
        for rank in range(ranks)
    ]
    graph = build_wait_for_graph(dumps)
    assert [f.culprits for f in synchronization_findings(graph)] == [[1]]


@pytest.mark.parametrize("listed", [True, False])
def test_a_rank_that_its_group_does_not_list_breaks_nothing(listed: bool) -> None:
    recv = Row("recv 2<-0", 0, group="1", p2p_seq=1, done=False)
    calls = [Row("all_reduce", n, done=n < 9) for n in range(1, 10)]
    pair = range(4) if listed else [0, 1, 3]
    dumps = [
        columns(rank, [recv, *calls[: 8 if rank == 2 else 9]], members={"0": range(4), "1": pair})
        for rank in range(4)
    ]
    graph = build_wait_for_graph(dumps)
    assert all(f.culprits == [2] for f in synchronization_findings(graph))


def test_a_status_that_is_ahead_puts_a_rank_inside() -> None:
    waits = [Row("all_reduce", 1), open_("all_reduce", 2)]
    dumps = [columns(r, waits, members=world(3)) for r in (0, 2)]
    dumps.append(columns(1, [], members=world(3), status={0: (2, 1)}))
    graph = build_wait_for_graph(dumps)
    assert synchronization_findings(graph) == []
    assert len(graph.stalled) == 1


def test_gloo_retires_what_has_finished() -> None:
    rows = [Row("all_reduce", 1), open_("all_reduce", 2)]
    dumps = [columns(0, rows, backend="gloo"), columns(1, rows[:1], backend="gloo")]
    graph = build_wait_for_graph(dumps, expected=range(2))
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [0, 1]


def test_retired_but_not_completed_is_unfinished_on_nccl() -> None:
    timed_out = [Row("all_reduce", 1), Row("all_reduce", 2, state="scheduled", retired=True)]
    status = {0: (2, 2)}
    dumps = [columns(0, timed_out, members=world(2), status=status)]
    dumps.append(columns(1, timed_out[:1], members=world(2), status={0: (1, 1)}))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [0, 1]


def test_what_the_abort_freed_did_not_finish() -> None:
    freed = Row(
        "all_reduce",
        2,
        extra={
            "time_created_ns": 10**12,
            "time_discovered_completed_ns": 10**12 + 600_100_000_000,
        },
    )
    dumps = [columns(0, [Row("all_reduce", 1), freed], members=world(2), status={0: (2, 2)})]
    dumps.append(columns(1, [Row("all_reduce", 1)], members=world(2), status={0: (1, 1)}))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [0, 1]


def test_ranks_outside_of_several_groups_are_each_told_with_its_own_operation() -> None:
    members = {"0": range(6), "1": (0, 1, 2), "2": (3, 4, 5)}
    dumps = []
    for rank in range(6):
        group, count = ("1", 3) if rank < 3 else ("2", 5)
        rows = [Row("all_reduce", 1), *(Row("all_reduce", n, group) for n in range(1, count))]
        if rank not in (2, 5):
            rows.append(open_("all_reduce", count, group))
        mine = {name: ranks for name, ranks in members.items() if rank in ranks}
        dumps.append(columns(rank, rows, members=mine, descriptions={"1": "one", "2": "two"}))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [2, 5]
    assert finding.summary.endswith(
        "never entered what the others wait in: rank 2 all_reduce (one, number 3), "
        "rank 5 all_reduce (two, number 5)."
    )


def test_a_cut_file_accuses_nobody() -> None:
    waits = [Row("all_reduce", 1), open_("all_reduce", 2)]
    dumps = [columns(r, waits, members=world(3)) for r in (0, 2)]
    truncated = columns(1, waits[:1], members=world(3))
    truncated.damage = "ends in the middle of an entry"
    graph = build_wait_for_graph([*dumps, truncated])
    assert synchronization_findings(graph) == []
    assert graph.needs


def test_gaps_in_gloos_numbers_betray_operations_that_are_not_shown() -> None:
    waits = [Row("all_reduce", 1), open_("all_reduce", 2, extra={"op_id": 3})]
    outside = [Row("all_reduce", 1, extra={"op_id": 2})]
    dumps = [columns(0, waits, backend="gloo"), columns(1, outside, backend="gloo")]
    graph = build_wait_for_graph(dumps, expected=range(2))
    assert graph.sinks[0].hidden
    assert synchronization_findings(graph) == []


def test_order_of_ranks_and_files_decides_nothing() -> None:
    done = Row("all_reduce", 1)
    rows = {
        0: [done, open_("all_reduce", 1, "3")],
        1: [done, open_("all_reduce", 2)],
        2: [done, open_("all_reduce", 1, "2")],
        3: [done],
    }
    expected = synchronization_findings(graph_of(rows))
    generator = np.random.default_rng(7)
    for _ in range(5):
        shuffled = {int(rank): rows[int(rank)] for rank in generator.permutation(4)}
        assert synchronization_findings(graph_of(shuffled)) == expected


def _exchange(me: int, steps: int) -> list[Row]:
    """Steps of a send from 0 to 1 and an all_reduce, from lines of the rank's own."""
    rows = []
    for step in range(1, steps + 1):
        half = "send 0->1" if me == 0 else "recv 1<-0"
        rows.append(Row(half, step - 1, p2p_seq=step, line=10 + 10 * me))
        rows.append(Row("all_reduce", step, p2p_seq=step, line=12 + 10 * me))
    return rows


def test_the_rank_that_broke_its_own_order_left_the_receive_out() -> None:
    sender, receiver = _exchange(0, 4), _exchange(1, 4)
    sender.append(open_("send 0->1", 4, p2p_seq=5, line=10))
    receiver.append(open_("all_reduce", 5, p2p_seq=4, line=22))
    graph = build_wait_for_graph(
        [columns(0, sender, members=world(2)), columns(1, receiver, members=world(2))]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [1])
    assert finding.location is not None and finding.location.line == 22


def test_sends_are_counted_again_where_rings_have_lost_the_beginning() -> None:
    # Rings of unequal length; each rank waits to receive, and nothing is on its way.
    steps = [_exchange(0, 9), _exchange(1, 9)]
    steps[0].append(open_("recv 0<-1", 9, p2p_seq=10, line=15))
    steps[1].append(open_("recv 1<-0", 9, p2p_seq=10, line=25))
    dumps = [
        columns(0, steps[0][7:], members=world(2), first_record=7),
        columns(1, steps[1][12:], members=world(2), first_record=12),
    ]
    (cycle,) = build_wait_for_graph(dumps).cycles
    assert cycle.p2p and cycle.certain


def _stage(rank: int, *, steps: int, last: int) -> list[Row]:
    """Steps of a pipeline of which every stage receives from the one before."""
    rows: list[Row] = []
    for _ in range(steps):
        if rank:
            rows.append(Row(f"recv {rank}<-{rank - 1}", 0, p2p_seq=len(rows) + 1, line=10))
        if rank < last:
            rows.append(Row(f"send {rank}->{rank + 1}", 0, p2p_seq=len(rows) + 1, line=20))
    return rows


def _then(rows: list[Row], op: str, line: int) -> list[Row]:
    return [*rows, open_(op, 0, p2p_seq=len(rows) + 1, line=line)]


def _pipeline(steps: int, wrong: str) -> dict[int, list[Row]]:
    """Stage 1 sends once to another rank than stage 2, whatever happened before."""
    stages = {rank: _stage(rank, steps=steps, last=3) for rank in range(4)}
    stages[1].append(Row("recv 1<-0", 0, p2p_seq=2 * steps + 1, line=10))
    stages[0].append(Row("send 0->1", 0, p2p_seq=steps + 1, line=20))
    return {
        0: _then(stages[0], "send 0->1", 20),
        1: _then(stages[1], wrong, 20),
        2: _then(stages[2], "recv 2<-1", 10),
        3: _then(stages[3], "recv 3<-2", 10),
    }


@pytest.mark.parametrize(("steps", "wrong"), [(0, "send 1->3"), (3, "send 1->3"), (3, "send 1->0")])
def test_a_message_to_another_stage_is_that_of_its_sender_alone(steps: int, wrong: str) -> None:
    rows = _pipeline(steps, wrong)
    graph = graph_of(rows, members=world(4))
    (finding,) = synchronization_findings(graph)
    assert finding.cause is Cause.P2P_UNMATCHED
    assert finding.culprits == [1]
    assert finding.victims == [0, 2, 3]
    assert finding.location is not None
    assert (finding.location.rank, finding.location.line) == (1, 20)
    assert "rank 2 waits in recv from rank 1" in finding.summary
    # Both halves are in evidence.
    assert {1, 2} <= {evidence.rank for evidence in finding.evidence}


def test_a_stage_that_takes_from_another_than_the_one_that_sends() -> None:
    stages = {rank: _stage(rank, steps=3, last=3) for rank in range(4)}
    graph = graph_of(
        {
            0: _then(stages[0], "send 0->1", 20),
            1: _then(stages[1], "recv 1<-0", 10),
            2: _then(stages[2], "recv 2<-3", 10),
            3: _then(stages[3], "recv 3<-2", 10),
        },
        members=world(4),
    )
    # 2 and 3 face each other, and nobody waits for 2 to receive: an order that both share.
    findings = synchronization_findings(graph)
    assert [finding.cause for finding in findings] == [Cause.P2P_DEADLOCK]
    assert findings[0].culprits == [2, 3]


def test_messages_in_another_order_are_nobody_s_stray() -> None:
    """0 -> 1, 1 -> 2 and 2 <- 0, each of them a channel in use: only their order is wrong."""
    rows: dict[int, list[Row]] = {0: [], 1: [], 2: []}
    for _ in range(3):
        for rank, op in (
            *((0, "send 0->1"), (1, "recv 1<-0"), (1, "send 1->2")),
            *((2, "recv 2<-1"), (0, "send 0->2"), (2, "recv 2<-0")),
        ):
            rows[rank].append(Row(op, 0, p2p_seq=len(rows[rank]) + 1))
    for rank, op in ((0, "send 0->1"), (1, "send 1->2"), (2, "recv 2<-0")):
        rows[rank] = _then(rows[rank], op, 0)
    (finding,) = synchronization_findings(
        build_wait_for_graph([columns(rank, mine, members=world(3)) for rank, mine in rows.items()])
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, [0, 1, 2])


def test_a_worker_that_waits_for_the_answer_to_what_it_left_out() -> None:
    """Both stand in a receive: the coordinator as always, the worker one call too soon."""
    rows: dict[int, list[Row]] = {0: [], 1: []}
    for _ in range(4):
        for op, line in (("recv 0<-1", 10), ("send 0->1", 12)):
            rows[0].append(Row(op, 0, p2p_seq=len(rows[0]) + 1, line=line))
        for op, line in (("send 1->0", 20), ("recv 1<-0", 22)):
            rows[1].append(Row(op, 0, p2p_seq=len(rows[1]) + 1, line=line))
    graph = build_wait_for_graph(
        [
            columns(0, _then(rows[0], "recv 0<-1", 10), members=world(2)),
            columns(1, _then(rows[1], "recv 1<-0", 22), members=world(2)),
        ]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [1])
    assert finding.location is not None and finding.location.line == 22


def test_a_phase_of_a_schedule_that_ends_is_no_jump() -> None:
    """What rank 1 repeats last, it did not from the first: more than repetitions may come next."""
    rows: dict[int, list[Row]] = {0: [], 1: []}
    warm_up = [(0, "send 0->1", 8), (1, "recv 1<-0", 8)] * 2
    steady = [(1, "send 1->0", 20), (0, "recv 0<-1", 10), (0, "send 0->1", 12)]
    for rank, op, line in [*warm_up, *([*steady, (1, "recv 1<-0", 22)] * 3)]:
        rows[rank].append(Row(op, 0, p2p_seq=len(rows[rank]) + 1, line=line))
    graph = build_wait_for_graph(
        [
            columns(0, _then(rows[0], "recv 0<-1", 10), members=world(2)),
            columns(1, _then(rows[1], "recv 1<-0", 22), members=world(2)),
        ]
    )
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [0, 1]


def test_of_a_batch_only_what_is_missing_holds_it_up() -> None:
    """Rank 1 left its send out; rank 0 has taken what rank 2 sends in the batch that waits."""

    def batch(number: int, *ops: str, done: bool = True) -> list[Row]:
        members = [Row(op, 0, done=False, p2p_seq=number) for op in ops]
        return [*members, Row("coalesced", 0, done=done, p2p_seq=number)]

    reduction = [open_("all_reduce", 1)]
    rows = [
        [*batch(1, "send 0->1", "recv 0<-2"), *reduction],
        [*batch(1, "recv 1<-0"), *reduction],
        [*batch(1, "send 2->0", "recv 2<-1", done=False), *reduction],
    ]
    dumps = {r: columns(r, mine, members=world(3)) for r, mine in enumerate(rows)}
    facts = CaseFacts(
        graph=build_wait_for_graph(dumps.values()),
        ranks={rank: RankView(rank=rank, has_dump=True) for rank in dumps},
        dumps=dumps,
        inputs=Inputs(ranks=3),
    )
    found = conclude(facts)
    # Which of them is wrong, a simulation cannot tell, either.
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [1, 2])


@pytest.mark.parametrize("line", [0, 30])
def test_receives_that_face_each_other_in_a_new_place_are_a_deadlock_of_both(line: int) -> None:
    rows: dict[int, list[Row]] = {0: [], 1: []}
    for _ in range(4):
        for op, at in (("send 0->1", 10), ("recv 0<-1", 12)):
            rows[0].append(Row(op, 0, p2p_seq=len(rows[0]) + 1, line=line and at))
        for op, at in (("recv 1<-0", 20), ("send 1->0", 22)):
            rows[1].append(Row(op, 0, p2p_seq=len(rows[1]) + 1, line=line and at))
    graph = build_wait_for_graph(
        [
            columns(0, _then(rows[0], "recv 0<-1", line), members=world(2)),
            columns(1, _then(rows[1], "recv 1<-0", line), members=world(2)),
        ]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, [0, 1])
    assert "rank 0 in recv from rank 1" in finding.summary
    assert "rank 1 in recv from rank 0" in finding.summary


def test_a_receive_whose_source_is_past_it_was_not_served() -> None:
    """The very first exchange: no habit tells, but the coordinator is late for the rest."""
    graph = graph_of(
        {
            0: [Row("recv 0<-1", 0, p2p_seq=1), open_("recv 0<-2", 0, p2p_seq=2)],
            1: [Row("send 1->0", 0, p2p_seq=1), open_("all_reduce", 1)],
            2: [open_("all_reduce", 1)],
            3: [open_("send 3->0", 0, p2p_seq=1)],
        },
        members=world(4),
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])
    assert 0 in finding.victims
    assert finding.confidence <= 0.6


@pytest.mark.parametrize(("again", "third"), [(False, False), (False, True), (True, True)])
def test_a_receive_from_the_wrong_source_is_not_its_source_s(again: bool, third: bool) -> None:
    """Rank 2 waits to be taken from and rank 1 goes on; who of 0 and 1 is wrong is not told."""
    served = [Row("recv 0<-1", 0, p2p_seq=1)] if again else []
    graph = graph_of(
        {
            0: [*served, open_("recv 0<-1", 0, p2p_seq=len(served) + 1)],
            1: [*(Row("send 1->0", 0, p2p_seq=1) for _ in served), open_("all_reduce", 1)],
            2: [open_("send 2->0", 0, p2p_seq=1)],
            3: [open_("send 3->0", 0, p2p_seq=1) if third else open_("all_reduce", 1)],
        },
        members=world(4),
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert finding.confidence <= 0.5


def test_messages_both_ways_are_no_round_in_which_a_source_is_passed_over() -> None:
    """Ranks 2 and 3 have exchanged messages; 2 takes the next one from the wrong rank."""
    both = [Row("send 2->3", 0, p2p_seq=1), Row("recv 2<-3", 0, p2p_seq=2)]
    graph = graph_of(
        {
            0: [open_("broadcast", 1)],
            1: [open_("send 1->2", 0, p2p_seq=1)],
            2: [*both, open_("recv 2<-0", 0, p2p_seq=3)],
            3: [
                Row("recv 3<-2", 0, p2p_seq=1),
                Row("send 3->2", 0, p2p_seq=2),
                open_("broadcast", 1),
            ],
        },
        members=world(4),
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 2])


def test_in_a_longer_ring_the_source_may_be_late_because_of_another() -> None:
    """2 left an operation of group 4 out; 1 waits there and cannot send to 0 yet."""
    members = {"0": range(3), "4": [1, 2]}
    graph = build_wait_for_graph(
        [
            columns(0, [open_("recv 0<-1", 0, p2p_seq=1)], members=members),
            columns(1, [open_("all_reduce", 1, "4")], members=members),
            columns(2, [open_("all_reduce", 1)], members=members),
        ]
    )
    assert not graph.unmatched
    for finding in synchronization_findings(graph):
        assert finding.culprits != [1]


def test_what_was_started_and_is_not_waited_for_holds_nobody() -> None:
    ahead = [Row("all_reduce", 1), open_("all_reduce", 2)]
    idle = columns(1, [Row("all_reduce", 1), open_("recv 1<-0", 1, p2p_seq=1)], members=world(3))
    idle.posted = frozenset({1})
    graph = build_wait_for_graph(
        [columns(0, ahead, members=world(3)), idle, columns(2, ahead, members=world(3))]
    )
    assert [(sink.rank, sink.outside, sink.stopped_device) for sink in graph.sinks] == [
        (1, True, False)
    ]
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])


def _collected(steps: int, last: dict[int, list[Row]]) -> WaitForGraph:
    """Rank 0 takes a message from everybody, whoever comes first; then all reduce."""
    rows: dict[int, list[Row]] = {rank: [] for rank in range(3)}
    for step in range(1, steps + 1):
        for _ in range(2):
            rows[0].append(Row("recv 0<--1", step - 1, p2p_seq=len(rows[0]) + 1, line=10))
        for rank in (1, 2):
            rows[rank].append(Row(f"send {rank}->0", step - 1, p2p_seq=step, line=20))
        for rank, mine in rows.items():
            mine.append(Row("all_reduce", step, p2p_seq=step, line=12 if rank == 0 else 22))
    return build_wait_for_graph(
        [columns(rank, rows[rank] + last[rank], members=world(3)) for rank in range(3)]
    )


def test_of_all_possible_senders_the_one_that_left_its_send_out() -> None:
    taken = Row("recv 0<--1", 4, p2p_seq=9, line=10)
    waits = open_("recv 0<--1", 4, p2p_seq=10, line=10)
    sent = Row("send 1->0", 4, p2p_seq=5, line=20)
    reduces = open_("all_reduce", 5, p2p_seq=5, line=22)
    graph = _collected(4, {0: [taken, waits], 1: [sent, reduces], 2: [reduces]})
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])
    assert finding.victims == [0, 1]
    assert finding.location is not None and finding.location.line == 22


def test_a_receive_from_any_source_whose_senders_all_kept_their_order_accuses_nobody() -> None:
    """It may be one receive too many, or another tag."""
    taken = [Row("recv 0<--1", 4, p2p_seq=9 + i, line=10) for i in range(2)]
    waits = open_("recv 0<--1", 4, p2p_seq=11, line=10)
    others = {
        rank: [
            Row(f"send {rank}->0", 4, p2p_seq=5, line=20),
            open_("all_reduce", 5, p2p_seq=5, line=22),
        ]
        for rank in (1, 2)
    }
    graph = _collected(4, {0: [*taken, waits], **others})
    assert all({1, 2}.isdisjoint(f.culprits) for f in synchronization_findings(graph))


def test_a_receive_from_any_source_that_a_send_waits_for_is_served() -> None:
    waits = open_("recv 0<--1", 4, p2p_seq=9, line=10)
    reduces = open_("all_reduce", 5, p2p_seq=5, line=22)
    sends = open_("send 1->0", 4, p2p_seq=5, line=20)
    graph = _collected(4, {0: [waits], 1: [sends], 2: [reduces]})
    assert not graph.unmatched


@pytest.mark.parametrize("new", [True, False])
def test_a_receive_in_a_new_place_may_be_one_too_many(new: bool) -> None:
    """No habit has a call that was never made, and its peer went on as always.

    Without call sites, the receiver may be ahead because it left a collective out.
    """
    rows: dict[int, list[Row]] = {
        rank: [Row("all_reduce", step, line=10) for step in range(1, 6)] for rank in (0, 1)
    }
    rows[0].append(open_("recv 0<-1", 5, p2p_seq=1, line=30 if new else 0))
    rows[1].append(open_("all_reduce", 6, line=10))
    graph = build_wait_for_graph(
        [columns(rank, mine, members=world(2)) for rank, mine in rows.items()]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert finding.confidence <= 0.5


def test_a_message_to_another_rank_whose_peer_is_in_a_collective() -> None:
    """Rank 2 sends to 1 what 0 waits for; 1 has gone on to the reduction of all."""
    rows: dict[int, list[Row]] = {rank: [] for rank in range(3)}
    for step in range(1, 4):
        for rank in (1, 2):
            rows[0].append(Row(f"recv 0<-{rank}", step - 1, p2p_seq=2 * step + rank - 2, line=10))
            rows[rank].append(Row(f"send {rank}->0", step - 1, p2p_seq=step, line=20))
        for mine in rows.values():
            mine.append(Row("all_reduce", step, p2p_seq=step, line=22))
    rows[0].append(Row("recv 0<-1", 3, p2p_seq=7, line=10))
    rows[0].append(open_("recv 0<-2", 3, p2p_seq=8, line=10))
    rows[1].append(Row("send 1->0", 3, p2p_seq=4, line=20))
    rows[1].append(open_("all_reduce", 4, p2p_seq=4, line=22))
    rows[2].append(open_("send 2->1", 3, p2p_seq=4, line=20))
    graph = build_wait_for_graph(
        [columns(rank, mine, members=world(3)) for rank, mine in rows.items()]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [2])
    assert finding.victims == [0, 1]


def test_the_order_of_one_thread_tells_where_two_are_interleaved() -> None:
    """Two threads send and receive in turn, and meet in no fixed order."""
    generator = np.random.default_rng(3)
    left = {"7": 12, "8": 12}
    threads: list[str] = []
    while any(left.values()):
        thread = "7" if left["7"] and (not left["8"] or generator.integers(2)) else "8"
        left[thread] -= 1
        threads.append(thread)
    made = {"7": 0, "8": 0}
    rows = []
    for thread in threads:
        turn = made[thread] % 2
        made[thread] += 1
        rows.append(Row(("send 0->1", "recv 0<-1")[turn], 0, line=10 * int(thread) + turn))
    # Thread 8 receives where it is to send.
    rows.append(open_("recv 0<-1", 0, line=81))
    entries = columns(0, rows, members=world(2)).entries
    assert entries is not None
    entries.threads = ["7", "pt_main 8", "8"]
    # A dump puts the thread's name before its number, the boundary has the number alone.
    names = {"7": [0], "8": [1, 2]}
    entries.thread = np.array(
        [names[t][i % len(names[t])] for i, t in enumerate([*threads, "8"])], dtype=np.int32
    )
    last = len(rows) - 1
    assert issue_order_at(entries, last) is IssueOrder.AHEAD
    assert jumps_over(entries, last, "0", Pending(0, 0, 0, None, "recv", src=0, dst=1))
    assert not jumps_over(entries, last, "0", Pending(0, 0, 0, None, "send", src=1, dst=0))


def test_threads_that_take_turns_may_change_them() -> None:
    """Each thread keeps to its own order; only who of them comes first is new."""
    rows = [Row("send 0->1", 0, line=line) for _ in range(4) for line in (10, 20)]
    rows.append(open_("send 0->1", 0, line=20))
    entries = columns(0, rows, members=world(2)).entries
    assert entries is not None
    assert issue_order_at(entries, len(rows) - 1) is IssueOrder.AHEAD
    entries.threads = ["7", "8"]
    entries.thread = np.array([*[0, 1] * 4, 1], dtype=np.int32)
    assert issue_order_at(entries, len(rows) - 1) is IssueOrder.UNKNOWN


def test_an_unusual_distance_alone_is_no_stray_where_the_peer_is_past_it() -> None:
    """Rank 1 left its receive out; 0 sends to it before it sends to 2, as nobody else does."""
    graph = graph_of(
        {
            0: [open_("send 0->1", 0, p2p_seq=1)],
            1: [Row("recv 1<-3", 0, p2p_seq=1), open_("all_reduce", 1)],
            2: [open_("recv 2<-0", 0, p2p_seq=1)],
            3: [Row("send 3->1", 0, p2p_seq=1), open_("all_reduce", 1)],
        },
        members=world(4),
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert finding.confidence <= 0.5


def test_what_is_queued_behind_a_message_is_no_habit() -> None:
    """Rank 0 sends to 1 before it begins to send to 2 again and again; 1 is past it."""
    queued = [open_("send 0->2", 0, p2p_seq=2 + i) for i in range(3)]
    graph = graph_of(
        {
            0: [open_("send 0->1", 0, p2p_seq=1), *queued],
            1: [open_("all_reduce", 1)],
            2: [open_("recv 2<-0", 0, p2p_seq=1 + i) for i in range(5)],
            3: [open_("all_reduce", 1)],
        },
        members=world(4),
    )
    assert all(f.culprits != [0] for f in synchronization_findings(graph))


@pytest.mark.parametrize("stopped", [1, 3])
def test_who_is_to_do_next_what_others_wait_for_stopped_though_rings_have_wrapped(
    stopped: int,
) -> None:
    """Stages of a pipeline, whose group has no collective by which messages could be counted."""

    def round_of(rank: int) -> list[str]:
        before, after = f"{rank}<-{rank - 1}", f"{rank}->{rank + 1}"
        back, grads = f"{rank}<-{rank + 1}", f"{rank}->{rank - 1}"
        first, last = rank == 0, rank == 3
        ops = [("recv", before, first), ("send", after, last), ("recv", back, last)]
        return [f"{op} {ends}" for op, ends, none in (*ops, ("send", grads, first)) if not none]

    def rows(rank: int) -> list[Row]:
        made = round_of(rank) * 4
        # The one that stopped took what the stage before it sent, and the others wait.
        waits = f"recv {rank}<-{rank - 1}" if rank > stopped else f"recv {rank}<-{rank + 1}"
        end = made.index(waits) + 1 if rank != stopped else 1
        calls = [*made, *round_of(rank)[:end]]
        first = 40 * len(round_of(rank))
        return [
            Row(op, 0, group="1", p2p_seq=first + at, done=rank == stopped or at < len(calls) - 1)
            for at, op in enumerate(calls)
        ]

    members = {"0": range(4), "1": range(4)}
    graph = graph_of({rank: rows(rank) for rank in range(4)}, members=members, first_record=200)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [stopped])
    assert finding.confidence == CONCLUDED


@pytest.mark.parametrize("gone", [7, 290])
def test_of_an_exchange_the_part_of_one_without_a_dump_may_lack(gone: int) -> None:
    """Rank 5 alone is in it still: its device stopped, or one of its peers sent it less."""
    exchange, after = Row("all_to_all", 1), open_("all_reduce", 2)
    dumps = [
        columns(rank, [replace(exchange, done=rank != 5), after], members=world(300))
        for rank in range(300)
        if rank != gone
    ]
    assert synchronization_findings(build_wait_for_graph(dumps, expected=range(300))) == []


def test_the_last_of_many_sends_may_be_on_its_way_where_rings_have_wrapped() -> None:
    """Rank 0 deals batches; it has sent all of a round, and the device of rank 1 has stopped."""
    deals = [Row(f"send 0->{to}", 0, p2p_seq=900 + n) for n, to in enumerate([1, 2, 3] * 9)]
    dumps = [columns(0, deals, members={"0": range(4)}, first_record=900)]
    for rank in (1, 2, 3):
        rows = []
        for step in range(9):
            held = rank == 1 and step == 8
            rows.append(Row(f"recv {rank}<-0", 0, p2p_seq=300 + step, done=not held))
            if not held:
                rows.append(Row("all_reduce", 300 + step, group="1", done=step < 8))
        members = {"0": range(4), "1": [1, 2, 3]}
        dumps.append(columns(rank, rows, members=members, first_record=900))
    assert synchronization_findings(build_wait_for_graph(dumps)) == []


def test_a_first_message_whose_peer_is_past_it_is_no_stray_without_its_line() -> None:
    """Rank 0 left its receive out; 2, which waits for the one after, is the usual peer."""
    usual = [Row("send 1->2", 0, p2p_seq=1 + i) for i in range(2)]
    graph = graph_of(
        {
            0: [open_("all_reduce", 1)],
            1: [*usual, open_("send 1->0", 0, p2p_seq=3)],
            2: [
                *(Row("recv 2<-1", 0, p2p_seq=1 + i) for i in range(2)),
                open_("recv 2<-1", 0, p2p_seq=3),
            ],
        },
        members=world(3),
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])


def test_two_that_are_new_to_each_other_have_not_strayed() -> None:
    """0 and 1 both receive first; 2 has to do with 1 in every step, and waits for it as well."""
    rows: dict[int, list[Row]] = {0: [], 1: [], 2: []}
    for step in range(1, 4):
        rows[1].append(Row("recv 1<-2", 0, p2p_seq=step))
        rows[2].append(Row("send 2->1", 0, p2p_seq=step))
    for rank, op in ((0, "recv 0<-1"), (1, "recv 1<-0"), (2, "send 2->1")):
        rows[rank] = _then(rows[rank], op, 0)
    (finding,) = synchronization_findings(
        build_wait_for_graph([columns(rank, mine, members=world(3)) for rank, mine in rows.items()])
    )
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, [0, 1])


@pytest.mark.parametrize("size", [3, 4])
def test_a_ring_of_calls_that_went_on_before_is_no_deadlock_of_the_program(size: int) -> None:
    """Some message was left out, or is one too many, and shifts whom they meet.

    Where all have sent and received as often, in one order, none is; then what went through before,
    as it fit into a buffer, does so no more.
    """

    def findings_after(rounds: int, *, extra: bool = False) -> list[Finding]:
        dumps = []
        for rank in range(size):
            back, ahead = (rank - 1) % size, (rank + 1) % size
            mine = [f"send {rank}->{ahead}", f"recv {rank}<-{back}"] * rounds
            mine += [f"send {rank}->{ahead}"] * (extra and not rank)
            rows = [Row(op, 0, p2p_seq=number) for number, op in enumerate(mine, start=1)]
            rows += [
                Row(op, 0, done=False, p2p_seq=len(rows) + number)
                for number, op in enumerate((f"send {rank}->{ahead}", f"recv {rank}<-{back}"), 1)
            ]
            dumps.append(columns(rank, rows, members=world(size)))
        return synchronization_findings(build_wait_for_graph(dumps))

    (first,) = findings_after(0)
    assert (first.cause, first.culprits) == (Cause.P2P_DEADLOCK, [*range(size)])
    (later,) = findings_after(4)
    assert (later.cause, later.culprits) == (Cause.P2P_DEADLOCK, [*range(size)])
    assert findings_after(4, extra=True) == []


@pytest.mark.parametrize("further", [0, 1, 3])
def test_a_stage_that_stands_idle_is_missing_however_much_the_rings_have_lost(further: int) -> None:
    """Stage 2 is the last; what stage 1 has yet to send it cannot have taken.

    Of one message alone it may have posted its half, and the device of stage 1 has stopped.
    """
    stages = {rank: _stage(rank, steps=4, last=2) for rank in range(3)}
    for _ in range(1 + further):
        stages[0] = _then(stages[0], "send 0->1", 20)
        stages[1] = _then(_then(stages[1], "send 1->2", 20), "recv 1<-0", 10)
    dumps = [
        columns(rank, rows[3:], members=world(3), first_record=3) for rank, rows in stages.items()
    ]
    graph = build_wait_for_graph(dumps)
    assert [(sink.rank, sink.unknown) for sink in graph.sinks] == [(2, not further)]


@pytest.mark.parametrize("backward", ["pt_autograd_0", "python"])
def test_a_backward_pass_waits_behind_what_its_rank_waits_to_receive(backward: str) -> None:
    """Two stages of two ranks each: both of the second have the pass's collective behind a receive
    that rank 1 never sends.  What a thread of its own issues waits for nothing of the other.
    """
    main = {"thread_name": "python", "thread_id": "1"}
    extra = {"thread_name": backward, "thread_id": "2"}
    rows: dict[int, list[Row]] = {rank: [] for rank in range(4)}
    for step in range(3):
        for rank in range(4):
            half, peer = ("send", rank + 2) if rank < 2 else ("recv", rank - 2)
            if (rank, step) == (1, 2):
                continue
            open_ = step == 2 and rank == 3
            op = f"{half} {rank}{'->' if rank < 2 else '<-'}{peer}"
            rows[rank].append(Row(op, 0, "0", not open_, p2p_seq=step + 1, extra=main))
        for rank in (2, 3):
            rows[rank].append(Row("all_gather", step + 1, "1", step < 2, extra=extra))
    members = {"0": range(4), "1": (2, 3)}
    dumps = [columns(rank, mine, members=members) for rank, mine in rows.items()]
    graph = build_wait_for_graph(dumps)
    if backward == "python":
        assert graph.stalled
        return
    assert not graph.stalled
    assert [sink.rank for sink in graph.sinks] == [1]
