"""Monitored barriers: what torch says of one names who never came, and never who waited."""

from __future__ import annotations

import pytest
from views import THREADING, ended, job, progress, raised, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.graph.wait_for_graph import Sink, Wait, WaitKind
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.case.records import Clock, Exit, GroupRecord

#: As torch 2.13 raises them: without and with wait_all_ranks, and on all other ranks.
FIRST = (
    "[Rank {0}]: Rank {1} failed to pass monitoredBarrier in 1000 ms\n Original exception: \n"
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1000ms for "
    "recv operation to complete"
)
ALL = "[Rank {0}]: Ranks {1} failed to pass monitoredBarrier in 1000 ms"
FELT = (
    "Rank {0} successfully reached monitoredBarrier, but received errors while waiting for "
    "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original exception: \n"
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
)


def entered(mine: RankView, times: int, group: str = "0") -> RankView:
    progress(mine, -1)
    assert mine.progress is not None
    mine.progress.operations = [
        OperationCall(i, "monitored_barrier", group, i, i, completed=True) for i in range(times)
    ]
    mine.progress.operations_total = times
    return mine


def outside(rank: int, times: int = 2) -> RankView:
    return entered(view(rank, user(31), wchan="hrtimer_nanosleep"), times)


def gave_up(rank: int, message: str, times: int = 3) -> RankView:
    return entered(raised(view(rank), "RuntimeError", message, user(20)), times)


@pytest.mark.parametrize(
    ("message", "absent"), [(FIRST.format(0, 2), [2]), (ALL.format(0, "1, 2"), [1, 2])]
)
def test_the_named_ranks_are_accused(message: str, absent: list[int]) -> None:
    felt = [gave_up(r, FELT.format(r)) for r in (1, 2, 3) if r not in absent]
    views = [gave_up(0, message), *(outside(r) for r in absent), *felt]
    verdict = conclude(job(views, trigger=None))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.MISSING_RANK)
    assert verdict.culprits == absent
    assert 0 in verdict.victims
    assert verdict.location is not None and verdict.location.line == 31
    quote = message.partition("\n")[0]
    assert any(quote in e.detail for e in verdict.evidence if e.rank == 0)
    assert all(0 not in finding.culprits for finding in verdict.findings)


def test_all_that_are_missing_are_counted_although_only_the_first_is_named() -> None:
    views = [gave_up(0, FIRST.format(0, 1)), outside(1), outside(2), gave_up(3, FELT.format(3))]
    assert conclude(job(views, trigger=None)).culprits == [1, 2]


def test_numbers_are_those_of_the_group() -> None:
    views = [waiting(0), gave_up(1, ALL.format(0, "2")), gave_up(2, FELT.format(1)), outside(3)]
    for mine in views[1:]:
        mine.groups = [GroupRecord(id="7", ranks=[1, 2, 3], backend="gloo", description="b")]
        assert mine.progress is not None
        for operation in mine.progress.operations:
            operation.group = "7"
    assert conclude(job(views, trigger=None)).culprits == [3]


