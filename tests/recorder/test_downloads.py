"""Data over TCP from or to somebody outside the job is movement; nothing else there is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from recorder_support import Agent, play_rank, short_folder

from hanglab.recorder.agent.external_traffic import Downloads, RankProcesses, Transfer, is_data
from hanglab.recorder.system.tcp_info import NoSockets, in_namespace_of

HANG_AFTER = 4.0
NOTHING = Transfer(0, 0)
#: Seconds in which steady data is seen.
SEEN_WITHIN = 5.0

#: Sends so many bytes to whoever calls, again and again after so many seconds.
SERVER = """
import socket, sys, time
size, pace = int(sys.argv[1]), float(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
while True:
    connection.sendall(bytes(size)); time.sleep(pace)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while connection.recv(65536): pass
"""
#: Two sockets of one process, which listened only until the other had called.
TALKER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname())
other, _ = listener.accept()
listener.close()
print("ready", flush=True)
while True:
    one.sendall(b"?" * 40); other.recv(100); other.sendall(b"!" * 60); one.recv(100)
    time.sleep(0.005)
"""

Start = Callable[..., tuple[int, str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program; its process id and the first line that it prints."""
    try:
        in_namespace_of(os.getpid()).close()
    except NoSockets as reason:
        pytest.skip(f"{reason}: run where the kernel answers NETLINK_SOCK_DIAG")
    children = []

    def begin(program: str, *arguments: object) -> tuple[int, str]:
        command = [sys.executable, "-S", "-c", program, *map(str, arguments)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        return child.pid, child.stdout.readline().strip()

    yield begin
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[int], Agent]]:
    """Start an agent that watches a process as rank 0."""
    agents = []
    with short_folder() as runtime:

        def begin(pid: int) -> Agent:
            play_rank(tmp_path / "case", pid)
            agent = Agent(tmp_path / "case", runtime, "--hang-after", str(HANG_AFTER))
            agents.append(agent)
            agent.wait("rank")
            return agent

        yield begin
        for agent in agents:
            agent.close()


def seen_to_move(*families: RankProcesses) -> list[int]:
    """Process ids at the first look at which any are seen to move."""
    downloads = Downloads()
    found: list[int] = wait_for(lambda: downloads.moved(families), "data to be seen")
    return found


def movements(*families: RankProcesses) -> list[list[int]]:
    """What was seen to move at each look, until data would have been."""
    downloads = Downloads()
    until = time.monotonic() + SEEN_WITHIN
    found = []
    while time.monotonic() < until:
        found.append(downloads.moved(families))
        threading.Event().wait(0.05)
    return found


@pytest.mark.slow
def test_a_slow_download_is_movement(start, watch):
    _, port = start(SERVER, 4096, 0.5)
    pid, _ = start(CLIENT, port)
    agent = watch(pid)
    # It would have been captured by now, at the latest.
    until = time.monotonic() + 3 * HANG_AFTER
    wait_for(lambda: time.monotonic() > until, "three thresholds")
    agent.tell(command="capture", kind="request")
    captured = agent.wait("captured")
    assert captured["trigger"]["kind"] == "request"
    assert captured["trigger"]["quiet_s"] < HANG_AFTER
    agent.finish()


@pytest.mark.parametrize(("size", "pace"), [(200, 2.0), (450, 0.5)])
def test_the_messages_of_a_tracker_are_none(start, watch, size, pace):
    _, port = start(SERVER, size, pace)
    pid, _ = start(CLIENT, port)
    agent = watch(pid)
    assert agent.wait("captured")["trigger"]["kind"] == "no_progress"
    agent.finish()


@pytest.mark.slow
def test_what_two_ranks_say_to_each_other_is_none(start):
    server, port = start(SERVER, 8192, 0.1)
    client, _ = start(CLIENT, port)
    other = RankProcesses(server, [], None)
    assert seen_to_move(RankProcesses(client, [], None)) == [client]
    assert not any(movements(RankProcesses(client, [], None), other))


def test_a_process_below_a_rank_serves_others_as_one_outside_would(start):
    """A cache that one rank started for all, or its copy of the weights."""
    server, port = start(SERVER, 8192, 0.1)
    client, _ = start(CLIENT, port)
    other = RankProcesses(os.getpid(), [server], None)
    assert seen_to_move(RankProcesses(client, [], None), other) == [client]


@pytest.mark.slow
def test_who_is_called_and_the_store_s_port_are_none(start):
    server, port = start(SERVER, 8192, 0.1)
    client, _ = start(CLIENT, port)
    assert not any(movements(RankProcesses(server, [], None)))
    assert not any(movements(RankProcesses(client, [], int(port))))


def test_data_of_a_process_below_a_rank_is_the_rank_s(start):
    _, port = start(SERVER, 8192, 0.1)
    client, _ = start(CLIENT, port)
    mine = os.getpid()
    assert seen_to_move(RankProcesses(mine, [client], None)) == [mine]


def test_many_small_questions_and_answers_are_none(start):
    pid, _ = start(TALKER)
    assert not any(movements(RankProcesses(pid, [], None)))


@pytest.mark.parametrize(
    ("looks", "data"),
    [
        ([Transfer(4096, 1), NOTHING] * 3, True),
        ([Transfer(1400, 1)] * 3, True),
        ([Transfer(1 << 20, 800)], True),
        # A tracker sends what has gathered, through a connection of its own each time.
        ([Transfer(30_000, 25), Transfer(9_000, 8), *[NOTHING] * 4], False),
        ([Transfer(500, 1)] * 6, False),
        # Looks are longer where there are many connections.
        ([Transfer(2000, 2, 2.0)] * 6, False),
        ([Transfer(16_384, 4, 2.0)] * 6, True),
        ([Transfer(100_000, 2000)] * 6, False),
        ([NOTHING] * 6, False),
        ([], False),
    ],
)
def test_what_is_taken_for_data(looks, data):
    assert is_data([(look, NOTHING) for look in looks]) is data
    assert is_data([(NOTHING, look) for look in looks]) is data
