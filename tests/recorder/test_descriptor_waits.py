"""Calls that processes are blocked in, their descriptors, and who has the other ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from conditions import wait_for

from hanglab.recorder.system import other_ends
from hanglab.recorder.system.blocked_calls import BlockedCall, blocked_call
from hanglab.recorder.system.tcp_info import NoSockets, in_namespace_of

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with some lines and inherited descriptors."""
    children = []

    def begin(lines: str, *descriptors: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", "-c", lines]
        children.append(subprocess.Popen(command, pass_fds=descriptors))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.wait()


def blocked(pid: int, *descriptors: int) -> BlockedCall:
    """The call in which the process waits for just these descriptors."""

    def there() -> BlockedCall | None:
        call = blocked_call(pid, pid)
        return call if call is not None and set(call.descriptors) == set(descriptors) else None

    found = wait_for(there, f"process {pid} to wait for {descriptors}")
    assert isinstance(found, BlockedCall)
    return found


@pytest.mark.parametrize(
    "lines",
    [
        "import os; os.read({0}, 1)",
        "import select; select.select([{0}], [], [])",
        "import select; p = select.poll(); p.register({0}, select.POLLIN); p.poll()",
        "import select; e = select.epoll(); e.register({0}, select.EPOLLIN); e.poll()",
    ],
    ids=["read", "select", "poll", "epoll"],
)
def test_a_reader_of_a_pipe_waits_for_who_has_the_other_end(start: Start, lines: str) -> None:
    reading, writing = os.pipe()
    try:
        reader = start(lines.format(reading), reading)
        writer = start(f"import os; os.read({reading}, 1)", writing, reading)
        bystander = start("import time; time.sleep(600)")
        blocked(reader.pid, reading)
        blocked(writer.pid, reading)
        pipe = other_ends.target(reader.pid, reading)
        assert pipe[0] == "pipe"
        pids = [reader.pid, writer.pid, bystander.pid]
        held = other_ends.holders([pipe], pids)[pipe]
        assert {pid for pid, number in held if other_ends.writes(pid, number)} == {writer.pid}
    finally:
        os.close(reading)
        os.close(writing)


def test_any_of_several_descriptors_may_end_a_call(start: Start) -> None:
    first, second = os.pipe(), os.pipe()
    try:
        lines = f"import select; select.select([{first[0]}, {second[0]}], [], [])"
        waiter = start(lines, first[0], second[0])
        assert len(blocked(waiter.pid, first[0], second[0]).descriptors) == 2
    finally:
        for descriptor in (*first, *second):
            os.close(descriptor)


def test_the_peer_of_a_unix_socket(start: Start) -> None:
    import socket

    mine, theirs = socket.socketpair()
    with mine, theirs:
        number = theirs.fileno()
        child = start(f"import socket; socket.socket(fileno={number}).recv(1)", number)
        blocked(child.pid, number)
        try:
            with contextlib.closing(in_namespace_of(child.pid)) as sock:
                peers = other_ends.unix_peers(sock)
        except (NoSockets, OSError) as reason:
            pytest.skip(str(reason))
        here = other_ends.target(os.getpid(), mine.fileno())
        there = other_ends.target(child.pid, number)
        assert peers[there[1]] == here[1] and peers[here[1]] == there[1]


def test_who_computes_or_sleeps_waits_for_no_descriptor(start: Start) -> None:
    child = start("import time; time.sleep(600)")
    wait_for(lambda: "nanosleep" in open(f"/proc/{child.pid}/wchan").read(), "the child to sleep")
    assert blocked_call(child.pid, child.pid) is None
