"""Operations that a rank started and went on from: receives posted early, other threads' groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import open_finding, synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.verdict import Cause
from hanglab.analyzer.wording import name_needs

Called = tuple[str, str, float, bool]
"""Operation as torch writes it, group, milliseconds, and whether it has finished."""


def dump_of(
    rank: int, calls: Iterable[Called], members: dict[str, list[int]], ahead_ms: float = 0
) -> RankDump:
    rows = []
    collectives, messages = Counter[str](), Counter[str]()
    for op, group, at, done in calls:
        p2p = op.startswith(("send", "recv"))
        took = {"1": 1150, "2": 760}.get(group, 2) if op.startswith("recv") else 2
        (messages if p2p else collectives)[group] += 1
        rows.append(
            Row(
                op,
                collectives[group],
                group,
                done,
                p2p_seq=messages[group],
                extra={
                    "time_created_ns": int((at + 1 + ahead_ms) * 1e6),
                    "time_discovered_completed_ns": int((at + took + ahead_ms) * 1e6)
                    if done
                    else None,
                },
            )
        )
    return columns(rank, rows, members={g: m for g, m in members.items() if rank in m})


def pipeline(
    stages: int, stopped: int, rounds: int, *, compute: bool = False, ahead_ms: float = 0
) -> WaitForGraph:
    """Stages that post the next round's receive before they compute; one stops computing.

    Forward and backward have groups of their own; ``compute`` adds what tensor parallelism
    does meanwhile, on a group that finishes without the other stages.
    """
    members = {"0": list(range(stages)), "1": list(range(stages)), "2": list(range(stages))}
    for stage in range(stages):
        members[str(3 + stage)] = [stage]
    dumps = []
    for stage in range(stages):
        calls: list[Called] = []
        for number in range(rounds + 1):
            last, start = number == rounds, 1000.0 * number
            if stage and number == 0:
                calls.append((f"recv {stage}<-{stage - 1}", "1", start, True))
            if last and stage > stopped:
                at = next(i for i in reversed(range(len(calls))) if calls[i][1] == "1"
                          and calls[i][0].startswith("recv"))  # fmt: skip
                calls[at] = (*calls[at][:3], False)
                break
            if stage:
                calls.append((f"recv {stage}<-{stage - 1}", "1", start + 10 + stage, not last))
            if compute:
                calls.append(("all_reduce", str(3 + stage), start + 50, True))
            if last and stage == stopped:
                break
            if stage < stages - 1:
                calls.append((f"send {stage}->{stage + 1}", "1", start + 100 + stage, True))
                calls.append((f"recv {stage}<-{stage + 1}", "2", start + 200, not last))
                if last:
                    break
            if stage:
                calls.append((f"send {stage}->{stage - 1}", "2", start + 900 - stage, True))
        dumps.append(dump_of(stage, calls, members, ahead_ms * stage))
    return build_wait_for_graph(dumps, expected=range(stages))


@pytest.mark.parametrize("compute", [False, True])
@pytest.mark.parametrize("rounds", [4, 9])
@pytest.mark.parametrize(("stages", "stopped"), [(2, 0), (2, 1), (4, 1), (4, 2), (4, 3), (6, 3)])
def test_the_stage_that_stopped_behind_a_receive_posted_early(
    stages: int, stopped: int, rounds: int, compute: bool
) -> None:
    (finding,) = synchronization_findings(pipeline(stages, stopped, rounds, compute=compute))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [stopped])


@pytest.mark.parametrize("ahead_ms", [-4000.0, -400.0, -150.0, 150.0, 400.0, 4000.0])
def test_clocks_that_differ_move_it_to_no_other_stage(ahead_ms: float) -> None:
    graph = pipeline(4, 2, 9, ahead_ms=ahead_ms)
    assert graph.cycles == []
    for finding in synchronization_findings(graph):
        assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [2])


def test_without_earlier_rounds_a_rank_that_went_on_is_no_part_of_a_certain_ring() -> None:
    graph = pipeline(4, 2, 0, compute=True)
    assert not any(finding.culprits != [2] for finding in synchronization_findings(graph))
    finding = open_finding(graph)
    assert graph.cycles == [] and finding is not None
    assert "rank 2's stack" in name_needs(graph.needs)


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize("saver", [0, 1])
@pytest.mark.parametrize("place", [3, 6])
def test_a_barrier_of_another_thread_holds_up_no_reduction(
    size: int, saver: int, place: int
) -> None:
    """``saver``'s thread waits on a side group; the last rank stopped in its main loop."""
    members = {"0": list(range(size)), "1": list(range(size))}
    dumps = []
    for rank in range(size):
        calls: list[Called] = [("all_reduce", "0", step, True) for step in range(6)]
        if rank == saver:
            calls.insert(place, ("all_reduce_barrier", "1", 2.5, False))
        if rank != size - 1:
            calls.append(("all_reduce", "0", 7, False))
        dumps.append(dump_of(rank, calls, members))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(size)))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [size - 1])


