"""Leases: never two holders, first come first served, and free again however a holder ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conditions import PATIENCE_S

from hanglab.harness.leases.pool import LeasePool, PoolTooSmall, ResourceKind
from hanglab.harness.leases.ports import port_pool
from hanglab.harness.leases.slots import CpuSlots

PROGRAMS = Path(__file__).with_name("programs")
THING = ResourceKind("thing", "thing", "things")
HOLDER = """
import sys, threading
from pathlib import Path
from hanglab.harness.leases.slots import CpuSlots
with CpuSlots(Path(sys.argv[1]), 1).lease(threading.Event(), purpose="a test's job") as slot:
    print(slot, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the only slot."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        yield process
    finally:
        process.kill()
        process.communicate()


class Waiter:
    """Waits for things in a thread of its own."""

    def __init__(self, pool: LeasePool, count: int) -> None:
        self.told: list[str] = []
        self.waits = threading.Event()
        self.got = threading.Event()
        self.stop = threading.Event()
        self.release = threading.Event()
        self.names: tuple[str, ...] | None = None
        self.thread = threading.Thread(target=self._run, args=(pool, count))
        self.thread.start()

    def _run(self, pool: LeasePool, count: int) -> None:
        with pool.lease(count, self.stop, self._tell) as self.names:
            self.got.set()
            assert self.release.wait(280)

    def _tell(self, reason: str) -> None:
        self.told.append(reason)
        self.waits.set()

    def end(self) -> None:
        self.release.set()
        self.stop.set()
        self.thread.join(280)


def test_every_slot_has_one_holder(tmp_path: Path) -> None:
    slots = CpuSlots(tmp_path, 2)
    stop = threading.Event()
    told: list[str] = []

    def tell(reason: str) -> None:
        told.append(reason)
        stop.set()

    with slots.lease(stop, purpose="one") as first, slots.lease(stop, purpose="two") as second:
        assert {first, second} == {0, 1}
        with slots.lease(stop, tell) as third:
            assert third is None
    pid = os.getpid()
    assert told == [
        f"waiting for 1 slot for a job: held by one of process {pid}, two of process {pid}"
    ]
    with slots.lease(threading.Event()) as again:
        assert again == 0


def test_a_killed_holder_frees_its_slot(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        pool = CpuSlots(tmp_path, 1)
        waits, got = threading.Event(), []

        def wait() -> None:
            with pool.lease(threading.Event(), lambda reason: waits.set()) as slot:
                got.append(slot)

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert waits.wait(280)
        assert not got
        process.kill()
        waiter.join(280)
        assert got == [0]


def test_a_killed_holder_frees_its_slot_although_its_forked_child_lives(tmp_path: Path) -> None:
    """Locks belong to open files, and a forked child shares those."""
    code = HOLDER.replace(
        "    print", "    import os, time\n    os.fork() or time.sleep(60)\n    print"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    child = 0
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        child = int(children.read_text().split()[0])
        process.kill()
        process.wait()
        assert Path(f"/proc/{child}").exists()
        stop = threading.Event()
        limit = threading.Timer(PATIENCE_S, stop.set)
        limit.start()
        with CpuSlots(tmp_path, 1).lease(stop) as slot:
            assert slot == 0
        limit.cancel()
    finally:
        process.kill()
        process.wait()
        if child:
            os.kill(child, 9)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def test_who_wants_much_is_not_overtaken(tmp_path: Path) -> None:
    """One thing is free all the time, yet who came later does not get it first."""
    pool = LeasePool(tmp_path, THING, ["a", "b"])
    stop = threading.Event()
    waiters: list[Waiter] = []
    with pool.lease(1, stop, purpose="long"):
        try:
            waiters.append(Waiter(pool, 2))
            assert waiters[0].waits.wait(280)
            assert waiters[0].told == ["waiting for 2 things: 1 of 2 free"]
            waiters.append(Waiter(pool, 1))
            assert waiters[1].waits.wait(280)
            assert waiters[1].told == ["waiting for 1 thing: 1 ahead in line"]
            assert not waiters[1].got.is_set()
        except BaseException:
            for waiter in waiters:
                waiter.end()
            raise
    try:
        assert waiters[0].got.wait(280)
        assert not waiters[1].got.is_set()
        waiters[0].end()
        assert waiters[1].got.wait(280)
    finally:
        for waiter in waiters:
            waiter.end()


def test_who_gives_up_leaves_the_line(tmp_path: Path) -> None:
    pool = LeasePool(tmp_path, THING, ["a"])
    with pool.lease(1, threading.Event()):
        first, second = Waiter(pool, 1), None
        try:
            assert first.waits.wait(280)
            second = Waiter(pool, 1)
            assert second.waits.wait(280)
            first.end()
            assert first.names is None
        finally:
            first.end()
    assert second is not None
    try:
        assert second.got.wait(PATIENCE_S)
    finally:
        second.end()
    assert not list(tmp_path.glob("*.ticket"))


def test_more_than_the_pool_has_is_refused_with_the_number(tmp_path: Path) -> None:
    pool = LeasePool(tmp_path, THING, ["a", "b"])
    refused = pytest.raises(PoolTooSmall, match="3 things asked for, but the pool has 2")
    with refused, pool.lease(3, threading.Event()):
        pass


def test_a_port_that_a_stranger_uses_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            free = other.getsockname()[1]
        with port_pool(tmp_path, [taken, free]).lease(1, threading.Event()) as names:
            assert names == (str(free),)


@pytest.mark.parametrize(
    ("cycles", "kills"), [(200, 12), pytest.param(1000, 60, marks=pytest.mark.long)]
)
def test_many_cycles_of_sixteen_processes_with_random_kills(
    tmp_path: Path, cycles: int, kills: int
) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAMS / "lease_program.py", tmp_path, "16", str(cycles), str(kills)],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    counts = json.loads(done.stdout)
    assert counts["doubles"] == ""
    assert counts["cycles"] >= cycles
    assert counts["kills"] == kills
    # No lease was lost: everything can be had at once, and nobody stands in line.
    pool = LeasePool(tmp_path / "leases", THING, ["a", "b", "c", "d"])
    stop = threading.Event()
    limit = threading.Timer(PATIENCE_S, stop.set)
    limit.start()
    with pool.lease(4, stop) as names:
        assert names == ("a", "b", "c", "d")
    limit.cancel()
    assert not list((tmp_path / "leases").glob("*.ticket"))
