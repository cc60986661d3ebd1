"""Waits that nobody could end, and those that somebody could."""

from __future__ import annotations

import signal

import pytest
from views import C10D, THREADING, ended, job, progress, sample, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.host_waits import host_waits
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.records import ProcessSample, StackFrame, ThreadStack, ThreadWait

PROCESS = "/usr/lib/python3.11/multiprocessing/process.py"
WAIT = StackFrame("wait", THREADING, 1)


def verdict_on(culprit):  # type: ignore[no-untyped-def]
    views = [culprit, *(waiting(r) for r in range(4) if r != culprit.rank)]
    return conclude(job(views, outside=[culprit.rank]))


def stuck(*waits: ThreadWait, frames: tuple[StackFrame, ...] = (WAIT, user(5))):  # type: ignore[no-untyped-def]
    one = view(1, *frames)
    one.waits = list(waits)
    return one


def add_thread(one, number: int, *frames: StackFrame) -> None:  # type: ignore[no-untyped-def]
    one.stacks[0].threads.append(ThreadStack(list(frames), name="other", os_thread_id=number))


@pytest.mark.parametrize("waiters", [(0,), (0, 2), (0, 1, 2)])
def test_a_lock_that_processes_share_is_nobody_s_own(waiters: tuple[int, ...]) -> None:
    """Whoever holds it may be a rank that waits for those in an operation; of all it is one."""
    views = [view(r, user(10)) if r in waiters else waiting(r) for r in range(3)]
    for rank in waiters:
        views[rank].waits = [ThreadWait("lock", True, main=True, shared="00:1b 77")]
    facts = job(views, outside=list(waiters) if len(waiters) < 3 else [])
    facts.graph.host_waits = {rank: wait.on for rank, wait in host_waits(facts).items()}
    verdict = conclude(facts)
    if len(waiters) == 3:
        assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [0, 1, 2])
    else:
        assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
        assert "a lock that processes share" in verdict.summary


@pytest.mark.parametrize("waiters", [(0,), (0, 1)])
def test_a_lock_whose_holder_died_accuses_nobody_who_waits_for_it(waiters: tuple[int, ...]) -> None:
    """A dead process lets no lock of several processes go: who died is the root."""
    views = [view(r, user(10)) if r in waiters else waiting(r) for r in range(2)]
    views.append(ended(view(2), code=None, signal=signal.SIGKILL))
    for rank in waiters:
        views[rank].waits = [ThreadWait("lock", True, main=True, shared="00:1b 77")]
    facts = job(views, outside=[*waiters, 2] if len(waiters) < 2 else [])
    facts.graph.host_waits = {rank: wait.on for rank, wait in host_waits(facts).items()}
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [2])
    assert all(finding.culprits == [2] for finding in verdict.findings)


@pytest.mark.parametrize("kind", ["condition", "queue", "future", "pool", "thread"])
def test_a_wait_without_end_is_a_deadlock(kind: str) -> None:
    verdict = verdict_on(stuck(ThreadWait(kind, True, main=True)))
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [1])
    assert verdict.location is not None and verdict.location.line == 5


def test_a_wait_with_a_timeout_is_none() -> None:
    assert verdict_on(stuck(ThreadWait("condition", False, main=True))).cause is Cause.MISSING_RANK


@pytest.mark.parametrize(
    ("watches", "cause"), [(0, Cause.PYTHON_DEADLOCK), (1, Cause.MISSING_RANK)]
)
def test_an_event_loop_that_listens_may_hear_something(watches: int, cause: Cause) -> None:
    assert verdict_on(stuck(ThreadWait("loop", True, main=True, watches=watches))).cause is cause


def test_a_thread_in_a_system_call_may_come_back() -> None:
    one = stuck(ThreadWait("future", True, main=True))
    add_thread(one, 77, user(40, "download"))
    assert verdict_on(one).cause is Cause.MISSING_RANK


