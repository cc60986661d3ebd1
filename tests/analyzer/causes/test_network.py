"""The network judged by the sockets of both ends: real jobs over a pair of namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from views import job, user, view, waiting

from hanglab.analyzer.causes.network.partition import partition
from hanglab.analyzer.causes.network.slow_link import slow_link
from hanglab.analyzer.engine import analyze, conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.graph.wait_for_graph import Sink, Wait, WaitKind
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.records import Clock, GroupRecord

HOLDER = (
    "import ctypes, sys; assert ctypes.CDLL(None).unshare(0x40000000) == 0\n"
    "print(flush=True); sys.stdin.read()"
)


def device(end: str) -> str:
    """Name of one end, ``a`` or ``b``."""
    return f"hl{os.getpid()}"[:12] + end


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def namespace() -> Iterator[int]:
    """A network namespace of its own; the id of the process that keeps it."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert keeper.stdout is not None and keeper.stdout.readline() == b"\n"
        yield keeper.pid
    finally:
        keeper.communicate()


@contextmanager
def pair() -> Iterator[tuple[int, int]]:
    """Two namespaces, joined: 10.99.0.1 and 10.99.0.2.  Gone when their keepers are."""
    with namespace() as left, namespace() as right:
        run("ip", "link", "add", device("a"), "netns", str(left), "type", "veth",
            "peer", "name", device("b"), "netns", str(right))  # fmt: skip
        for pid, end, address in ((left, "a", "10.99.0.1/24"), (right, "b", "10.99.0.2/24")):
            run("nsenter", "-t", str(pid), "-n", "ip", "addr", "add", address, "dev", device(end))
            for name in ("lo", device(end)):
                run("nsenter", "-t", str(pid), "-n", "ip", "link", "set", name, "up")
        yield left, right


def in_namespace(pid: int, *words: str) -> None:
    run("nsenter", "-t", str(pid), "-n", *words)


@pytest.fixture(autouse=True)
def administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds ip and tc where they are, whatever the caller's search path."""
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":/usr/sbin:/sbin")


@pytest.fixture
def namespaces() -> Iterator[tuple[int, int]]:
    if os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    pytest.importorskip("torch")
    stack = ExitStack()
    try:
        made = stack.enter_context(pair())
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no pair of network namespaces: {error}")
    with stack:
        yield made


