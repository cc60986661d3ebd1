"""Every fault from outside strikes a real container, is seen by its probe, and ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from conditions import wait_for

from hanglab.harness.faults.blocked_disk import BlockDisk
from hanglab.harness.faults.clock_skew import ClockSkew
from hanglab.harness.faults.death import KillNode, KillRank
from hanglab.harness.faults.delay import Delay
from hanglab.harness.faults.descriptors import NodeDescriptors
from hanglab.harness.faults.freeze_node import FreezeNode
from hanglab.harness.faults.full_file_systems import FillDisk, ShrinkShm
from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.faults.node_cpu import NodeCpu
from hanglab.harness.faults.node_memory import MemoryPressure, NodeMemory
from hanglab.harness.faults.node_tasks import NodeTasks
from hanglab.harness.faults.partition import CutOff, DropBetween, Ways
from hanglab.harness.faults.port_taken import PortTaken
from hanglab.harness.faults.proof import Probe, look_until
from hanglab.harness.faults.rate import LimitRate
from hanglab.harness.faults.refuse import RefuseConnections
from hanglab.harness.faults.store_gone import StoreGone
from hanglab.harness.faults.wrong_address import WrongAddress, WrongInterface
from hanglab.harness.hosts import NotYet
from hanglab.harness.launchers.docker.hosts import ContainerHosts
from hanglab.harness.system.namespaces import call_in_network, connect, in_network
from hanglab.harness.system.packet_filter import rules_of

pytestmark = pytest.mark.docker

Make = Callable[..., ContainerHosts]

BUSY = "while True: pass"
#: A child uses 4 MiB more every hundredth of a second; its parent survives it.
GREEDY = """
import os, time
if os.fork() == 0:
    kept = []
    while True:
        kept.append(b"x" * (4 << 20)); time.sleep(0.01)
while True: time.sleep(1)
"""
#: Reads a file again and again that it keeps on its own disk.
REREADING = """
import os
with open("/tmp/data", "wb") as file:
    for _ in range(96): file.write(os.urandom(1 << 20))
    file.flush(); os.fsync(file.fileno())
while True:
    with open("/tmp/data", "rb") as file:
        while file.read(1 << 20): pass
"""
#: Starts a thread that stays, every hundredth of a second, and survives that it may not.
THREADS = """
import threading, time
stay = threading.Event()
while True:
    try: threading.Thread(target=stay.wait, daemon=True).start()
    except RuntimeError: pass
    time.sleep(0.01)
"""
FILES = """
import time
kept = []
while True:
    try: kept.append(open("/dev/null"))
    except OSError: pass
    time.sleep(0.01)
"""
LISTENING = """
import socket
server = socket.create_server(("", 29555), backlog=64)
while True: server.accept()
"""


def strike(fault: HostFault, nodes: ContainerHosts) -> Callable[[], object] | None:
    """Strikes as soon as it can be done, as a job's injection does."""
    undo: list[Callable[[], object] | None] = []

    def struck() -> bool:
        try:
            undo.append(fault.strike_host(nodes))
        except NotYet:  # the freezer gives up on a crowded machine
            return False
        return True

    wait_for(struck, "the fault to strike")
    return undo[0]


def goes_through(
    fault: HostFault, nodes: ContainerHosts, meanwhile: Callable[[], None] = lambda: None
) -> Probe:
    """Not seen before the strike, seen after it, and over when it was taken back."""
    probe = fault.probe(nodes)
    assert not probe.struck().proved
    undo = strike(fault, nodes)
    meanwhile()
    seen = look_until(probe.struck, 100)
    assert seen.proved, seen
    if undo is not None:
        assert not probe.ended().proved
        undo()
    after = look_until(probe.ended, 100)
    assert after.proved, after
    return probe


