"""Ranks that wait for a process of their own, by what is seen of it from outside."""

from __future__ import annotations

import pytest
from views import AT, job, sample, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.records import ProcessKind, ProcessSample, StackFrame

SUBPROCESS = "/usr/lib/python3.11/subprocess.py"


def child(
    of: RankView,
    name: str,
    *,
    state: str = "S",
    wchan: str = "",
    pid: int = 900,
    kind: ProcessKind = "child",
) -> None:
    assert of.pid is not None
    of.processes.append(ProcessSample(AT, pid, of.pid, kind, state, 0.0, wchan=wchan, name=name))


@pytest.mark.parametrize(
    ("state", "wchan", "told"),
    [
        ("S", "anon_pipe_write", "writes into a pipe that nobody empties"),
        ("S", "hrtimer_nanosleep", "rests (state S, kernel: hrtimer_nanosleep)"),
        ("D", "nfs_wait", "is blocked in the kernel (nfs_wait)"),
    ],
)
def test_what_the_process_does_is_told(state: str, wchan: str, told: str) -> None:
    waits = view(1, user(10), wchan="do_wait")
    child(waits, "tar", state=state, wchan=wchan)
    verdict = conclude(job([waits, waiting(0), waiting(2)], outside=[1]))
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [1])
    assert f"it waits for its child process tar (pid 900), which {told}" in verdict.summary


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (
            [
                StackFrame("_send", "/usr/lib/python3.11/multiprocessing/connection.py", 384),
                StackFrame("_feed", "/usr/lib/python3.11/multiprocessing/queues.py", 264),
            ],
            "writes into a queue that nobody empties",
        ),
        ([user(77, "work")], "is at train.py:77 (work)"),
    ],
)
def test_a_forked_process_is_told_by_its_stack(frames: list[StackFrame], told: str) -> None:
    waits = view(1, user(10), wchan="do_wait")
    child(waits, "python", wchan="hrtimer_nanosleep", kind="worker")
    waits.stacks.append(sample(900, *frames, kind="child"))
    verdict = conclude(job([waits, waiting(0), waiting(2)], outside=[1]))
    assert f"it waits for its child process python (pid 900), which {told}" in verdict.summary


def test_a_process_at_work_leaves_it_open_whether_the_rank_comes_back() -> None:
    waits = view(1, user(10), wchan="do_wait")
    assert waits.movement is not None
    waits.movement.share_below = 0.97
    child(waits, "make")
    child(waits, "tee", pid=901)
    verdict = conclude(job([waits, waiting(0), waiting(2)], outside=[1]))
    assert verdict.culprits == [1] and verdict.confidence <= 0.6
    assert "one of its child processes make (pid 900) and tee (pid 901)" in verdict.summary
    assert "use a processor all the while" in verdict.summary


def test_a_pipe_s_end_is_waited_for_in_python_s_own_module() -> None:
    waits = view(
        1, StackFrame("_communicate", SUBPROCESS, 2100), user(10), wchan="poll_schedule_timeout"
    )
    child(waits, "ffmpeg", wchan="futex_do_wait")
    verdict = conclude(job([waits, waiting(0), waiting(2)], outside=[1]))
    assert "waits for its child process ffmpeg" in verdict.summary


def test_other_waits_are_none_for_a_process() -> None:
    sleeps = view(1, user(10), wchan="hrtimer_nanosleep")
    child(sleeps, "tracker")
    gone = view(1, user(10), wchan="do_wait")
    child(gone, "tar", state="Z")
    for one in (sleeps, gone):
        verdict = conclude(job([one, waiting(0), waiting(2)], outside=[1]))
        assert verdict.culprits == [1] and "child process" not in verdict.summary