class Running:
    """Two recorded ranks and their agent."""

    def __init__(self, folder: Path, namespaces: tuple[int, int], elements: int) -> None:
        self.case = folder / "case"
        self.stack = ExitStack()
        runtime = self.stack.enter_context(_short_folder())
        self.ranks = []
        hook = Path(__file__).parents[3] / "recorder" / "rank" / "hook"
        for rank, keeper in enumerate(namespaces):
            environment = {
                **os.environ,
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                "MASTER_ADDR": "10.99.0.1", "MASTER_PORT": "29511",
                "GLOO_SOCKET_IFNAME": device("ab"[rank]), "OMP_NUM_THREADS": "1",
                "PAIR_NAMESPACE": str(keeper), "PYTHONPATH": str(hook),
                "HANGLAB_CASE": str(self.case), "HANGLAB_RUNTIME": str(runtime),
                "TORCH_FR_BUFFER_SIZE": "2000",
            }  # fmt: skip
            program = Path(__file__).with_name("gloo_pair_program.py")
            process = subprocess.Popen(
                [sys.executable, str(program), "60", str(elements)],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.ranks.append(process)
        self.agent = subprocess.Popen(
            [sys.executable, "-m", "hanglab.recorder.agent", "--case", str(self.case),
             "--runtime", str(runtime), "--world-size", "2", "--hang-after", "4"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def wait_ready(self) -> None:
        for rank in self.ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"ready\n", "the job never formed"

    def watch(self, seconds: float) -> None:
        """Capture it twice, so far apart."""
        self.capture()
        time.sleep(seconds)  # what is measured is a rate
        self.capture()

    def capture(self) -> None:
        self.tell(b'{"command": "capture", "kind": "request"}')
        self.wait_event("captured")

    def wait_event(self, name: str) -> None:
        assert self.agent.stdout is not None
        for line in self.agent.stdout:
            if f'"{name}"'.encode() in line:
                return
        raise AssertionError(f"the agent ended without {name}")

    def tell(self, command: bytes) -> None:
        assert self.agent.stdin is not None
        self.agent.stdin.write(command + b"\n")
        self.agent.stdin.flush()

    def close(self) -> None:
        for process in (*self.ranks, self.agent):
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        self.stack.close()


@contextmanager
def _short_folder() -> Iterator[Path]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def running(folder: Path, namespaces: tuple[int, int], elements: int) -> Iterator[Running]:
    started = Running(folder, namespaces, elements)
    try:
        started.wait_ready()
        yield started
    finally:
        started.close()


def finish(started: Running) -> None:
    started.tell(b'{"command": "finish", "ended_by_recorder": true}')
    started.wait_event("finished")


def test_a_link_that_is_cut_is_seen_at_both_ends(
    namespaces: tuple[int, int], tmp_path: Path
) -> None:
    with running(tmp_path, namespaces, 1000) as started:
        # Frames to an address that nobody has are dropped without a word to anybody.
        for pid, end, other in zip(namespaces, "ab", ("10.99.0.2", "10.99.0.1"), strict=True):
            in_namespace(
                pid, "ip", "neigh", "replace", other, "lladdr", "02:00:00:00:00:99",
                "dev", device(end), "nud", "permanent",
            )  # fmt: skip
        started.wait_event("captured")
        finish(started)
        verdict = analyze(started.case)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.PARTITION), verdict.summary
    assert verdict.culprits == [0, 1]
    assert any(e.source == "sockets" for e in verdict.evidence)


@pytest.mark.long
def test_a_link_of_half_a_megabyte_a_second_is_slow(
    namespaces: tuple[int, int], tmp_path: Path
) -> None:
    if shutil.which("tc") is None:
        pytest.skip("needs tc, of Debian's iproute2")
    # Before the job: what a quick link carries first, while a crowded machine sets the limit, would
    # be most of all that is carried.
    for pid, end in zip(namespaces, "ab", strict=True):
        in_namespace(
            pid, "tc", "qdisc", "add", "dev", device(end), "root", "tbf",
            "rate", "4mbit", "burst", "16kb", "latency", "300ms",
        )  # fmt: skip
    with running(tmp_path, namespaces, 100_000) as started:
        started.watch(5)
        finish(started)
        verdict = analyze(started.case)
    assert (verdict.status, verdict.cause) == (Status.SLOW, Cause.SLOW_LINK), verdict.summary
    assert verdict.culprits == [0, 1]


@pytest.mark.slow
def test_a_sound_link_under_load_is_neither(namespaces: tuple[int, int], tmp_path: Path) -> None:
    with running(tmp_path, namespaces, 2_000_000) as started:
        started.watch(3)
        finish(started)
        verdict = analyze(started.case)
    assert verdict.status is Status.HEALTHY, verdict.summary


def ends(rank: int, peer: int, **changed: object) -> ConnectionSample:
    mine, theirs = f"10.0.0.{rank}:{5000 + peer}", f"10.0.0.{peer}:{5000 + rank}"
    connection = Connection(mine, theirs, "ESTABLISHED", **changed)  # type: ignore[arg-type]
    return ConnectionSample(Clock(9, 9), [connection], capture=True)


def meshed(lost: dict[tuple[int, int], dict[str, object]], size: int = 4):  # type: ignore[no-untyped-def]
    views = []
    for rank in range(size):
        v = waiting(rank)
        connections = [
            ends(rank, peer, **lost.get((rank, peer), {})).connections[0]
            for peer in range(size)
            if peer != rank
        ]
        v.connections = [ConnectionSample(Clock(9, 9), connections, capture=True)]
        views.append(v)
    return job(views)


AGAIN: dict[str, object] = {"send_queue": 4096, "backoff": 5, "retransmitting": True}


def test_the_rank_that_all_cut_links_have_in_common_is_cut_off() -> None:
    known = meshed({(0, 2): AGAIN, (2, 1): AGAIN, (3, 2): AGAIN})
    (proposal,) = partition(known)
    assert proposal.finding.culprits == [2] and proposal.finding.victims == [0, 1, 3]


def test_one_cut_among_sound_links_of_both_accuses_the_pair() -> None:
    (proposal,) = partition(meshed({(0, 2): AGAIN}))
    assert proposal.finding.culprits == [0, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"send_queue": 4096, "backoff": 0, "retransmitting": False},
        {"send_queue": 4096, "backoff": 1, "retransmitting": True},
        {"retransmitted": 90_000},
        {"send_queue": 0, "backoff": 6, "retransmitting": True},
    ],
    ids=["window closed", "lost once", "lost often, long ago", "probe without data"],
)
def test_links_that_lost_something_once_are_not_cut(change: dict[str, object]) -> None:
    known = meshed({(0, 2): change, (2, 1): change, (3, 2): change})
    assert list(partition(known)) == []


def test_a_stopped_process_is_no_cut_network() -> None:
    known = meshed({(0, 2): AGAIN})
    known.ranks[2] = view(2, state="T")
    known.ranks[2].connections = known.ranks[1].connections
    assert list(partition(known)) == []


def test_a_rank_whose_peers_are_done_has_not_stopped_where_the_network_is_cut() -> None:
    """The last piece of a ring is on its way to rank 1 alone when the links of rank 2 are cut."""
    known = meshed({(0, 2): AGAIN, (2, 1): AGAIN}, size=3)
    (group,) = known.graph.groups
    behind = Call(1, group, 7, "all_reduce")
    # DDP's reducer is called in C++: on the stack there is just a line of the user's.
    for rank in known.ranks:
        lost, known.ranks[rank] = known.ranks[rank].connections, view(rank, user(20))
        known.ranks[rank].connections = lost
    known.graph.sinks = [Sink(1, behind, outside=False, stopped_device=True, victims=(0, 2))]
    known.graph.waits = [
        Wait(Call(rank, group, 8, "all_reduce"), WaitKind.NOT_ENTERED, (1,)) for rank in (0, 2)
    ]
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.PARTITION, [2]), verdict.summary
    for rank in known.ranks:
        known.ranks[rank].connections = []
    assert conclude(known).cause is Cause.MISSING_RANK
    # gloo needs nothing but the process, which runs: nor has it stopped where no socket was seen.
    known.ranks[1].groups = [
        GroupRecord(id=group.name, ranks=[0, 1, 2], backend="gloo", description="")
    ]
    assert conclude(known).status is Status.INCONCLUSIVE
    known.ranks[1].groups[0].backend = "cuda:nccl,cpu:gloo"
    assert conclude(known).cause is Cause.MISSING_RANK


