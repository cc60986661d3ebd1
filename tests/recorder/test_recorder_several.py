"""An agent that is one of several: it heeds ranks on other hosts, and leaves the decision."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from recorder_support import Agent, short_folder

from hanglab.recorder.agent.remote_ranks import RemoteRanks
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.rank import process
from hanglab.recorder.rank.progress_file import ProgressFile


def play_rank(case: Path, host: str, rank: int, pid: int) -> ProgressFile:
    """Register a process as a rank of some host that has entered an operation."""
    folder = folders.make_private(folders.rank_folder(case, host, rank))
    progress = ProgressFile(folder / files.PROGRESS.name)
    progress.identify(rank, 0, 2)
    progress.counters([(0, 1, 1)])
    description = {**process.description(rank, 2, 0, 0), "pid": pid}
    folders.write_whole(folder / files.PROCESS.name, json.dumps(description).encode())
    return progress


@pytest.fixture
def sleeper() -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def agent(tmp_path: Path, sleeper: int) -> Iterator[Agent]:
    import socket

    play_rank(tmp_path, socket.gethostname(), 0, sleeper)
    with short_folder() as runtime:
        made = Agent(tmp_path, runtime, "--hang-after", "0.5", "--world-size", "2", "--several")
        made.wait("rank")
        yield made
        made.close()


def test_ranks_elsewhere_are_seen_to_move(tmp_path: Path) -> None:
    elsewhere = RemoteRanks(tmp_path / folders.HOSTS, "here")
    assert not elsewhere.moved()
    own = play_rank(tmp_path, "here", 0, 1)
    assert not elsewhere.moved() and not elsewhere.begun
    other = play_rank(tmp_path, "there", 1, 1)
    wait_for(elsewhere.moved, "the other host's rank")
    assert elsewhere.begun
    elsewhere.moved()
    assert not elsewhere.moved()
    own.step(None)
    assert not elsewhere.moved()
    other.step(None)
    assert elsewhere.moved()
    assert not elsewhere.moved()
    elsewhere.close()


def test_it_rests_when_all_do_and_waits_for_an_order(
    tmp_path: Path, agent: Agent, sleeper: int
) -> None:
    other = play_rank(tmp_path, "elsewhere", 1, 1)
    pause = threading.Event()
    for _ in range(20):  # four times the threshold
        pause.wait(0.1)
        other.step(None)
    assert "due" not in {told["event"] for told in agent.events}
    due = agent.wait("due")
    assert due["kind"] == "no_progress" and due["quiet_s"] >= 0.5
    other.step(None)
    agent.wait("undue")
    agent.tell(command="failure", detail="rank 1 was ended by SIGKILL")
    due = agent.wait("due")
    assert (due["kind"], due["detail"]) == ("exit", "rank 1 was ended by SIGKILL")
    assert "captured" not in {told["event"] for told in agent.events}
    agent.tell(command="capture", kind="exit", detail="asked for")
    assert agent.wait("captured")["trigger"]["kind"] == "exit"
    absent = agent.finish()["absent"]
    assert ("flight_recorder.pickle", 0) in {(one["what"], one["rank"]) for one in absent}
    # That is for whoever commands them all.
    assert not (tmp_path / files.JOB.name).exists()
    assert not (tmp_path / folders.MANIFEST).exists()
    assert (next(tmp_path.glob("hosts/*/ranks/0.0")) / files.STACKS.name).exists()


def test_one_that_is_joined_by_others_leaves_the_decision(tmp_path: Path, sleeper: int) -> None:
    import socket

    play_rank(tmp_path, socket.gethostname(), 0, sleeper)
    with short_folder() as runtime:
        agent = Agent(tmp_path, runtime, "--hang-after", "0.5")
        try:
            assert (
                agent.wait("ready")["host"]
                == folders.host_folder(tmp_path, socket.gethostname()).name
            )
            agent.tell(command="several")
            assert agent.wait("alive")["ranks"] == 1
            assert agent.wait("due")["kind"] == "no_progress"
            agent.tell(command="capture", kind="no_progress", detail="")
            assert agent.wait("captured")["trigger"]["kind"] == "no_progress"
            agent.tell(command="forget")
            stacks = next(tmp_path.glob("hosts/*/ranks/0.0")) / files.STACKS.name
            wait_for(lambda: not stacks.exists(), "what was captured to be dropped")
            agent._process.send_signal(signal.SIGTERM)
            agent.wait("asked_to_end")
            agent.finish()
            assert not (tmp_path / files.JOB.name).exists()
        finally:
            agent.close()


def test_one_that_does_not_see_the_case_says_so(tmp_path: Path) -> None:
    with short_folder() as runtime:
        agent = Agent(tmp_path / "elsewhere", runtime, "--several", "--beside", "first")
        agent.wait("not_shared")
        assert agent._process.wait(60) == 0
        agent.close()
    assert not (tmp_path / "elsewhere" / folders.HOSTS).exists()


def test_ranks_of_earlier_attempts_are_not_looked_at(tmp_path: Path, sleeper: int) -> None:
    import socket

    play_rank(tmp_path, socket.gethostname(), 0, 1 << 22)
    with short_folder() as runtime:
        agent = Agent(tmp_path, runtime, "--several", "--unaided", "--first-attempt", "1")
        assert agent.wait("alive")["ranks"] == 0
        folder = next(tmp_path.glob("hosts/*/ranks"))
        play_rank(tmp_path, socket.gethostname(), 1, sleeper)
        (folder / "1.0").rename(folder / "1.1")
        assert agent.wait("rank")["rank"] == 1
        agent.finish()
        agent.close()
    assert not (folder / "0.0" / files.EXIT.name).exists()
