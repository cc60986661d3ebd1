"""Jobs on several hosts: clocks that differ, nodes that are paused, links seen from both ends."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from views import ended, job, raised, user, view, waiting

from hanglab.analyzer.causes.network.partition import partition
from hanglab.analyzer.causes.network.slow_link import slow_link
from hanglab.analyzer.causes.network.store_lost import store_lost
from hanglab.analyzer.engine import analyze, conclude
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.records import (
    ChildExit,
    Clock,
    Container,
    Exit,
    JobRecord,
    Python,
    Raised,
    RankProcess,
    StackFrame,
    Trigger,
)
from hanglab.recorder.case.writer import write, write_manifest

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


def write_rank(case: Path, rank: int, ahead_s: float, error: str, line: int) -> None:
    """A rank on a host of its own that raised and then ended; times are its host's."""
    at = Clock(NOW + int(ahead_s * SECOND), 5 * SECOND)
    folder = case / "hosts" / f"node{rank}" / "ranks" / f"{rank}.0"
    folder.mkdir(parents=True)
    frames = [StackFrame("step", "/home/me/train.py", line)]
    process = RankProcess(100, rank, 2, at, Python("3.11"))
    write(folder, files.PROCESS, process)
    write(folder, files.EXCEPTIONS, [Raised(at, "ValueError", error, frames)])
    write(folder, files.EXIT, Exit(at, code=1))


@pytest.mark.parametrize("ahead_s", [-7200.0, 0.0, 0.2, 3600.0])
def test_what_a_rank_raised_counts_whatever_its_hosts_clock_says(
    ahead_s: float, tmp_path: Path
) -> None:
    lost = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:1"
    write_rank(tmp_path, 0, 0.1, lost, 7)
    write_rank(tmp_path, 1, ahead_s, "a bad batch", 9)
    at = Clock(NOW + SECOND, SECOND)
    trigger = Trigger("exit", at, 0.0, "rank 1 ended with code 1")
    clocks = {"node0": 3_000_000, "node1": int(ahead_s * SECOND) - 2_000_000}
    facts = JobRecord(2, Clock(NOW - SECOND, 0), 1.5, trigger, at, clocks_ahead_ns=clocks)
    write(tmp_path, files.JOB, facts)
    write_manifest(tmp_path, "test", [])
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.EXCEPTION)
    assert verdict.culprits == [1]
    assert verdict.location is not None and verdict.location.line == 9


def container(status: str) -> Container:
    return Container(at=Clock(1, 1), id="c", status=status)


def on_nodes(facts: Any, statuses: dict[int, str]) -> Any:
    for rank, status in statuses.items():
        name = f"node{rank}"
        facts.ranks[rank].host = name
        facts.hosts[name] = HostView(name, container=container(status))
    return facts


def test_a_rank_on_a_paused_node_is_frozen_though_nobody_there_can_say_so() -> None:
    absent = view(1)
    absent.processes.clear()
    known = on_nodes(
        job([waiting(0), absent, waiting(2)]), {0: "running", 1: "paused", 2: "running"}
    )
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.PROCESS_FROZEN, [1])


def test_a_node_that_is_paused_only_after_the_job_failed_is_none_of_it() -> None:
    failed = raised(view(0), "ValueError", "a bad batch", user(9))
    known = on_nodes(job([failed, view(1)], trigger=None), {0: "running", 1: "paused"})
    assert conclude(known).cause is Cause.EXCEPTION


LOST = "Connection reset by peer"


def client(rank: int, *remotes: str) -> Any:
    v = raised(view(rank), "torch.distributed.DistNetworkError", LOST, user(9), at=2000)
    return connected(v, *remotes)


def connected(v: Any, *remotes: str) -> Any:
    address = f"10.0.0.{v.rank}"
    v.host = f"node{v.rank}"
    connections = [
        Connection(f"{address}:{40_000 + n}", remote, "ESTABLISHED")
        for n, remote in enumerate(remotes)
    ]
    v.connections = [ConnectionSample(Clock(1, 1), connections)]
    return v


def with_child(v: Any, number: int | None) -> Any:
    code = 0 if number is None else None
    v.children.append(ChildExit(Clock(1900, 1900), 77, "child", code=code, signal=number))
    return v


STORE = "10.0.0.0:29501"


def test_a_child_that_kept_the_store_takes_it_along() -> None:
    keeper = with_child(connected(view(0), STORE, "10.0.0.1:7"), signal.SIGKILL)
    (proposal,) = store_lost(job([keeper, client(1, STORE), client(2, STORE)], trigger=None))
    assert (proposal.finding.cause, proposal.finding.culprits) == (Cause.STORE_LOST, [0])


@pytest.mark.parametrize(
    ("number", "store", "served"),
    [
        (None, STORE, False),
        (signal.SIGKILL, "10.0.9.9:29501", False),
        (signal.SIGKILL, STORE, True),
    ],
    ids=["the child ended well", "the store was elsewhere", "a rank served it"],
)
def test_other_children_keep_no_store(number: int | None, store: str, served: bool) -> None:
    keeper = with_child(connected(view(0), store, "10.0.0.1:7"), number)
    if served:
        listening = Connection("0.0.0.0:29501", "0.0.0.0:0", "LISTEN")
        keeper.connections[0].connections.append(listening)
    assert not list(store_lost(job([keeper, client(1, store), client(2, store)], trigger=None)))


