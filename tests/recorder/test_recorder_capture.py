"""The agent beside real jobs that hang, fail, or only look as if."""

from __future__ import annotations

import os
import signal
import stat
import time

from conditions import wait_for

from hanglab.recorder.case import evidence_files as files

STATES = "states_program.py"


def start(start_job, roles: str, hang_after: float = 0.8, **environment: str):
    environment["ROLES"] = roles
    job = start_job(STATES, len(roles), environment, agent=("--hang-after", str(hang_after)))
    for rank in range(len(roles)):
        wait_for(lambda rank=rank: "stuck" in job.printed(rank), f"rank {rank} to be stuck")
    return job


def functions(case, kind: str = "rank") -> set[str]:
    return {
        frame.function
        for sample in case.read(files.STACKS)
        if sample.kind == kind and sample.capture
        for thread in sample.threads
        for frame in thread.frames
    }


def test_hang_is_captured(start_job):
    job = start(start_job, "wwws")
    event = job.agent.wait("captured")
    assert event["trigger"]["kind"] == "no_progress"
    job.agent.finish(ended_by_recorder=True)
    case = job.read()
    assert case.manifest is not None and case.job is not None
    assert case.job.world_size == 4 and case.job.ended_by_recorder
    assert case.problems == []
    assert [absence for absence in case.absent if absence.what != "gpu"] == []
    for rank in case.ranks:
        assert rank.read(files.FLIGHT_RECORDER) and rank.read(files.FLIGHT_RECORDER_STACKS)
        assert rank.read(files.MOVEMENT) is not None and rank.read(files.MOVEMENT).quiet_s >= 0.8
        assert rank.read(files.MOVEMENT).stack_samples >= 3
        assert len([s for s in rank.read(files.STACKS) if not s.capture]) >= 3
        # D where a disk has to bring a page of its program.
        assert {s.state for s in rank.read(files.PROCESSES)} <= {"S", "R", "D"}
        assert not any(
            t.name.startswith("hanglab") for s in rank.read(files.STACKS) for t in s.threads
        )
    assert "sleep_for_ever" in functions(case.ranks[3])
    assert "play" in functions(case.ranks[0])
    listed = {entry.path for entry in case.manifest.files}
    assert any(path.endswith("0.0/progress.bin") for path in listed)
    assert job.case.stat().st_mode & 0o777 == 0o700
    for path in job.case.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_each_state_is_named_in_one_job(start_job):
    job = start(start_job, "wwgwtw", hang_after=1.5)
    job.kill(1, signal.SIGSTOP)
    job.kill(3, signal.SIGKILL)
    assert job.status(3) == signal.SIGKILL
    job.report(3, code=None, signal=9, by_recorder=False)
    # The others lose their connection to rank 3 and raise, which they may do at any time.
    event = job.agent.wait("captured")
    assert event["trigger"]["kind"] in ("exit", "no_progress")
    job.agent.finish(ended_by_recorder=True)
    case = job.read()
    by_rank = {rank.rank: rank for rank in case.ranks}
    reasons = {(a.rank, a.what): a.reason for a in case.absent}
    assert "stopped" in reasons[1, "flight_recorder.pickle"]
    assert "T" in {s.state for s in by_rank[1].read(files.PROCESSES)}
    assert functions(by_rank[1]), "a stopped process is readable from outside"
    assert "lock" in reasons[2, "flight_recorder.pickle"]
    assert any(t.owns_gil for s in by_rank[2].read(files.STACKS) for t in s.threads)
    assert by_rank[3].read(files.EXIT) is not None and by_rank[3].read(files.EXIT).signal == 9
    assert by_rank[3].read(files.PROGRESS) is not None and by_rank[3].read(files.PROGRESS).step == 4
    assert (
        by_rank[4].read(files.PROGRESS) is not None
        and by_rank[4].read(files.PROGRESS).phase == "exiting"
    )
    assert "sleep_for_ever" in functions(by_rank[4])
    assert by_rank[4].read(files.FLIGHT_RECORDER)
    assert "SIGKILL" in reasons[3, "stacks.jsonl"]
    assert "SIGKILL" in reasons[3, "flight_recorder.pickle"]
    # Whatever a rank does not have, the Case says why.
    for number, rank in by_rank.items():
        for name in ("flight_recorder.pickle", "stacks.jsonl", "processes.jsonl", "progress.bin"):
            there = (rank.folder / name).exists()
            assert there != ((number, name) in reasons), (number, name, reasons)