@pytest.mark.parametrize("known", [0, 3])
@pytest.mark.parametrize(("size", "failed"), [(3, 1), (4, 0), (4, 3)])
def test_a_saver_that_left_its_operation_out_long_ago(size: int, failed: int, known: int) -> None:
    """Main loops went on; the others wait for their savers, and the failed one's peers for it."""
    members = {"0": list(range(size)), "1": list(range(size))}
    dumps = []
    for rank in range(size):
        calls: list[Called] = []
        for save in range(known + 1):
            last = save == known
            if not (last and rank == failed):
                calls.append(("all_gather", "1", len(calls), not last))
            calls += [
                ("all_reduce", "0", len(calls) + step, True) for step in range(20 + 20 * last)
            ]
        if rank == failed:
            calls.append(("all_reduce", "0", len(calls), False))
        dumps.append(dump_of(rank, calls, members))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(size)))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [failed])
    assert finding.victims == [rank for rank in range(size) if rank != failed]


@pytest.mark.parametrize("sender", [0, 1])
@pytest.mark.parametrize("earlier", [0, 2])
def test_halves_in_two_groups_are_unmatched_and_no_matter_of_order(
    sender: int, earlier: int
) -> None:
    members = {"0": [0, 1], "1": [0, 1], "2": [0, 1]}
    dumps = []
    for rank in (0, 1):
        op = f"send {rank}->{1 - rank}" if rank == sender else f"recv {rank}<-{1 - rank}"
        calls: list[Called] = [(op, "1", step, True) for step in range(earlier)]
        calls.append((op, "1" if rank == sender else "2", 10, False))
        dumps.append(dump_of(rank, calls, members))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(2)))
    assert (finding.cause, finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert finding.confidence <= 0.5


@pytest.mark.parametrize(("size", "entered"), [(8, 3), (5, 1)])
def test_more_absent_than_waiting_are_told_and_not_accused(size: int, entered: int) -> None:
    members = {"0": list(range(size))}
    dumps = []
    for rank in range(size):
        calls: list[Called] = [("all_reduce", "0", step, True) for step in range(3)]
        if rank < entered:
            calls.append(("all_reduce", "0", 3, False))
        dumps.append(dump_of(rank, calls, members))
    graph = build_wait_for_graph(dumps, expected=range(size))
    assert synchronization_findings(graph) == []
    finding = open_finding(graph)
    assert finding is not None and finding.victims == list(range(entered))
    assert f"{size - 1} have not entered" in finding.summary


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("early", [0, 1])
def test_who_turned_its_order_round_has_not_stopped(changed: int, early: int) -> None:
    """Two groups that were always entered in one order, until one rank enters the other first."""
    members = {"0": [0, 1], "1": [0, 1], "2": [0, 1]}
    dumps = []
    for rank in (0, 1):
        calls: list[Called] = []
        for step in range(5):
            at = 10 * step + (0 if rank == early else 3)
            calls += [("all_reduce", "1", at, True), ("all_reduce", "2", at + 1, True)]
        calls.append(("all_reduce", "2" if rank == changed else "1", 100, False))
        dumps.append(dump_of(rank, calls, members))
    for finding in synchronization_findings(build_wait_for_graph(dumps, expected=range(2))):
        assert finding.cause is Cause.GROUP_ORDER
        assert changed in finding.culprits


@pytest.mark.parametrize("early", [0, 1])
def test_communicators_that_cross_on_the_devices_stop_no_host(early: int) -> None:
    """Both have issued both, in their usual orders, which differ."""
    members = {"0": [0, 1], "1": [0, 1], "2": [0, 1]}
    dumps = []
    for rank in (0, 1):
        calls: list[Called] = []
        for step in range(6):
            at, done = 10 * step + (0 if rank == early else 3), step < 5
            order = ("1", "2") if rank == 0 else ("2", "1")
            calls += [("all_reduce", name, at + place, done) for place, name in enumerate(order)]
        dumps.append(dump_of(rank, calls, members))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(2)))
    assert (finding.cause, finding.culprits) == (Cause.GROUP_ORDER, [0, 1])


@pytest.mark.parametrize("messages", [1, 3, 5])
def test_a_run_that_was_never_ended_before_is_no_message_left_out(messages: int) -> None:
    """All of one direction, then all of the other, and at last both take."""
    members = {"0": [0, 1]}
    dumps = []
    for rank in (0, 1):
        there, back = f"send {rank}->{1 - rank}", f"recv {rank}<-{1 - rank}"
        first, second = (there, back) if rank == 1 else (back, there)
        calls: list[Called] = [(first, "0", step, True) for step in range(messages)]
        calls += [(second, "0", 20 + step, True) for step in range(messages)]
        calls.append((back, "0", 40, False))
        dumps.append(dump_of(rank, calls, members))
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(2)))
    assert (finding.cause, finding.culprits) == (Cause.P2P_DEADLOCK, [0, 1])