def link(rank: int, peer: int, at_s: float, **fields: Any) -> ConnectionSample:
    local, remote = f"10.0.0.{rank}:{5000 + peer}", f"10.0.0.{peer}:{5000 + rank}"
    at = Clock(int(at_s * SECOND), int(at_s * SECOND))
    return ConnectionSample(at, [Connection(local, remote, "ESTABLISHED", **fields)])


#: Of a sender that has always 24 KiB on the way, at 2 MB a second.
BEFORE: dict[str, Any] = {
    "sent_bytes": 0, "busy_s": 0.0, "peer_limited_s": 0.0, "buffer_limited_s": 0.0,
}  # fmt: skip
AFTER: dict[str, Any] = {
    "sent_bytes": 8_000_000, "busy_s": 4.0, "peer_limited_s": 0.0, "buffer_limited_s": 0.0,
    "rtt_ms": 12.0, "least_rtt_ms": 0.1, "last_sent_ms": 3, "last_acknowledged_ms": 3,
}  # fmt: skip


def slow_pair(after: dict[str, Any]) -> Any:
    sender, receiver = ended(view(0)), ended(view(1))
    sender.connections = [link(0, 1, 1.0, **BEFORE), link(0, 1, 5.0, **after)]
    receiver.connections = [link(1, 0, 1.0), link(1, 0, 5.0)]
    return job([sender, receiver], trigger=None)


def test_a_link_that_was_full_while_the_job_used_it_is_slow_though_both_have_ended() -> None:
    known = slow_pair(AFTER)
    for v in known.ranks.values():  # the sockets are closed a while before the rank is gone
        v.connections.append(ConnectionSample(Clock(9 * SECOND, 9 * SECOND), []))
    (proposal,) = slow_link(known)
    assert proposal.finding.culprits == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"sent_bytes": 200_000, "rtt_ms": 12.0},
        {"busy_s": 1.0, "sent_bytes": 2_000_000},
        {"peer_limited_s": 3.0},
        {"sent_bytes": 80_000_000},
    ],
    ids=["few bytes at a time", "mostly idle", "a slow reader", "fast enough"],
)
def test_other_links_are_not_slow(change: dict[str, Any]) -> None:
    assert not list(slow_link(slow_pair({**AFTER, **change})))


def test_what_arrived_and_was_not_acknowledged_tells_the_way_that_is_cut() -> None:
    again: dict[str, Any] = {"send_queue": 48, "backoff": 5, "retransmitting": True}
    views = []
    for rank in range(3):
        v = waiting(rank)
        connections = []
        for peer in {0, 1, 2} - {rank}:
            fields: dict[str, Any] = {"sent_bytes": 1000, "received_bytes": 1000}
            if peer == 1:
                fields |= again
            if rank == 1:
                fields["received_bytes"] = 1048
            connections += link(rank, peer, 9, **fields).connections
        v.connections = [ConnectionSample(Clock(9, 9), connections, capture=True)]
        views.append(v)
    (proposal,) = partition(job(views))
    assert proposal.finding.culprits == [1]
    assert "all that it sends gets lost" in proposal.finding.summary


def test_the_field_is_optional_in_older_cases() -> None:
    assert msgspec.json.decode(
        b'{"world_size":2,"started":{"wall_ns":1,"mono_ns":1}}', type=JobRecord
    )


MESH = (
    "Gloo connectFullMesh failed with [/w/gloo/transport/tcp/pair.cc:152] timed out connecting: "
    "SO_ERROR: Connection refused, remote=[{}]:20893$0"
)


def misled(rank: int, remote: str) -> Any:
    frame = StackFrame("init_process_group", "/x/site-packages/torch/distributed/c10d.py", 1)
    v = raised(view(rank), "RuntimeError", MESH.format(remote), frame, user(9))
    v.host = f"node{rank}"
    return v


@pytest.mark.parametrize(
    ("remote", "local", "found"),
    [
        ("127.0.0.1", "127.0.0.1:40273", [1]),  # 40273 is 20893 in the network's order of bytes
        ("127.0.0.1", "127.0.0.1:20893", [1]),
        ("127.0.0.1", "127.0.0.1:5000", []),
        ("127.0.0.1", "10.0.0.1:40273", []),
        ("10.0.0.1", "10.0.0.1:40273", []),
    ],
)
def test_who_advertises_its_loopback_is_to_blame_and_never_who_believed_it(
    remote: str, local: str, found: list[int]
) -> None:
    advertiser = waiting(1)
    advertiser.host = "node1"
    listening = Connection(local, "0.0.0.0:0", "LISTEN")
    advertiser.connections = [ConnectionSample(Clock(1, 1), [listening], capture=True)]
    verdict = conclude(job([misled(0, remote), advertiser, misled(2, remote)], trigger="exit"))
    assert verdict.culprits == found
    assert verdict.cause is (Cause.RENDEZVOUS if found else None)