@pytest.mark.parametrize(
    ("fault", "program"),
    [
        (FreezeNode(rank=0, at_step=0), BUSY),
        (NodeCpu(rank=0, cpus=0.2, at_step=0), BUSY),
        (NodeMemory(rank=0, mebibytes=48, at_step=0), GREEDY),
        (MemoryPressure(rank=0, mebibytes=32, at_step=0), REREADING),
        (NodeTasks(rank=0, spare=8, at_step=0), THREADS),
        (NodeDescriptors(rank=0, spare=8, at_step=0), FILES),
        (ShrinkShm(rank=0, kibibytes=1024, at_step=0), "sleep"),
        (FillDisk(rank=0, at="/scratch", mebibytes=4, at_step=0), "sleep"),
        (BlockDisk(rank=0, at="/storage", mebibytes=4, at_step=0), "sleep"),
        (KillNode(rank=0, at_step=0), "sleep"),
        (KillRank(rank=0, at_step=0), "sleep"),
        (StoreGone(rank=0, at_step=0), LISTENING),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, HostFault) else "",
)
def test_a_fault_of_a_node_strikes_and_ends(
    fault: HostFault, program: str, make_nodes: Make
) -> None:
    nodes = make_nodes(program, shape=fault.prepare)
    if isinstance(fault, StoreGone):
        wait_for(lambda: connect(nodes[0].pid, nodes[0].address, 29555, 1) == "open")
    goes_through(fault, nodes)


@pytest.mark.stages(CutOff.needs)
@pytest.mark.parametrize("ways", ["both", "in", "out"])
def test_a_node_is_cut_off_from_all(ways: Ways, pair: ContainerHosts) -> None:
    fault = CutOff(rank=1, ways=ways, at_step=0)
    undo = None
    probe = fault.probe(pair)
    try:
        undo = fault.strike_host(pair)
        reading = probe.struck()
        assert reading.proved, reading
        assert connect(pair[2].pid, pair[1].address, 1, 0.3) == "silent"
        assert connect(pair[2].pid, pair[0].address, 1, 20) == "refused"
    finally:
        if undo is not None:
            undo()
    assert probe.ended().proved
    assert not any(rules_of(node.pid) for node in pair.values())


@pytest.mark.stages(DropBetween.needs)
def test_two_nodes_do_not_hear_each_other(pair: ContainerHosts) -> None:
    fault = DropBetween(rank=0, other=1, at_step=0)
    probe = fault.probe(pair)
    undo = fault.strike_host(pair)
    try:
        assert probe.struck().proved
        for here, there in ((0, 2), (2, 0), (1, 2), (2, 1)):
            assert connect(pair[here].pid, pair[there].address, 1, 20) == "refused"
    finally:
        undo()
    assert probe.ended().proved


@pytest.mark.stages(Delay.needs)
def test_a_delay_is_what_it_says(pair: ContainerHosts) -> None:
    fault = Delay(rank=2, milliseconds=60, at_step=0)
    probe = fault.probe(pair)
    assert not probe.struck().proved
    undo = fault.strike_host(pair)
    try:
        reading = probe.struck()
        assert reading.proved, reading
        took = []
        for _ in range(5):
            begun = time.monotonic()
            assert connect(pair[0].pid, pair[1].address, 1, 20) == "refused"
            took.append(time.monotonic() - begun)
        assert min(took) < 0.05, "others are not held up"
    finally:
        undo()
    assert probe.ended().proved


@pytest.mark.stages(Delay.needs)
def test_a_delay_loses_and_reorders_nothing(make_nodes: Make) -> None:
    sending = """
import socket, time
while True:
    try: sock = socket.create_connection(("%s", 29555), 5)
    except OSError: time.sleep(0.05); continue
    for number in range(3000): sock.sendall(number.to_bytes(4, "big") * 64)
    sock.close(); time.sleep(600)
"""
    receiving = """
import socket
connection, _ = socket.create_server(("", 29555)).accept()
data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
expected = b"".join(number.to_bytes(4, "big") * 64 for number in range(3000))
print("same" if data == expected else "different", flush=True)
import time; time.sleep(600)
"""
    nodes = make_nodes(receiving)
    undo = Delay(rank=0, milliseconds=30, at_step=0).strike_host(nodes)
    try:
        make_nodes(sending % nodes[0].address)
        wait_for(lambda: bool(nodes[0].container.logs()))
        assert nodes[0].container.logs().split() == [b"same"]
    finally:
        undo()


