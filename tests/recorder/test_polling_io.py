"""What a rank says while it polls is no movement, nor what its other threads do beside it."""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.recorder.agent.io_bytes import IoBytes
from hanglab.recorder.system import procfs

#: Writes or reads as many bytes as it is told by mapped memory, for which it calls nothing.
PROGRAM = """
import mmap, os, struct, sys, threading, time
out = open(sys.argv[1], "w+b", buffering=0)
out.write(b"x" * 100)
told = mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 16)
def obey(mine):
    while True:
        who, number = struct.unpack("qq", told)
        if who == mine[0]:
            out.write(b"x" * number)
        elif who in mine:
            os.pread(out.fileno(), number, 0)
        if who in mine:
            told[:8] = bytes(8)
        time.sleep(0.002)
threading.Thread(target=obey, args=((3,),), daemon=True).start()
obey((1, 2))
"""
#: Who does it: what the main thread writes, and reads, and what another one writes.
SAYS, READS, OTHER = 1, 2, 3


class Worker:
    """The program, and the memory by which it is told."""

    def __init__(self, pid: int, memory: mmap.mmap) -> None:
        self.pid = pid
        self._memory = memory

    def do(self, who: int, number: int) -> None:
        self._memory[:] = struct.pack("qq", who, number)
        wait_for(lambda: self._memory[:8] == bytes(8), "the program to obey")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    control = tmp_path / "control"
    control.write_bytes(bytes(16))
    with control.open("r+b") as file, mmap.mmap(file.fileno(), 16) as memory:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "out"), str(control)]
        with subprocess.Popen(command) as process:
            found = Worker(process.pid, memory)
            for who in (SAYS, READS, OTHER):
                found.do(who, 1)
            yield found
            process.kill()


@pytest.mark.parametrize(
    ("polling", "who", "number", "moved"),
    [
        (False, SAYS, 60, True),
        (True, SAYS, 60, False),
        (True, SAYS, 100_000, True),
        (True, READS, 60, True),
        (True, OTHER, 60, True),
    ],
)
def test_lines_of_a_main_thread_that_polls_are_no_movement(
    worker: Worker, polling: bool, who: int, number: int, moved: bool
) -> None:
    traffic = IoBytes(worker.pid)
    assert not traffic.moved([], polling)
    assert not traffic.moved([], polling)
    for _ in range(2):
        worker.do(who, number)
        assert traffic.moved([], polling) is moved


@pytest.mark.parametrize(
    ("who", "number", "talks"),
    [(OTHER, 60, True), (OTHER, 100_000, False), (SAYS, 60, False), (READS, 60, False)],
)
def test_little_that_others_than_the_main_thread_write_is_a_log(
    worker: Worker, who: int, number: int, talks: bool
) -> None:
    traffic = IoBytes(worker.pid)
    assert not traffic.moved([])
    assert not traffic.talks
    for _ in range(2):
        worker.do(who, number)
        assert traffic.moved([])
        assert traffic.talks is talks
    assert not traffic.moved([])
    assert not traffic.talks


@pytest.mark.parametrize(
    ("who", "idle", "polling", "moved"),
    [
        (OTHER, True, False, False),  # it logs while the main thread is in an operation
        (OTHER, False, False, True),  # a backend's thread carries the operation's data
        (SAYS, True, False, True),
        (SAYS, True, True, False),
        (READS, True, True, True),
    ],
)
def test_in_an_operation_threads_of_python_besides_the_main_one_are_no_movement(
    worker: Worker, who: int, idle: bool, polling: bool, moved: bool
) -> None:
    others = [tid for tid in procfs.threads(worker.pid) if tid != worker.pid]
    assert len(others) == 1
    traffic = IoBytes(worker.pid)
    assert not traffic.moved([], polling, others if idle else ())
    for _ in range(2):
        worker.do(who, 60)
        assert traffic.moved([], polling, others if idle else ()) is moved
    worker.do(OTHER, 60)
    assert not traffic.moved([], polling)  # it compares with nothing: it is over
    worker.do(OTHER, 60)
    assert traffic.moved([], polling)


def test_in_an_operation_processes_below_are_no_movement(worker: Worker) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as below:
        assert below.stdin is not None and below.stdout is not None

        def passes_on() -> None:
            """It has read, and written, a line once that is here."""
            below.stdin.write(b"a line\n")
            below.stdin.flush()
            assert below.stdout.readline() == b"a line\n"

        traffic = IoBytes(worker.pid)
        passes_on()
        for idle, moved in ((None, True), ((), False)):
            assert not traffic.moved([below.pid], False, idle)
            for _ in range(2):
                passes_on()
                assert traffic.moved([below.pid], False, idle) is moved
        below.stdin.close()


def test_the_first_look_after_it_began_or_ended_to_poll_compares_with_nothing(
    worker: Worker,
) -> None:
    traffic = IoBytes(worker.pid)
    assert not traffic.moved([], False)
    for polling in (True, False):
        worker.do(OTHER, 60)
        assert not traffic.moved([], polling)
        worker.do(OTHER, 60)
        assert traffic.moved([], polling)
