"""A rank that waits for a processor has no chance to move, and is not at rest."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from recorder_support import play_rank, short_folder

from hanglab.recorder.agent.progress_watch import POLL, Watcher
from hanglab.recorder.case import folders
from hanglab.recorder.system import procfs

HANG_AFTER = 0.3
SPIN = "while True: pass"
SLEEP = "import time; time.sleep(600)"

Start = Callable[[str, int], int]
Done = Callable[[Watcher, int], bool]


def _is_up(pid: int, program: str) -> bool:
    """True once the interpreter's own start lies behind it: it reads files, which is movement."""
    stat = procfs.stat(pid)
    assert stat is not None
    return stat.cpu_s > 0.3 if program == SPIN else "nanosleep" in procfs.wchan(pid)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program, on one processor that all share; the policy is for when it runs."""
    children = []
    processor = min(os.sched_getaffinity(0))

    def begin(program: str, policy: int) -> int:
        child = subprocess.Popen([sys.executable, "-S", "-c", program])
        children.append(child)
        os.sched_setaffinity(child.pid, {processor})
        wait_for(lambda: _is_up(child.pid, program), "the program to run")
        os.sched_setscheduler(child.pid, policy, os.sched_param(0))
        return child.pid

    yield begin
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[int, Done], Watcher]]:
    """Look at a process as rank 0 until this is true of the watcher and the number of looks."""
    with short_folder() as runtime:
        watchers = []

        def look(pid: int, done: Done) -> Watcher:
            host = folders.host_folder(tmp_path / "case", os.uname().nodename)
            play_rank(tmp_path / "case", pid)
            watcher = Watcher(host, runtime, HANG_AFTER)
            watchers.append(watcher)
            watcher.discover()
            looks = 0

            def finished() -> bool:
                nonlocal looks
                looks += 1
                time.sleep(POLL)
                watcher.look()
                return done(watcher, looks)

            wait_for(finished, "the looks to end")
            return watcher

        yield look
        for watcher in watchers:
            watcher.close()


def test_a_rank_kept_from_the_processor_is_not_at_rest(start: Start, watch) -> None:
    """The scheduler gives an idle task some 3 of 1,000 parts beside another that always runs."""
    start(SPIN, os.SCHED_OTHER)
    rank = start(SPIN, os.SCHED_IDLE)
    # A look counts for up to twice the pause before it, and 3 s of waiting are forgiven.
    assert watch(rank, lambda watcher, looks: looks == 25).quiet_s < 0.5


def test_waiting_for_a_processor_is_forgiven_for_so_long_only(start: Start, watch) -> None:
    start(SPIN, os.SCHED_OTHER)
    rank = start(SPIN, os.SCHED_IDLE)
    watch(rank, lambda watcher, looks: watcher.quiet_s > 1.0)


def test_a_rank_that_sleeps_is_at_rest_beside_one_that_runs(start: Start, watch) -> None:
    start(SPIN, os.SCHED_OTHER)
    rank = start(SLEEP, os.SCHED_OTHER)
    assert watch(rank, lambda watcher, looks: looks == 25).quiet_s > 1.0
