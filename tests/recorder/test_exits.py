"""How ranks ended, learnt of processes that are somebody else's children."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conditions import PATIENCE_S, wait_for

from hanglab.recorder.agent.exits import ExitWatch
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case.records import Clock, Python, RankProcess
from hanglab.recorder.rank.reaped_exits import NAME, note_exit

LINUX = tuple(int(part) for part in os.uname().release.split(".")[:2])

#: Starts a child that ends as it is told to, and collects it at once, as a shell does.
PARENT = """
import os, signal, sys
child = os.fork()
if child == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    print(os.getpid(), flush=True)
    signal.sigwait({signal.SIGUSR1})
    how = sys.argv[1]
    os.kill(os.getpid(), signal.SIGKILL) if how == "killed" else os._exit(int(how))
os.waitpid(child, 0)
print("collected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def collected(tmp_path: Path):
    """``collected(how)``: parent and rank, of which the rank waits to be told to end."""
    parents = []

    def start(how: str) -> tuple[subprocess.Popen[str], WatchedRank]:
        parent = subprocess.Popen(
            [sys.executable, "-I", "-c", PARENT, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        parents.append(parent)
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        return parent, watched(tmp_path, pid)

    yield start
    for parent in parents:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.close()
        parent.wait(PATIENCE_S)
        parent.stdout.close()


def watched(folder: Path, pid: int) -> WatchedRank:
    process = RankProcess(pid, 0, 1, Clock(wall_ns=1, mono_ns=1), Python("3"))
    return WatchedRank(folder, process)


@pytest.mark.skipif(LINUX < (6, 15), reason="Linux 6.15 keeps the status with a descriptor")
@pytest.mark.parametrize(
    ("how", "status"), [("7", 7 << 8), ("0", 0), ("killed", int(signal.SIGKILL))]
)
def test_status_that_the_parent_collected_first(collected, tmp_path, how, status):
    parent, rank = collected(how)
    watch = ExitWatch(tmp_path)
    watch.add(rank)
    (descriptor,) = watch.descriptors
    try:
        watch.read([rank])
        assert rank.seen_status is None
        os.kill(rank.pid, signal.SIGUSR1)
        assert parent.stdout.readline() == "collected\n"
        assert select.select([descriptor], [], [], PATIENCE_S)[0]
        watch.notice(descriptor)
        assert rank.stat() is None and watch.descriptors == []
        watch.read([rank])
        assert rank.seen_status == status
    finally:
        watch.close()


def test_status_of_a_zombie_also_where_it_is_zero(tmp_path):
    process = subprocess.Popen(["sleep", "0"])
    rank = watched(tmp_path, process.pid)
    watch = ExitWatch(tmp_path)
    watch.add(rank)
    try:
        wait_for(lambda: getattr(rank.stat(), "state", "") == "Z", "the process to end")
        (descriptor,) = watch.descriptors
        watch.notice(descriptor)
        assert rank.seen_status == 0
    finally:
        watch.close()
        process.wait(PATIENCE_S)


def test_launcher_tells_before_the_rank_is_found(collected, tmp_path):
    parent, rank = collected("7")
    watch = ExitWatch(tmp_path)
    try:
        os.kill(rank.pid, signal.SIGUSR1)
        assert parent.stdout.readline() == "collected\n"
        note_exit(tmp_path / NAME, rank.pid, 7 << 8)
        watch.read([])
        watch.read([rank])
        assert rank.seen_status == 7 << 8
    finally:
        watch.close()
