"""The agent on ranks that a test plays itself, and against what may befall it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from conditions import wait_for
from recorder_support import Agent, play_rank, short_folder

from hanglab.recorder.agent import samples
from hanglab.recorder.agent.rank_ends import RankEnds
from hanglab.recorder.agent.watched_rank import WatchedRank, find_ranks
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.decoders import decoder_of
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Exit, Raised, StackFrame, ThreadStack
from hanglab.recorder.case.writer import clock, write
from hanglab.recorder.rank.service import Service, current_stacks
from hanglab.recorder.system import stacks
from hanglab.recorder.system.stacks import NoStacks, position, threads_of


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def runtime() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def start_agent(tmp_path, runtime) -> Iterator[Callable[..., Agent]]:
    agents = []

    def start(hang_after: float = 0.5) -> Agent:
        agent = Agent(tmp_path / "case", runtime, "--hang-after", str(hang_after))
        agents.append(agent)
        agent.wait("ready")
        return agent

    yield start
    for agent in agents:
        agent.close()


def test_counters_that_move_are_movement(start_agent, sleeper, tmp_path):
    progress = play_rank(tmp_path / "case", sleeper.pid)
    agent = start_agent(2.0)
    assert agent.wait("rank")["pid"] == sleeper.pid
    for _ in range(50):  # more than twice the threshold
        time.sleep(0.1)
        progress.step(None)
    agent.tell(command="capture", kind="request")
    assert agent.wait("captured")["trigger"]["kind"] == "request"
    assert agent.finish()["problems"] == []
    case = CaseReader(tmp_path / "case")
    movement = case.ranks[0].read(files.MOVEMENT)
    assert movement is not None and movement.last_signal == "steps"
    assert ("flight_recorder.pickle", 0) in {(a.what, a.rank) for a in case.absent}


def test_input_and_output_of_the_process_are_movement(start_agent, tmp_path):
    code = "import time\nwhile 1: open('/proc/self/stat').read(); time.sleep(0.05)"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        play_rank(tmp_path / "case", child.pid)
        agent = start_agent(2.0)
        agent.wait("rank")
        time.sleep(5.0)  # silence, for more than twice that: nothing announces its absence
        agent.tell(command="capture", kind="deadline")
        assert agent.wait("captured")["trigger"]["kind"] == "deadline"
        agent.finish()
    finally:
        child.kill()
        child.wait()


def test_commands_that_make_no_sense(start_agent):
    agent = start_agent()
    agent.tell(command="dance")
    assert "dance" in agent.wait("error")["detail"]
    agent.tell(order=1)
    agent.wait("error")
    agent.tell(command="exited", rank=7, code=3, stderr="/does/not/exist")
    assert agent.wait("captured")["trigger"]["detail"] == "rank 7 ended with code 3"
    agent.finish()


def test_case_folder_deleted_meanwhile(start_agent, sleeper, tmp_path):
    case = tmp_path / "case"
    play_rank(case, sleeper.pid)
    agent = start_agent(30)
    agent.wait("rank")
    # The agent writes into it meanwhile, so that a folder may not be empty any more.
    wait_for(
        lambda: shutil.rmtree(case, ignore_errors=True) or not case.exists(),
        "the folder to be gone",
    )
    agent.tell(command="capture", kind="request")
    agent.wait("captured")
    agent.finish()


def test_case_folder_that_cannot_be(runtime, tmp_path):
    (tmp_path / "file").touch()
    agent = Agent(tmp_path / "file" / "case", runtime)
    try:
        agent.wait("ready")
        agent.tell(command="capture", kind="request")
        agent.wait("captured")
        assert agent.finish()["problems"] != []
    finally:
        agent.close()


def watched(case: Path, pid: int) -> WatchedRank:
    play_rank(case, pid)
    (rank,) = find_ranks(folders.host_folder(case, os.uname().nodename), set())
    return rank


def test_stacks_without_py_spy_come_from_the_rank(monkeypatch, runtime, tmp_path, sleeper):
    """The service runs in this process, the rank is another: what it says is passed on."""
    rank = watched(tmp_path, sleeper.pid)
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    with pytest.raises(NoStacks, match="not installed"):
        samples.rank_stacks(rank, runtime, capture=True)
    service = Service(
        samples.socket_of(rank, runtime),
        lambda: None,
        lambda: None,
        lambda command: [lambda: {"threads": current_stacks()}],
    )
    service.start()
    sample = samples.rank_stacks(rank, runtime, capture=True)
    assert sample.source == "in-rank"
    main = next(t for t in sample.threads if t.main)
    assert "test_stacks_without_py_spy_come_from_the_rank" in {f.function for f in main.frames}
    assert not any(t.name.startswith("hanglab") for t in sample.threads)
    service.address.unlink()


def test_refused_ptrace_is_said(monkeypatch, tmp_path):
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    fake.chmod(0o700)
    monkeypatch.setattr(stacks, "py_spy", lambda: str(fake))
    with pytest.raises(NoStacks, match="ptrace is refused"):
        threads_of(os.getpid(), stopped=False)


def test_vanished_process_and_reused_id(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    rank = watched(tmp_path, child.pid)
    wait_for(lambda: (s := rank.stat()) is None or s.state == "Z", "the end")
    assert rank.look(0.05, learn=True), "counters seen for the first time"
    rank.look(0.05, learn=True)
    assert rank.gone
    child.wait()
    assert rank.stat() is None
    with pytest.raises(NoStacks, match="ended"):
        samples.rank_stacks(rank, tmp_path, capture=True)


def test_an_end_that_nobody_tells_is_noted_and_what_is_told_stays(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    rank = watched(tmp_path, child.pid)
    child.wait()
    wait_for(lambda: rank.look(0.05, learn=True) and rank.gone, "the end")
    missed: list[tuple[str, str, int | None]] = []
    ends = RankEnds(tmp_path, lambda *what: missed.append(what))
    ends.notice([rank], last=True)
    noted = decoder_of(Exit).decode((rank.folder / files.EXIT.name).read_bytes())
    assert (noted.vanished, noted.words) == (True, "ended, nobody told how")
    assert missed == [("exit.json", "nobody told how it ended", rank.rank)]
    assert ends.failure is not None
    told = Exit(clock(), code=3)
    write(rank.folder, files.EXIT, told)
    ends.write(rank.folder, rank.rank, noted)
    assert decoder_of(Exit).decode((rank.folder / files.EXIT.name).read_bytes()) == told


def test_failures_are_past_once_all_ranks_of_a_later_attempt_alone_run(tmp_path):
    """A second process of a rank, beside the first one, starts nothing anew."""
    first, second = (watched(tmp_path / name, os.getpid()) for name in ("first", "second"))
    second.attempt = 1
    ends = RankEnds(tmp_path, lambda *what: None)
    ends.failed("rank 0 ended with code 1")
    assert not ends.started_anew([first]) and not ends.started_anew([first, second])
    assert ends.failure is not None
    first.gone = True
    assert ends.started_anew([first, second]) and ends.failure is None
    assert not ends.started_anew([first, second])
    # What is noticed of the former one by then is past as well.
    folder = tmp_path / "ranks" / "3.0"
    folder.mkdir(parents=True)
    ends.write(folder, 3, Exit(clock(), signal=15))
    assert ends.failure is None
    ends.write(folder.with_name("3.1"), 3, Exit(clock(), code=1))
    assert ends.failure is not None


@pytest.mark.parametrize(
    ("message", "file", "main", "struck"),
    [
        ("Timed out waiting 6000ms for recv operation to complete", "/v/torch/x.py", True, True),
        ('[rank "a"] wait timeout after 300000ms', "/v/torch/distributed/x.py", True, True),
        ("Ranks 2 failed to pass monitoredBarrier in 8000 ms", "/v/torch/x.py", True, True),
        ("Read timed out.", "/v/requests/adapters.py", True, False),
        ("got an unexpected keyword argument 'timeout'", "/home/me/train.py", True, False),
        ("Timed out waiting 6000ms", "/v/torch/x.py", False, False),
        ("Connection closed by peer", "/v/torch/x.py", True, False),
    ],
)
def test_time_limits_are_those_of_torch(tmp_path, message, file, main, struck):
    rank = watched(tmp_path, os.getpid())
    frames = [StackFrame("wait", file, 1)]
    raised = Raised(clock(), "RuntimeError", message, frames, main=main)
    with (rank.folder / files.EXCEPTIONS.name).open("ab") as lines:
        lines.write(msgspec.json.encode(raised) + b'\n{"at": {')
    ends = RankEnds(tmp_path, lambda *what: None)
    ends.look_for_timeouts([rank])
    assert (ends.gave_up is not None) == struck


def thread(*functions: str, main: bool = True, file: str = "train.py") -> ThreadStack:
    return ThreadStack([StackFrame(f, file, 1) for f in functions], main=main)


def test_position_is_that_of_user_functions():
    def user(file: str) -> bool:
        return file == "train.py"

    stuck = ThreadStack(
        [StackFrame("wait", "lib.py", 3), StackFrame("train", "train.py", 7)], main=True
    )
    later = ThreadStack(
        [StackFrame("poll", "lib.py", 9), StackFrame("train", "train.py", 8)], main=True
    )
    assert position([stuck], user) == position([later], user)
    assert position([thread("a")], user) != position([thread("b")], user)
    library = thread("x", main=False, file="lib.py")
    assert position([stuck, library], user) == position([stuck], user)
    assert position([thread("x", file="lib.py")], user) != frozenset()