def test_a_collective_that_a_barrier_precedes_names_the_group() -> None:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL the barrier itself does not pass the boundary."""
    message = f"ProcessGroupWrapper: Monitored Barrier encountered error\n{ALL.format(0, '1')}"
    views = [gave_up(0, message), waiting(1), outside(2), waiting(3)]
    for mine in views:
        mine.groups = [GroupRecord(id="7", ranks=[0, 2], backend="gloo", description="b")]
    assert views[0].progress is not None
    views[0].progress.operations = [OperationCall(0, "allreduce", "7", 1, 2, failed=True)]
    assert conclude(job(views, trigger=None)).culprits == [2]


def test_a_job_that_survived_it_and_hangs() -> None:
    survivors = [entered(waiting(r), 3) for r in (0, 1)]
    survivors[0].stderr = f"E1122 ProcessGroupGloo.cpp:3] {ALL.format(0, '2')}\n"
    stuck = entered(view(2, user(1, "join", THREADING), user(31)), 2)
    verdict = conclude(job([*survivors, stuck]))
    assert verdict.status is Status.HUNG
    assert verdict.culprits == [2]


def test_a_named_rank_that_waits_for_another_is_not_where_it_began() -> None:
    """Rank 1 is in a reduction with rank 2, which does something else."""
    views = [gave_up(0, FIRST.format(0, 1)), entered(waiting(1), 2), outside(2)]
    known = job(views, trigger=None)
    pair = ProcessGroup("5", (1, 2), "pair")
    known.graph.waits = [Wait(Call(1, pair, 4, "all_reduce"), WaitKind.NOT_ENTERED, (2,))]
    assert conclude(known).culprits == [2]


def innocent(case: str) -> list[RankView]:
    if case == "it came all the same":
        return [gave_up(0, FIRST.format(0, 1)), outside(1, times=3), gave_up(2, FELT.format(2))]
    if case == "an old message":
        old = entered(waiting(0), 5)
        old.stderr = ALL.format(0, "1")
        return [old, entered(waiting(1), 5), entered(waiting(2), 5)]
    if case == "nobody knows in which group":
        unknown = gave_up(0, FIRST.format(0, 1))
        unknown.progress = None
        return [unknown, outside(1), gave_up(2, FELT.format(1))]
    assert case == "another process's words"
    # It prints what rank 0 had said.
    return [waiting(0), gave_up(1, FIRST.format(0, 2)), waiting(2)]


@pytest.mark.parametrize(
    "case",
    [
        "it came all the same",
        "an old message",
        "nobody knows in which group",
        "another process's words",
    ],
)
def test_nobody_is_accused_by_words_that_do_not_fit(case: str) -> None:
    assert conclude(job(innocent(case), trigger=None)).culprits == []


def test_its_own_exception_explains_why_a_rank_never_came() -> None:
    failed = raised(view(2), "ValueError", "bad batch", user(40))
    views = [gave_up(0, FIRST.format(0, 2)), gave_up(1, FELT.format(1)), entered(failed, 2)]
    verdict = conclude(job(views, trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [2])


def test_a_frozen_process_explains_why_a_rank_never_came() -> None:
    frozen = entered(view(2, user(31), state="T"), 2)
    views = [gave_up(0, FIRST.format(0, 2)), gave_up(1, FELT.format(1)), frozen]
    verdict = conclude(job(views))
    assert (verdict.cause, verdict.culprits) == (Cause.PROCESS_FROZEN, [2])


def test_a_launcher_ends_those_who_never_came() -> None:
    missing = [ended(entered(view(r), 2), code=None, signal=15) for r in (1, 2)]
    for mine in missing:
        mine.exit = Exit(at=Clock(5_000, 5_000), code=None, signal=15)
    verdict = conclude(job([gave_up(0, ALL.format(0, "1, 2")), *missing], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [1, 2])
    assert verdict.location is None
    missing[0].exit = Exit(at=Clock(500, 500), code=None, signal=9)
    verdict = conclude(job([gave_up(0, FIRST.format(0, 1)), *missing], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])


def test_a_rank_that_had_ended_by_then() -> None:
    views = [gave_up(0, FIRST.format(0, 1)), ended(entered(view(1), 2)), gave_up(2, FELT.format(2))]
    verdict = conclude(job(views, trigger=None))
    assert verdict.culprits == [1]


@pytest.mark.parametrize("message", [FIRST.format(0, 1), ALL.format(0, "1, 2, 3")])
@pytest.mark.parametrize("hangs", [False, True])
def test_whoever_is_alone_in_a_barrier_accuses_nobody(message: str, hangs: bool) -> None:
    """Rank 0 called one too many: its peers wait for it in the reduction that comes next."""
    if hangs:
        alone = entered(waiting(0), 3)
        alone.stderr = message
        peers = [entered(waiting(r), 2) for r in (1, 2, 3)]
    else:
        alone = gave_up(0, message)
        lost = "Connection closed by peer [127.0.0.1]:5"
        peers = [entered(raised(view(r), "RuntimeError", lost, at=2_000), 2) for r in (1, 2, 3)]
    known = job([alone, *peers], trigger="no_progress" if hangs else None)
    group = known.graph.groups[0]
    known.graph.waits = [
        Wait(Call(r, group, 7, "all_reduce"), WaitKind.NOT_ENTERED, (0,)) for r in (1, 2, 3)
    ]
    known.graph.sinks = [Sink(0, Call(0, group, 7, "all_reduce"), outside=True)]
    assert not {1, 2, 3} & set(conclude(known).culprits)


def test_who_waits_for_the_barrier_s_ranks_elsewhere_has_left_it_out() -> None:
    felt = [gave_up(r, FELT.format(r)) for r in (2, 3)]
    known = job([gave_up(0, FIRST.format(0, 1)), entered(waiting(1), 2), *felt], trigger=None)
    group = known.graph.groups[0]
    known.graph.waits = [Wait(Call(1, group, 7, "all_reduce"), WaitKind.NOT_ENTERED, (0, 2, 3))]
    assert conclude(known).culprits == [1]


@pytest.mark.parametrize("dead", [False, True])
def test_who_waits_for_a_rank_that_may_not_have_come_either_is_not_accused(dead: bool) -> None:
    """Nobody counted barriers, and only the first that lacks is named: rank 1 waits for rank 3."""
    gone = raised(view(3), "ValueError", "bad", user(40), at=500) if dead else outside(3)
    known = job([gave_up(0, FIRST.format(0, 1)), waiting(1), waiting(2), gone], trigger=None)
    for mine in known.ranks.values():
        if mine.progress is not None:
            mine.progress.operations_total += 1
    group = known.graph.groups[0]
    known.graph.waits = [
        Wait(Call(r, group, 7, "all_reduce"), WaitKind.NOT_ENTERED, (3,)) for r in (1, 2)
    ]
    assert conclude(known).culprits == ([3] if dead else [])
