"""Resources: what makes a cause out of a limit that was met, and what accuses nobody."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from views import C10D, QUEUE, ended, job, raised, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.host_records import (
    CpuGroup,
    FileSystem,
    HostSample,
    MemoryGroup,
    PidsGroup,
    RankLoad,
    SleepingThread,
)
from hanglab.recorder.case.records import ChildExit, Clock, FullDisk, Raised, StackFrame

LOST = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"
SECOND = 1_000_000_000


def lost(rank: int) -> Any:
    return raised(
        view(rank), "RuntimeError", LOST, StackFrame("all_reduce", C10D, 1), user(20), at=2000
    )


def hosted(facts: Any, *samples: dict[str, Any]) -> Any:
    """The ranks on one host with these samples, a second apart, the last one at the capture."""
    facts.hosts[""] = HostView(
        "",
        [
            HostSample(at=Clock(n * SECOND, n * SECOND), capture=n == len(samples) - 1, **fields)
            for n, fields in enumerate(samples)
        ],
    )
    return facts


def memory(kills: int, ranks: list[int], **fields: Any) -> dict[str, Any]:
    return {"memory_groups": [MemoryGroup("/pod", 2, ranks, oom_kills=kills, **fields)]}


def killed(rank: int) -> Any:
    return ended(view(rank), code=None, signal=signal.SIGKILL)


def test_sigkill_with_a_kill_counted_by_its_group_is_for_want_of_memory() -> None:
    known = job([lost(0), killed(1), lost(2)], trigger=None)
    verdict = conclude(hosted(known, memory(0, [1]), memory(1, [])))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.OOM_KILLED)
    assert verdict.culprits == [1] and verdict.victims == [0, 2]


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [memory(1, [1]), memory(1, [])],
        [memory(0, [0, 2]), memory(1, [0, 2])],
        [{"oom_kills": 3, "memory_bytes": 100, "memory_available_bytes": 60}] * 2,
    ],
    ids=["no samples", "kills of before", "another's group", "kills of the host before"],
)
def test_sigkill_alone_is_a_crash(samples: list[dict[str, Any]]) -> None:
    known = job([lost(0), killed(1), lost(2)], trigger=None)
    assert conclude(hosted(known, *samples)).cause is Cause.CRASH


def test_one_kill_accounts_for_one_death_the_first() -> None:
    first, second = killed(1), killed(2)
    second.exit.at = Clock(5_000, 5_000)
    known = job([lost(0), first, second], trigger=None)
    verdict = conclude(hosted(known, memory(0, [0, 1, 2]), memory(1, [])))
    assert (verdict.cause, verdict.culprits) == (Cause.OOM_KILLED, [1])


def test_the_kernel_s_own_line_names_a_loader_worker() -> None:
    text = "DataLoader worker (pid 77) is killed by signal: Killed. "
    culprit = raised(view(1), "RuntimeError", text, user(30))
    culprit.children = [ChildExit(Clock(900, 900), 77, "worker", None, 9)]
    line = "Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB"
    verdict = conclude(hosted(job([lost(0), culprit], trigger=None), {}, {"kernel": [line]}))
    assert (verdict.cause, verdict.culprits) == (Cause.OOM_KILLED, [1])


def full(**fields: Any) -> FullDisk:
    return FullDisk("/data", "ext4", 1 << 30, 0, **fields)


def test_an_error_of_torch_save_on_a_full_disk_is_the_disk_s() -> None:
    text = "[enforce fail at inline_container.cc:672] . unexpected pos 4 vs 2"
    culprit = raised(view(0), "RuntimeError", text, user(24, "save"))
    culprit.exceptions[0].full = [full()]
    verdict = conclude(job([culprit, lost(1)], trigger=None))
    assert (verdict.status, verdict.cause, verdict.culprits) == (
        Status.FAILED, Cause.DISK_FULL, [0],
    )  # fmt: skip
    assert verdict.location is not None and verdict.location.line == 24
    assert any("/data" in e.detail for e in verdict.evidence)


def test_what_led_to_an_error_is_its_cause() -> None:
    culprit = raised(view(0), "CheckpointError", "could not save", user(24, "save"))
    culprit.exceptions[0].because = ["OSError: [Errno 28] No space left on device: '/data/7.pt'"]
    assert conclude(job([culprit, lost(1)], trigger=None)).cause is Cause.DISK_FULL


@pytest.mark.parametrize(
    ("message", "space"),
    [
        ("unexpected pos 4 vs 2", FileSystem(["cwd"], "/data", [0], "ext4", 10 << 30, 100 << 20)),
        ("label 8 of 8 classes", FileSystem(["cwd"], "/data", [0], "ext4", 10 << 30, 0)),
        ("unexpected pos 4 vs 2", FileSystem(["cwd"], "/data", [1], "ext4", 10 << 30, 0)),
    ],
    ids=["99 % full", "another error", "another's disk"],
)
def test_a_disk_that_is_nearly_full_or_not_meant_is_no_cause(
    message: str, space: FileSystem
) -> None:
    culprit = raised(view(0), "RuntimeError", message, user(24))
    known = hosted(job([culprit, lost(1)], trigger=None), {"spaces": [space]})
    assert conclude(known).cause is Cause.EXCEPTION


def behind_a_queue(at_ns: int) -> Any:
    """Rank 0 waits for its writer, which had met a full disk; the capture is at 1,000 ns."""
    stuck = view(0, StackFrame("get", QUEUE, 171), user(51))
    stuck.handled = [
        Raised(
            Clock(at_ns, at_ns), "OSError", "[Errno 28] No space left on device", [],
            thread="Thread-1", main=False, full=[full()],
        )
    ]  # fmt: skip
    return job([stuck, waiting(1), waiting(2)], outside=[0])


def test_a_rank_behind_a_thread_that_met_a_full_disk_just_before() -> None:
    verdict = conclude(behind_a_queue(at_ns=-2 * SECOND))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.HUNG, Cause.DISK_FULL, [0])
    assert verdict.location is not None and verdict.location.line == 51


def test_a_full_disk_that_was_dealt_with_long_ago_is_not_why_it_hangs() -> None:
    verdict = conclude(behind_a_queue(at_ns=-600 * SECOND))
    assert verdict.cause is not Cause.DISK_FULL


def test_a_rank_that_logs_a_full_disk_and_is_waited_for_elsewhere_is_not_accused_of_it() -> None:
    spinning = view(0, user(51), gil=True, cpu_share=1.0, quiet_s=60.0)
    spinning.stderr = "WARNING cache not written: No space left on device\n"
    space = FileSystem(["cwd"], "/data", [0], "ext4", 1 << 30, 0)
    known = hosted(job([spinning, waiting(1)], outside=[0]), {"spaces": [space]})
    assert conclude(known).cause is not Cause.DISK_FULL


def load(fds: int, limit: int, **fields: Any) -> dict[str, Any]:
    return {"ranks": [RankLoad(1, 0, 101, fds=fds, fd_limit=limit, **fields)]}


def test_an_error_that_hides_the_want_of_descriptors() -> None:
    culprit = raised(view(1), "RuntimeError", "received 0 items of ancdata", user(30))
    known = hosted(job([lost(0), culprit], trigger=None), load(1020, 1024))
    assert conclude(known).cause is Cause.FD_EXHAUSTED


def test_many_descriptors_that_are_fewer_than_allowed_are_no_cause() -> None:
    culprit = raised(view(1), "RuntimeError", "received 0 items of ancdata", user(30))
    known = hosted(job([lost(0), culprit], trigger=None), load(60_000, 1 << 20))
    assert conclude(known).cause is Cause.EXCEPTION
    sound = job([view(0), view(1)], trigger="request")
    assert conclude(hosted(sound, load(1023, 1024))).cause is None


def tasks(refused: int, count: int = 60) -> dict[str, Any]:
    return {"pids_groups": [PidsGroup("/pod", 2, [1], count, 64, refused)]}


def test_a_thread_that_was_refused_by_the_group() -> None:
    culprit = raised(view(1), "RuntimeError", "can't start new thread", user(13))
    verdict = conclude(hosted(job([lost(0), culprit], trigger=None), tasks(0), tasks(2)))
    assert verdict.cause is Cause.PIDS_EXHAUSTED and verdict.confidence > 0.97
    other = raised(view(1), "ValueError", "label 8 of 8 classes", user(13))
    known = hosted(job([lost(0), other], trigger=None), tasks(0), tasks(2))
    assert conclude(known).cause is Cause.EXCEPTION


def shared(mebibytes: int, free: int) -> dict[str, Any]:
    space = FileSystem(["shm"], "/dev/shm", [1], "tmpfs", mebibytes << 20, free << 20)
    return {"spaces": [space]}


@pytest.mark.parametrize(
    ("room", "cause"),
    [((64, 10), Cause.SHM_EXHAUSTED), ((16384, 16000), Cause.LOADER_WORKER_DIED)],
    ids=["as small as Docker's", "plenty"],
)
def test_a_bus_error_of_a_worker(room: tuple[int, int], cause: Cause) -> None:
    text = "DataLoader worker (pid 77) is killed by signal: Bus error. "
    culprit = raised(view(1), "RuntimeError", text, user(30))
    known = hosted(job([lost(0), culprit], trigger=None), shared(*room))
    assert conclude(known).cause is cause


def kept(state: str, wchan: str, **space: Any) -> Any:
    stuck = view(1, user(25), state=state, wchan=wchan)
    known = job([waiting(0), stuck, waiting(2)], outside=[1])
    thread = SleepingThread(101, state, wchan, "read", "/data/shard")
    sample = load(20, 1024, sleeping=[thread], state=state)
    return hosted(
        known, {**sample, "spaces": [FileSystem(["file"], "/data", [1], "nfs4", **space)]}
    )


def test_a_rank_in_a_read_of_a_disk_that_does_not_answer() -> None:
    verdict = conclude(kept("S", "request_wait_answer", unanswered_s=2.0))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.HUNG, Cause.IO_BLOCKED, [1])
    assert verdict.location is not None and verdict.location.line == 25


def test_a_rank_in_a_read_of_a_disk_that_answers_is_not_blocked_by_it() -> None:
    known = kept("S", "wait_woken", size_bytes=1 << 40, free_bytes=1 << 30)
    assert conclude(known).cause is not Cause.IO_BLOCKED


@pytest.mark.parametrize(("state", "wchan"), [("D", "__refrigerator"), ("S", "do_freezer_trap")])
def test_a_rank_whose_control_group_is_frozen_waits_for_no_disk(state: str, wchan: str) -> None:
    """Its files do not answer who asks from within the group, which is frozen with it."""
    verdict = conclude(kept(state, wchan, unanswered_s=2.0))
    assert (verdict.cause, verdict.culprits) == (Cause.PROCESS_FROZEN, [1])


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_rank_may_be_in_any_call(frozen: bool) -> None:
    """Since Linux 6.1 it stays where it slept, in state D."""
    known = kept("D", "futex_do_wait", unanswered_s=2.0)
    for sample in known.ranks[1].processes:
        sample.frozen = frozen
    verdict = conclude(known)
    assert (verdict.cause is Cause.PROCESS_FROZEN) == frozen
    assert not frozen or verdict.culprits == [1]


def throttled(periods: int, stopped: int, lost_s: float, ranks: list[int]) -> dict[str, Any]:
    return {"cpu_groups": [CpuGroup("/pod", 2, ranks, 1.0, periods, stopped, lost_s)]}


def moving(ranks: int) -> Any:
    return job([view(r, user(3), quiet_s=0.1) for r in range(ranks)], trigger="request")


def test_a_job_whose_group_stands_still_most_of_the_time_is_throttled() -> None:
    samples = throttled(100, 10, 1.0, [0, 1]), throttled(200, 100, 9.0, [0, 1])
    verdict = conclude(hosted(moving(2), samples[0], *[{}] * 9, samples[1]))
    assert (verdict.status, verdict.cause, verdict.culprits) == (
        Status.SLOW, Cause.CPU_THROTTLED, [0, 1],
    )  # fmt: skip
    assert verdict.effect is not None and verdict.effect.share_of_step == pytest.approx(0.8)


@pytest.mark.parametrize(
    "last",
    [(200, 15, 1.1), (105, 14, 1.2), (200, 80, 1.5)],
    ids=["seldom", "too short to say", "for moments only"],
)
def test_a_group_that_is_stopped_now_and_then_is_no_cause(last: tuple[int, int, float]) -> None:
    known = hosted(moving(2), throttled(100, 10, 1.0, [0, 1]), *[{}] * 9, throttled(*last, [0, 1]))
    assert conclude(known).status is Status.HEALTHY


def test_a_group_at_its_limit_whose_ranks_cost_nobody_anything_is_no_cause() -> None:
    first = memory(0, [0, 1], used_bytes=100, limit_bytes=100, refused=0, refaults=0)
    last = memory(0, [0, 1], used_bytes=100, limit_bytes=100, refused=9000, refaults=90_000)
    assert conclude(hosted(moving(2), first, {}, {}, last)).status is Status.HEALTHY