def test_a_rank_whose_main_thread_sleeps_uninterruptibly_may_answer(start_job, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job = start(start_job, "dD", PIPE=str(pipe))
    try:
        job.agent.wait("captured")
        job.agent.finish(ended_by_recorder=True)
        case = job.read()
        for rank in case.ranks:
            assert "D" in {s.state for s in rank.read(files.PROCESSES)}
            assert "start_below_the_pipe" in functions(rank)
        assert case.ranks[0].read(files.FLIGHT_RECORDER)
        # Whoever holds the interpreter's lock answers when it is awake again.
        assert case.ranks[1].read(files.FLIGHT_RECORDER) is None
        (reason,) = [a.reason for a in case.absent if a.what == files.FLIGHT_RECORDER.name]
        assert "uninterruptibly" in reason
    finally:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


def test_a_rank_that_answers_late_is_asked_again(start_job):
    # Its recorder's thread runs, but others keep the interpreter from it for seconds.
    job = start(start_job, "ll", hang_after=4)
    job.agent.wait("captured")
    job.agent.finish(ended_by_recorder=True)
    case = job.read()
    assert all(rank.read(files.FLIGHT_RECORDER) for rank in case.ranks), case.absent


def test_native_frames_are_had_on_request(start_job, monkeypatch):
    monkeypatch.setenv("HANGLAB_NATIVE", "1")
    job = start(start_job, "ws")
    job.agent.wait("captured", patience=150)
    job.agent.finish(ended_by_recorder=True)
    zero, one = job.read().ranks
    names = {
        f.function for s in zero.read(files.NATIVE_STACKS) for t in s.threads for f in t.frames
    }
    assert any("gloo" in name or "c10d" in name for name in names), sorted(names)[:40]
    assert "sleep_for_ever" in {
        f.function for s in one.read(files.NATIVE_STACKS) for t in s.threads for f in t.frames
    }
    assert "gloo" not in {
        f.function for s in zero.read(files.STACKS) for t in s.threads for f in t.frames
    }


def test_exception_is_written_and_survivors_are_captured(start_job):
    # The group breaks when rank 1 leaves, so that a sleeper is the survivor.
    job = start(start_job, "sx")
    assert job.status(1) == 1 << 8
    job.report(1, code=1, signal=None, by_recorder=False)
    event = job.agent.wait("captured")
    assert event["trigger"]["kind"] == "exit"
    assert "rank 1" in event["trigger"]["detail"]
    job.agent.finish(ended_by_recorder=True)
    case = job.read()
    zero, one = case.ranks
    (raised,) = one.read(files.EXCEPTIONS)
    assert (raised.type, raised.message) == ("RuntimeError", "the reason of it all")
    assert raised.frames[0].function == "play" and raised.main
    assert one.read(files.EXIT) is not None and one.read(files.EXIT).code == 1
    assert "the reason of it all" in one.read(files.STDERR)
    assert (
        one.read(files.FLIGHT_RECORDER)
        and one.read(files.PROGRESS) is not None
        and one.read(files.PROGRESS).phase == "exiting"
    )
    assert "sleep_for_ever" in functions(zero)
    assert zero.read(files.FLIGHT_RECORDER), case.absent


def test_a_rank_that_vanishes_untold_is_noticed(start_job):
    job = start(start_job, "ss", hang_after=30)
    job.kill(1)
    assert job.agent.wait("captured")["trigger"]["kind"] == "exit"
    job.agent.finish()


def test_moving_functions_are_movement(start_job):
    job = start(start_job, "wn", hang_after=1.2)
    watched = time.monotonic() + 3.0
    wait_for(lambda: time.monotonic() > watched, "more than twice the threshold")
    job.agent.tell(command="capture", kind="deadline", detail="enough")
    event = job.agent.wait("captured")
    assert event["trigger"]["kind"] == "deadline"
    job.agent.finish(ended_by_recorder=True)
    case = job.read()
    assert case.job is not None and case.job.trigger is not None
    assert case.job.trigger.detail == "enough"
    assert (
        case.ranks[1].read(files.MOVEMENT) is not None
        and case.ranks[1].read(files.MOVEMENT).quiet_s < 3.0
    )


def test_busy_rank_gets_more_time(start_job):
    job = start(start_job, "wb", hang_after=0.5)
    event = job.agent.wait("captured")
    job.agent.finish(ended_by_recorder=True)
    movement = job.read().ranks[1].read(files.MOVEMENT)
    assert movement is not None
    # On a starved machine the loop may not get most of a core.
    if movement.cpu_share >= 0.8:
        assert event["trigger"]["quiet_s"] >= 1.5


def test_a_rank_whose_child_computes_gets_more_time(start_job):
    job = start(start_job, "wc", hang_after=0.4)
    event = job.agent.wait("captured")
    job.agent.finish(ended_by_recorder=True)
    waits, computes = (rank.read(files.MOVEMENT) for rank in job.read().ranks)
    assert waits is not None and waits.share_below == 0.0
    assert computes is not None and computes.cpu_share < 0.5
    # A build or a loader's worker may take long; on a starved machine it gets less of a core.
    if computes.share_below >= 0.8:
        assert event["trigger"]["quiet_s"] >= 4.0


def test_end_of_input_finishes_the_case(start_job):
    job = start(start_job, "ss", hang_after=30)
    assert job.agent.close_input() == 0
    assert job.read().manifest is not None
