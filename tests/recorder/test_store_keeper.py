"""A rank that keeps the job's store answers its peers; that is no movement of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case.records import Clock, Python, RankProcess
from hanglab.recorder.system import procfs

#: Waits for a second rank that never comes, and asks its own store for it all the time.
KEEPER = """
from datetime import timedelta
import torch.distributed as dist
print("up", flush=True)
dist.TCPStore("127.0.0.1", 0, 2, True, timedelta(seconds=120))
"""
#: The same while another thread of the rank writes a file.
WRITER = """
import threading, time
def write():
    with open("/dev/null", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096)); time.sleep(0.02)
threading.Thread(target=write, daemon=True).start()
"""


@contextmanager
def watched(program: str, folder: Path) -> Iterator[WatchedRank]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        wait_for(lambda: procfs.store_threads(process.pid), "the store's thread")
        at = Clock(1, 1)
        yield WatchedRank(folder, RankProcess(process.pid, 0, 2, at, Python("3.11")))
    finally:
        process.kill()
        process.communicate()


def movements(rank: WatchedRank, looks: int) -> int:
    """How many of so many looks, after a few to get to know it, saw it move."""
    for _ in range(10):
        rank.look(0.05, learn=False)
        time.sleep(0.05)
    count = 0
    for _ in range(looks):
        count += rank.look(0.05, learn=False)
        time.sleep(0.05)
    return count


@pytest.mark.slow
def test_a_rank_that_only_answers_at_its_store_rests(tmp_path: Path) -> None:
    with watched(KEEPER, tmp_path) as rank:
        before = procfs.io_bytes(rank.pid)
        assert movements(rank, 30) == 0
        assert procfs.io_bytes(rank.pid) != before  # although it was asked


@pytest.mark.slow
def test_a_rank_that_keeps_the_store_and_writes_a_file_moves(tmp_path: Path) -> None:
    with watched(WRITER + KEEPER, tmp_path) as rank:
        assert movements(rank, 30) >= 15
