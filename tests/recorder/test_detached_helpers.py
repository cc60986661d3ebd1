"""A process that a rank started and that detached has the rank's variables, and is no rank."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from recorder_support import Agent, play_rank, short_folder

from hanglab.recorder.agent import unregistered_ranks
from hanglab.recorder.agent.capture import Capture
from hanglab.recorder.agent.progress_watch import Watcher
from hanglab.recorder.agent.torch_dumps import TorchDumps
from hanglab.recorder.agent.unregistered_ranks import UnregisteredRanks
from hanglab.recorder.case import folders
from hanglab.recorder.system import procfs

HELPER = "import time; time.sleep(600)"

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process in a session of its own that has the variables of a rank."""
    children = []

    def begin(rank: int = 0, **variables: str) -> int:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", HELPER],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "1", **variables},
            start_new_session=True,
        )
        children.append(child)
        # Popen returns from within execve, an instant before the kernel shows the new variables.
        wait_for(lambda: procfs.environment(child.pid).get("RANK") == str(rank), "its variables")
        return child.pid

    yield begin
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[UnregisteredRanks, Watcher]]:
    """What looks for ranks below this process, and the watcher that it tells."""
    case = tmp_path / "case"
    host = folders.host_folder(case, os.uname().nodename)
    with short_folder() as runtime:
        watcher = Watcher(host, runtime, 30.0)
        capture = Capture(host.name, runtime, TorchDumps(None, None))
        yield UnregisteredRanks(case, host.name, os.getpid(), capture), watcher
        watcher.close()


@pytest.fixture(autouse=True)
def grow_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """All processes are young until this is called."""
    monkeypatch.setattr(unregistered_ranks, "_GROWN_UP", float("inf"))
    return lambda: monkeypatch.setattr(unregistered_ranks, "_GROWN_UP", 0.0)


def found(scene: tuple[UnregisteredRanks, Watcher]) -> list[int]:
    unregistered, watcher = scene
    unregistered._last = float("-inf")
    return [rank.pid for rank in unregistered.look(watcher)]


def test_a_helper_of_a_rank_that_lives_is_none_nor_when_it_has_ended(
    scene, start, grow_up, tmp_path
):
    rank = start()
    play_rank(tmp_path / "case", rank)
    scene[1].discover()
    helper, next_attempt, other = start(), start(TORCHELASTIC_RESTART_COUNT="1"), start(1)
    assert found(scene) == []
    grow_up()
    assert sorted(found(scene)) == sorted([next_attempt, other])
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank, signal.SIGKILL)
    wait_for(lambda: scene[1].ranks[0].stat().state == "Z", "the rank to end")
    assert found(scene) == []
    assert helper not in {watched.pid for watched in scene[1].ranks}


def test_a_helper_of_a_recorded_rank_says_so_itself(scene, start, grow_up):
    start(HANGLAB_RANK_PID="1")
    rank = start(1)
    grow_up()
    assert found(scene) == [rank]


def test_a_helper_that_starts_up_keeps_no_hang_from_being_seen(scene, start, tmp_path):
    play_rank(tmp_path / "case", start())
    scene[1].discover()
    scene[1].quiet_s = 3.0
    start()
    assert found(scene) == []
    assert scene[1].quiet_s == 3.0
    start(1)
    assert found(scene) == []
    assert scene[1].quiet_s == 0.0


def test_the_agent_does_not_attach_to_it(start, tmp_path):
    rank = start()
    helper = start()
    play_rank(tmp_path / "case", rank)
    with short_folder() as runtime:
        agent = Agent(tmp_path / "case", runtime, "--hang-after", "30")
        try:
            assert agent.wait("rank")["pid"] == rank
            agent.tell(command="tree", pid=os.getpid())
            other = start(1)
            assert agent.wait("rank")["pid"] == other
            assert helper != other
            agent.finish()
        finally:
            agent.close()
    ranks = {path.name for path in (tmp_path / "case" / "hosts").glob("*/ranks/*")}
    assert ranks == {"0.0", "1.0"}