@pytest.mark.stages(LimitRate.needs)
def test_a_rate_holds_packets_back(make_nodes: Make) -> None:
    sending = """
import socket, time
sink = socket.create_server(("", 29555))
while True:
    connection, _ = sink.accept()
    try:
        while True: connection.sendall(bytes(1 << 20))
    except OSError: pass
"""
    nodes = make_nodes(sending, "sleep")
    wait_for(lambda: connect(nodes[1].pid, nodes[0].address, 29555, 1) == "open")

    def receive() -> float:
        def take() -> float:
            with socket.create_connection((nodes[0].address, 29555), 5) as sock:
                begun, got = time.monotonic(), 0
                while got < 1 << 21:
                    got += len(sock.recv(1 << 16))
                return got / (time.monotonic() - begun)

        return call_in_network(nodes[1].pid, take)

    fault = LimitRate(rank=0, mebibits=16, at_step=0)
    rates: list[float] = []
    goes_through(fault, nodes, lambda: rates.append(receive()))
    assert 0.5e6 < rates[0] < 3e6
    assert receive() > 4 * rates[0]
    assert "tbf" not in in_network(nodes[0].pid, "tc", "qdisc", "show")


@pytest.mark.stages(RefuseConnections.needs)
def test_connections_are_refused_for_one_and_for_all(make_nodes: Make) -> None:
    nodes = make_nodes(LISTENING, "sleep", "sleep")
    wait_for(lambda: connect(nodes[1].pid, nodes[0].address, 29555, 1) == "open")
    goes_through(RefuseConnections(rank=0), nodes)
    fault = RefuseConnections(rank=0, other=2)
    undo = fault.strike_host(nodes)
    assert connect(nodes[1].pid, nodes[0].address, 29555, 20) == "open"
    assert connect(nodes[2].pid, nodes[0].address, 29555, 20) == "refused"
    undo()


@pytest.mark.stages(PortTaken.needs)
def test_a_port_is_taken_before_the_rank_gets_it(make_nodes: Make) -> None:
    nodes = make_nodes("sleep")
    goes_through(PortTaken(rank=0), nodes)


@pytest.mark.parametrize(
    "fault", [WrongAddress(rank=1), WrongInterface(rank=1)], ids=["address", "interface"]
)
def test_a_rank_is_told_something_else_than_its_peers(fault: HostFault, make_nodes: Make) -> None:
    nodes = make_nodes("sleep", "sleep", shape=fault.settings)
    assert fault.probe(nodes).struck().proved
    assert not type(fault)(rank=0).probe(nodes).struck().proved


def test_a_clock_is_ahead_and_only_there(make_nodes: Make) -> None:
    fault = ClockSkew(rank=1, seconds=3600)
    nodes = make_nodes("sleep", "sleep", shape=fault.settings)
    reading = fault.probe(nodes).struck()
    assert reading.proved, reading
    assert not ClockSkew(rank=0, seconds=3600).probe(nodes).struck().proved


#: Milliseconds that a wait of 200 took which Python's own locks wait for the GIL with.
WAITS = """
import ctypes, time
libc = ctypes.CDLL(None)
now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 200_000_000
until = (ctypes.c_long * 2)(*divmod(now, 10**9))
attributes, condition, mutex = (ctypes.create_string_buffer(64) for _ in range(3))
libc.pthread_condattr_init(attributes)
libc.pthread_condattr_setclock(attributes, time.CLOCK_MONOTONIC)
libc.pthread_cond_init(condition, attributes)
libc.pthread_mutex_init(mutex, None)
libc.pthread_mutex_lock(mutex)
begun = time.monotonic()
libc.pthread_cond_timedwait(condition, mutex, until)
print(int((time.monotonic() - begun) * 1000))
"""


@pytest.mark.parametrize("seconds", [3600, -1200])
def test_a_wrong_clock_leaves_waits_as_long_as_they_are(seconds: int, make_nodes: Make) -> None:
    nodes = make_nodes("sleep", shape=ClockSkew(rank=0, seconds=seconds).settings)
    code, said = nodes[0].container.exec_run(["python", "-c", WAITS])
    assert code == 0, said
    assert 100 < int(said) < 200_000
