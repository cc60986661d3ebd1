"""That the recorder looks at a job is no movement of the job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conditions import wait_for
from recorder_support import PROGRAMS, Agent, play_rank, short_folder

#: Longer than what lies between two samples of the host.
HANG_AFTER = 2.5
#: The server hands out pieces of so many bytes, one in so many seconds.
PIECE, PACE = 128 * 1024, 0.1

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Start]:
    """A process that reads what a child of its own serves."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("to serve a file system takes root and /dev/fuse: run as root, modprobe fuse")
    started = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAMS / "served_program.py"), *arguments]
        variables = {**os.environ, "TMPDIR": str(tmp_path)}  # it mounts what it cannot remove
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=variables)
        started.append(child)
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            pytest.skip("no file system can be mounted here: run where mount(2) is allowed")
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[int], Agent]]:
    """Start an agent that watches a process as rank 0."""
    agents = []
    with short_folder() as runtime:

        def start(pid: int) -> Agent:
            case = tmp_path / "case"
            play_rank(case, pid)
            agent = Agent(case, runtime, "--hang-after", str(HANG_AFTER))
            agents.append(agent)
            agent.wait("rank")
            return agent

        yield start
        for agent in agents:
            agent.close()


def test_questions_to_a_file_server_below_a_rank_are_no_movement(reader, watch):
    agent = watch(reader().pid)
    captured = agent.wait("captured")
    assert captured["trigger"]["kind"] == "no_progress"
    agent.finish()


@pytest.mark.slow
def test_data_that_a_file_server_hands_to_a_rank_is_movement(reader, watch):
    pid = reader(str(PACE)).pid
    agent = watch(pid)
    (server,) = psutil.Process(pid).children()
    enough = server.io_counters().write_chars + 3 * HANG_AFTER / PACE * PIECE
    wait_for(lambda: server.io_counters().write_chars > enough, "three thresholds of data")
    agent.tell(command="capture", kind="request")
    captured = agent.wait("captured")
    assert captured["trigger"]["kind"] == "request"
    assert captured["trigger"]["quiet_s"] < HANG_AFTER
    agent.finish()