def test_a_thread_that_waits_for_ever_itself_brings_nothing() -> None:
    one = stuck(ThreadWait("future", True, main=True), ThreadWait("lock", True, os_thread_id=77))
    add_thread(one, 77, user(40, "download"))
    assert verdict_on(one).cause is Cause.PYTHON_DEADLOCK


def forked(*frames: StackFrame):  # type: ignore[no-untyped-def]
    one = view(1, user(5), wchan="do_wait")
    one.stacks.append(sample(900, *frames, kind="child"))
    one.processes.append(
        ProcessSample(
            one.stacks[0].at, 900, 101, "child", state="S", cpu_s=0.0, wchan="futex_do_wait"
        )
    )
    return one


def test_a_forked_child_in_a_lock_of_its_own() -> None:
    run = StackFrame("run", PROCESS, 108)
    assert verdict_on(forked(user(30, "encode"), run, user(5))).cause is Cause.FORK_DEADLOCK


@pytest.mark.parametrize(
    ("wchan", "cause"),
    [("futex_do_wait", Cause.FORK_DEADLOCK), ("hrtimer_nanosleep", Cause.LOADER_STUCK)],
)
def test_a_loader_worker_in_a_lock_that_it_was_forked_with(wchan: str, cause: Cause) -> None:
    utils = "/x/site-packages/torch/utils/data"
    worker = StackFrame("_worker_loop", f"{utils}/_utils/worker.py", 300)
    one = forked(user(30, "__getitem__"), worker, user(5))
    one.stacks[-1].kind = "worker"
    one.processes[-1].wchan = wchan
    loader = StackFrame("_try_get_data", f"{utils}/dataloader.py", 1)
    one.stacks[0].threads[0].frames[:] = [loader, user(5)]
    verdict = verdict_on(one)
    assert (verdict.cause, verdict.culprits) == (cause, [1])
    assert verdict.location is not None and verdict.location.line == 30
    # Of another child nobody knows that the loader waits for it.
    one.processes[-1].wchan = "nfs_wait_bit_killable"
    at = one.stacks[0].at
    one.stacks.append(sample(901, user(40, "serve"), user(5), kind="child"))
    one.processes.append(
        ProcessSample(at, 901, 101, "child", state="S", cpu_s=0.0, wchan="futex_do_wait")
    )
    assert verdict_on(one).cause is Cause.LOADER_STUCK


def test_a_child_that_waits_for_a_task_is_no_deadlock() -> None:
    get = StackFrame("__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95)
    worker = StackFrame("worker", "/usr/lib/python3.11/multiprocessing/pool.py", 114)
    assert verdict_on(forked(get, worker, user(5))).cause is Cause.MISSING_RANK


@pytest.mark.parametrize(
    ("doing", "cause"),
    [
        (StackFrame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), "deadlock"),
        (user(40, "encode"), "at work"),
    ],
    ids=["waits for a task", "runs the user's code"],
)
def test_a_pool_is_waited_for_in_vain_only_while_its_workers_have_nothing_to_do(
    doing: StackFrame, cause: str
) -> None:
    one = stuck(ThreadWait("pool", True, main=True))
    worker = StackFrame("worker", "/usr/lib/python3.11/multiprocessing/pool.py", 114)
    one.stacks.append(sample(900, doing, worker, user(5), kind="child"))
    expected = Cause.PYTHON_DEADLOCK if cause == "deadlock" else Cause.MISSING_RANK
    assert verdict_on(one).cause is expected


def test_a_child_that_was_spawned_has_no_lock_of_its_parent() -> None:
    """Its memory is its own from the first line: nothing that the parent held is held in it."""
    spawned = StackFrame("spawn_main", "/usr/lib/python3.11/multiprocessing/spawn.py", 122)
    assert verdict_on(forked(user(30, "encode"), spawned)).cause is Cause.MISSING_RANK


def test_a_rank_past_its_script_is_in_teardown_whatever_it_waits_for() -> None:
    one = progress(stuck(ThreadWait("condition", True, main=True)), 3)
    assert one.progress is not None
    one.progress.phase = "exiting"
    assert verdict_on(one).cause is Cause.TEARDOWN


