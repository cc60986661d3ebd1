"""Operations that a rank started and does not wait for, as the boundary tells them."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord

MEMBERS = [0, 1, 2]


def call(index: int, method: str, *, peer: int | None = None, thread: int = 1) -> OperationCall:
    """One that has finished."""
    return OperationCall(
        index=index, method=method, group="0", entered_ns=10 * index + 1,
        returned_ns=10 * index + 2, wait_entered_ns=10 * index + 3,
        wait_returned_ns=10 * index + 4, completed=True, group_seq=index, peer=peer, tag=0,
        thread_id=thread, file="/home/me/train.py", line=index, function="train",
    )  # fmt: skip


def held(operation: OperationCall) -> OperationCall:
    operation.completed, operation.wait_returned_ns = False, None
    return operation


def started(operation: OperationCall) -> OperationCall:
    operation.wait_entered_ns = None
    return held(operation)


def dump_of(rank: int, *operations: OperationCall) -> RankDump:
    progress = Progress(
        pid=1, rank=rank, wall_minus_mono_ns=0, heartbeat_mono_ns=0, step=-1,
        step_started_ns=None, operations_total=len(operations), operations=list(operations),
    )  # fmt: skip
    groups = [GroupRecord(id="0", ranks=MEMBERS, backend="gloo", description="default_pg")]
    joined = join(rank, None, progress, groups, "case")
    assert joined is not None
    return joined


@pytest.mark.parametrize("sent", [False, True])
def test_a_receive_that_nobody_waits_for_neither_blocks_nor_stops_its_rank(sent: bool) -> None:
    """Rank 2 computes with a receive underway; the others wait for it in the next reduction."""
    message = [call(1, "send", peer=2)] if sent else []
    graph = build_wait_for_graph(
        [
            dump_of(0, call(0, "allreduce"), held(call(1, "allreduce"))),
            dump_of(1, call(0, "allreduce"), *message, held(call(1 + sent, "allreduce"))),
            dump_of(2, call(0, "allreduce"), started(call(1, "recv", peer=1))),
        ]
    )
    assert [(s.rank, s.outside, s.stopped_device) for s in graph.sinks] == [(2, True, False)]
    assert (graph.cycles, graph.unmatched) == ([], [])
    assert graph.unfinished[2] == []


def test_who_waits_for_the_receive_is_held_by_it() -> None:
    graph = build_wait_for_graph(
        [
            dump_of(0, held(call(0, "allreduce"))),
            dump_of(1, held(call(0, "allreduce"))),
            dump_of(2, held(call(0, "recv", peer=1))),
        ]
    )
    assert [u.call.rank for u in graph.unmatched] == [2]


@pytest.mark.parametrize("other", [0, 2])
def test_a_monitored_barrier_is_a_call_like_any_other(other: int) -> None:
    """It has no entry in gloo's buffer, but its rank is in it all the same."""
    graph = build_wait_for_graph(
        [
            dump_of(
                r,
                call(0, "allreduce"),
                held(call(1, "monitored_barrier" if r == other else "allreduce")),
            )
            for r in MEMBERS
        ]
    )
    (divergence,) = graph.divergences
    assert divergence.deviating == (other,)
    assert graph.sinks == []


@pytest.mark.parametrize("away", MEMBERS)
def test_who_is_in_a_monitored_barrier_waits_for_who_is_not(away: int) -> None:
    barrier = held(call(1, "monitored_barrier"))
    graph = build_wait_for_graph(
        [dump_of(r, call(0, "allreduce"), *([] if r == away else [barrier])) for r in MEMBERS]
    )
    assert [(s.rank, s.outside, s.awaited.op) for s in graph.sinks] == [
        (away, True, "monitored_barrier")
    ]


def test_a_monitored_barrier_that_all_passed_keeps_nobody() -> None:
    calls = (call(0, "monitored_barrier"), call(1, "allreduce"))
    assert build_wait_for_graph([dump_of(r, *calls) for r in MEMBERS]).waits == []


@pytest.mark.parametrize(("thread", "posted"), [(1, {0}), (2, set())])
def test_a_collective_is_not_waited_for_by_a_thread_that_is_held_later(
    thread: int, posted: set[int]
) -> None:
    """Its own thread cannot be in its future; another's may."""
    dump = dump_of(0, started(call(0, "allreduce")), held(call(1, "barrier", thread=thread)))
    assert dump.posted == posted


def test_a_collective_that_was_started_last_may_be_waited_for_by_its_future() -> None:
    assert dump_of(0, call(0, "barrier"), started(call(1, "allreduce"))).posted == set()


def test_a_reduction_underway_is_not_where_its_rank_waits() -> None:
    """Rank 2 has started number 1 and sits in a receive; only rank 1 has yet to come."""
    graph = build_wait_for_graph(
        [
            dump_of(0, held(call(0, "allreduce"))),
            dump_of(1),
            dump_of(2, started(call(0, "allreduce")), held(call(1, "recv", peer=1))),
        ]
    )
    assert [wait.call.op for wait in graph.waits if wait.call.rank == 2] == ["recv"]
