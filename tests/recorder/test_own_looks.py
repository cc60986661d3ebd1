"""That the recorder looks at a job is no movement of the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recorder_support import PROGRAMS, Agent, short_folder

from hanglab.recorder.case import folders
from hanglab.recorder.rank import process
from hanglab.recorder.rank.progress_file import ProgressFile

#: Longer than what lies between two samples of the host.
HANG_AFTER = 2.5

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def reader() -> Iterator[Start]:
    """A process that reads what a child of its own serves."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("to serve a file system takes root and /dev/fuse")
    started = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAMS / "served_program.py"), *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            pytest.skip("no file system can be served here")
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
            folder = folders.make_private(folders.rank_folder(case, os.uname().nodename, 0))
            progress = ProgressFile(folder / folders.PROGRESS)
            progress.identify(0, 0, 1)
            progress.counters([(0, 1, 1)])
            description = {**process.description(0, 1, 0, 0), "pid": pid}
            folders.write_whole(folder / folders.PROCESS, json.dumps(description).encode())
            agent = Agent(case, runtime, "--hang-after", str(HANG_AFTER))
            agents.append(agent)
            agent.wait("rank")
            return agent

        yield start
        for agent in agents:
            agent.close()


def test_questions_to_a_file_server_below_a_rank_are_no_movement(reader, watch):
    agent = watch(reader().pid)
    captured = agent.wait("captured", patience=20)
    assert captured["trigger"]["kind"] == "no_progress"
    agent.finish()


def test_data_that_a_file_server_hands_to_a_rank_is_movement(reader, watch):
    agent = watch(reader("0.1").pid)
    time.sleep(3 * HANG_AFTER)
    agent.tell(command="capture", kind="request")
    captured = agent.wait("captured")
    assert captured["trigger"]["kind"] == "request"
    assert captured["trigger"]["quiet_s"] < HANG_AFTER
    agent.finish()