@pytest.mark.parametrize(
    ("threads", "line"),
    [
        ([(WAIT, user(13, "run"))], 13),
        ([(WAIT,), (WAIT, user(13, "run"))], 13),  # one of a library's, which may be a daemon
        ([(WAIT, user(13, "run")), (WAIT, user(14, "serve"))], None),
        ([(WAIT,)], None),
    ],
)
def test_the_one_thread_that_is_left_is_the_line_of_a_teardown(
    threads: list[tuple[StackFrame, ...]], line: int | None
) -> None:
    one = view(1, StackFrame("_shutdown", THREADING, 1590))
    for number, frames in enumerate(threads):
        add_thread(one, 200 + number, *frames)
    verdict = verdict_on(one)
    assert verdict.cause is Cause.TEARDOWN
    assert (verdict.location.line if verdict.location else None) == line
    assert ("its thread other is at train.py:13 (run)" in verdict.summary) is (line is not None)


def silent(active: bool, quiet_s: float):  # type: ignore[no-untyped-def]
    one = view(1, user(9), gil=True, has_dump=False, quiet_s=quiet_s)
    one.stacks[0].threads[0].active = active
    assert one.movement is not None
    one.movement.longest_pause_s = 1.0
    return one


@pytest.mark.parametrize(
    ("active", "quiet_s", "cause"),
    [(False, 2.0, Cause.GIL_HELD), (True, 20.0, Cause.GIL_HELD), (True, 5.0, None)],
)
def test_who_computes_with_the_gil_gets_time(
    active: bool, quiet_s: float, cause: Cause | None
) -> None:
    one = silent(active, quiet_s)
    if active:
        assert one.movement is not None
        one.movement.cpu_share = 1.0
    assert verdict_on(one).cause is cause


def test_the_line_is_that_of_the_thread_which_holds_the_gil() -> None:
    one = view(1, WAIT, user(5), has_dump=False)
    add_thread(one, 77, user(40, "vendor"))
    one.stacks[0].threads[1].owns_gil = True
    verdict = verdict_on(one)
    assert verdict.cause is Cause.GIL_HELD
    assert verdict.location is not None and verdict.location.line == 40


DDP = StackFrame("_pre_forward", "/x/site-packages/torch/nn/parallel/distributed.py", 1757)


def unknown(*ranks: int):  # type: ignore[no-untyped-def]
    """A job whose ``ranks`` have no buffer and stand inside torch, the others waiting for them."""
    odd = [progress(view(rank, DDP, user(5), has_dump=False), 3) for rank in ranks]
    facts = job([*odd, *(waiting(r) for r in range(4) if r not in ranks)], outside=ranks)
    for sink in facts.graph.sinks:
        sink.outside, sink.unknown = False, True
    return facts


@pytest.mark.parametrize(("holds", "cause"), [(True, Cause.GIL_HELD), (False, None)])
def test_a_thread_that_holds_the_gil_beside_a_main_thread_inside_torch(
    holds: bool, cause: Cause | None
) -> None:
    """Torch on top of a stack may be communication; but then the others would be done."""
    facts = unknown(1)
    add_thread(facts.ranks[1], 77, user(40, "save"))
    facts.ranks[1].stacks[0].threads[1].owns_gil = holds
    verdict = conclude(facts)
    assert verdict.cause is cause
    if holds:
        assert verdict.location is not None and verdict.location.line == 40


def test_of_two_that_are_unknown_a_holder_of_the_gil_may_wait_for_the_other() -> None:
    facts = unknown(1, 3)
    add_thread(facts.ranks[1], 77, user(40, "save"))
    facts.ranks[1].stacks[0].threads[1].owns_gil = True
    assert conclude(facts).culprits == []


def test_everybody_in_communication_is_nobody_s_deadlock() -> None:
    one = view(1, StackFrame("all_reduce", C10D, 1), user(5))
    one.waits = [ThreadWait("lock", True, main=True)]
    assert verdict_on(one).status is Status.INCONCLUSIVE