def carried(unread: int) -> CaseFacts:
    """Rank 0 sends rank 1 half a megabyte a second for two seconds, and never has nothing to send.

    ``unread``: bytes that rank 1 has not read at the capture.
    """
    views = [waiting(rank) for rank in range(2)]
    before = ends(0, 1, sent_bytes=0, busy_s=0.0, peer_limited_s=0.0, buffer_limited_s=0.0)
    after = ends(
        0, 1, sent_bytes=1_000_000, busy_s=2.0, peer_limited_s=0.0, buffer_limited_s=0.0,
        send_queue=60_000, rtt_ms=100.0, last_sent_ms=0, last_acknowledged_ms=0,
    )  # fmt: skip
    later = Clock(2_000_000_009, 2_000_000_009)
    views[0].connections = [before, ConnectionSample(later, after.connections, capture=True)]
    views[1].connections = [
        ConnectionSample(later, ends(1, 0, receive_queue=unread).connections, capture=True)
    ]
    before.capture = False
    return job(views, trigger="request")


@pytest.mark.parametrize(("unread", "slow"), [(0, True), (50_000, True), (50_001, False)])
def test_what_a_receiver_is_about_to_read_makes_no_link_sound(unread: int, slow: bool) -> None:
    found = list(slow_link(carried(unread)))
    assert [(p.finding.cause, p.finding.culprits) for p in found] == (
        [(Cause.SLOW_LINK, [0, 1])] if slow else []
    )


def test_ends_belong_together_though_a_router_has_put_its_own_address_in_place_of_one() -> None:
    """As rules of Docker do on a bridge with the addresses of a network that has gone."""
    known = carried(unread=0)
    known.ranks[1].connections = with_address(known.ranks[1].connections, remote="10.0.0.254:5001")
    (found,) = slow_link(known)
    assert found.finding.culprits == [0, 1]
    # Another rank that connected from the same port could be the one behind the router.
    known.ranks[2] = view(2)
    known.ranks[2].connections = with_address(known.ranks[0].connections, local="10.0.0.2:5001")
    assert list(slow_link(known)) == []


def test_a_link_is_slow_though_it_has_come_to_rest_at_the_last_look() -> None:
    """The kernel's round trip time follows what is on the way, and that is over at a job's end."""
    known = carried(unread=0)
    before, after = known.ranks[0].connections
    (busy,) = after.connections
    halfway = ConnectionSample(Clock(1_000_000_009, 1_000_000_009), [busy])
    rested = msgspec.structs.replace(busy, send_queue=0, rtt_ms=10.0)
    known.ranks[0].connections = [
        ConnectionSample(before.at, [msgspec.structs.replace(before.connections[0], rtt_ms=90.0)]),
        halfway,
        ConnectionSample(after.at, [rested], capture=True),
    ]
    (found,) = slow_link(known)
    assert found.finding.culprits == [0, 1]
    # Who has waited for a receipt at every look is not slowed down by the link.
    known.ranks[0].connections = [
        ConnectionSample(
            sample.at,
            [msgspec.structs.replace(one, rtt_ms=10.0) for one in sample.connections],
            capture=sample.capture,
        )
        for sample in known.ranks[0].connections
    ]
    assert list(slow_link(known)) == []


def with_address(samples: list[ConnectionSample], **changed: str) -> list[ConnectionSample]:
    """The same samples of a connection one of whose addresses is another."""
    return [
        ConnectionSample(
            sample.at,
            [msgspec.structs.replace(one, **changed) for one in sample.connections],
            capture=sample.capture,
        )
        for sample in samples
    ]


@pytest.mark.parametrize(("rtt_ms", "slow"), [(100.0, False), (1000.0, True)])
def test_a_segment_within_one_host_is_larger(rtt_ms: float, slow: bool) -> None:
    """A heavy stage of a pipeline takes and acknowledges its input late: no link is slow there."""
    known = carried(unread=0)
    for number in range(2):
        known.ranks[number].connections = [
            ConnectionSample(
                sample.at,
                [
                    msgspec.structs.replace(
                        one,
                        local=f"127.0.0.1:{one.local.replace('.', '').replace(':', '')[-5:]}",
                        remote=f"127.0.0.1:{one.remote.replace('.', '').replace(':', '')[-5:]}",
                        rtt_ms=None if one.rtt_ms is None else rtt_ms,
                    )
                    for one in sample.connections
                ],
                capture=sample.capture,
            )
            for sample in known.ranks[number].connections
        ]
    assert bool(list(slow_link(known))) == slow
