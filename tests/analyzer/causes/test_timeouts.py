"""A rank that is late beyond its peers' time limit is named, by when each came to the operation."""

from __future__ import annotations

import pytest
from views import C10D, job, raised, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import Clock, GroupRecord, Movement, StackFrame

SECOND = 1_000_000_000
GROUP = GroupRecord("0", "default_pg", [0, 1, 2], "gloo")
TIMED_OUT = "[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation"
CAUGHT = (
    "[rank{0}]:[E1124 16:25:13.35 ProcessGroupNCCL.cpp:683] [Rank {0}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
    "Timeout(ms)=5000) ran for 5072 milliseconds before timing out.\n"
)
LOST = "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:53674"


def operation(index: int, at: float, waited_s: float | None, group: str = "0") -> OperationCall:
    """One that took so long; None: it did not finish."""
    entered = int(at * SECOND)
    until = None if waited_s is None else int((at + waited_s) * SECOND)
    return OperationCall(
        index,
        "allreduce",
        group,
        entered,
        returned_ns=entered + 1,
        wait_entered_ns=entered + 1,
        wait_returned_ns=until,
        completed=until is not None,
        group_seq=index,
        shape=(4,),
    )


def rank_of(
    rank: int, *operations: OperationCall, error: str, at: float, pause_s: float
) -> RankView:
    mine = view(rank)
    mine.progress = Progress(1, rank, 0, 0, 0, None, len(operations), list(operations))
    mine.groups = [GROUP]
    mine.movement = Movement(quiet_s=0.2, longest_pause_s=pause_s, cpu_share=0.1)
    frames = StackFrame("all_reduce", C10D, 1), user(20)
    return raised(mine, "RuntimeError", error, *frames, at=int(at * SECOND))


def patient(rank: int) -> RankView:
    """It came at second 2 and gave up at second 7."""
    first, second = operation(0, 1.0, 0.1), operation(1, 2.0, None)
    return rank_of(rank, first, second, error=TIMED_OUT, at=7.0, pause_s=4.8)


def verdict_on(*views: RankView, began_s: float = 0.0):  # type: ignore[no-untyped-def]
    """The agent began to look at second ``began_s``."""
    known = job(views, trigger="exit")
    assert known.job is not None
    known.job.started = Clock(int(began_s * SECOND), 0)
    dumps = [join(v.rank, None, v.progress, v.groups, "") for v in views]
    found = [dump for dump in dumps if dump is not None]
    known.dumps = {dump.rank: dump for dump in found}
    known.graph = build_wait_for_graph(found, expected=list(known.ranks))
    return conclude(known)


@pytest.mark.parametrize(
    ("pause_s", "cause"), [(0.05, Cause.RANK0_WORK), (5.2, Cause.MISSING_RANK)]
)
def test_who_comes_when_its_peers_have_given_up_is_late(pause_s: float, cause: Cause) -> None:
    own = operation(0, 1.0, 0.1), operation(1, 7.3, None)
    late = rank_of(2, *own, error=LOST, at=7.4, pause_s=pause_s)
    verdict = verdict_on(patient(0), patient(1), late)
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.FAILED, cause, [2])
    assert verdict.collective is not None and verdict.collective.seq == 2
    assert "5.3 s after its peers" in verdict.evidence[0].detail


@pytest.mark.parametrize(("began_s", "cause"), [(2.5, Cause.RANK0_WORK), (4.4, Cause.MISSING_RANK)])
def test_whoever_was_looked_at_late_is_not_known_to_have_worked_before(
    began_s: float, cause: Cause
) -> None:
    """On a crowded machine the agent may come up when half of the wait is over."""
    late = rank_of(2, operation(0, 1.0, 0.1), error=LOST, at=7.4, pause_s=0.2)
    assert verdict_on(patient(0), patient(1), late, began_s=began_s).cause is cause


def test_who_came_in_time_is_not_late() -> None:
    verdict = verdict_on(patient(0), patient(1), patient(2))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def test_who_waited_elsewhere_meanwhile_is_a_victim_too() -> None:
    own = operation(0, 1.0, 6.2), operation(1, 7.3, None)
    held_up = rank_of(2, *own, error=LOST, at=7.4, pause_s=0.05)
    assert verdict_on(patient(0), patient(1), held_up).culprits == []


def test_who_never_came_and_was_in_nothing_else_is_late() -> None:
    away = rank_of(2, operation(0, 1.0, 0.1), error=LOST, at=7.4, pause_s=5.2)
    verdict = verdict_on(patient(0), patient(1), away)
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [2])


def test_who_waited_in_a_thread_for_another_group_to_the_end_is_a_victim_too() -> None:
    """That wait has not returned when it comes, too late, to what its peers have given up."""
    elsewhere = operation(1, 1.5, None, group="1")
    own = operation(0, 1.0, 0.1), elsewhere, operation(1, 7.3, None)
    held_up = rank_of(2, *own, error=LOST, at=7.4, pause_s=5.2)
    held_up.groups.append(GroupRecord("1", "pair", [2, 3], "gloo"))
    assert 2 not in verdict_on(patient(0), patient(1), held_up).culprits


def test_nobody_is_late_while_a_member_left_nothing_to_tell_when_it_came() -> None:
    """It may have come in time, and another be the one who did not."""
    own = operation(0, 1.0, 0.1), operation(1, 7.3, None)
    late = rank_of(2, *own, error=LOST, at=7.4, pause_s=5.2)
    silent = patient(1)
    silent.progress = None
    assert verdict_on(patient(0), silent, late).culprits == []


def living(rank: int, *operations: OperationCall, line: int = 20) -> RankView:
    mine = view(rank, user(line))
    mine.progress = Progress(1, rank, 0, 0, 0, None, len(operations), list(operations))
    mine.groups = [GROUP]
    mine.movement = Movement(quiet_s=0.2, longest_pause_s=5.2, cpu_share=0.1)
    return mine


def caught(rank: int) -> RankView:
    """Its watchdog has spoken, and the process is there still."""
    mine = living(rank, operation(0, 1.0, 0.1), operation(1, 2.0, None))
    mine.stderr = CAUGHT.format(rank)
    return mine


@pytest.mark.parametrize("away", range(3))
def test_who_never_came_until_watchdogs_spoke_is_named_with_its_line(away: int) -> None:
    """Its own watchdog has nothing to watch."""
    idle = living(away, operation(0, 1.0, 0.1), line=40)
    verdict = verdict_on(*(idle if r == away else caught(r) for r in range(3)))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.MISSING_RANK)
    assert verdict.culprits == [away]
    assert verdict.location is not None and verdict.location.line == 40
    said = [one.rank for one in verdict.evidence if "Watchdog caught" in one.detail]
    assert said == [rank for rank in range(3) if rank != away]


def test_nobody_is_late_where_watchdogs_spoke_and_all_had_come() -> None:
    silent = living(2, operation(0, 1.0, 0.1), operation(1, 2.1, None))
    assert verdict_on(caught(0), caught(1), silent).culprits == []
