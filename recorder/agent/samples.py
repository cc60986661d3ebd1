"""Samples of processes: their state from /proc, and their stacks by whatever way there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hanglab.recorder.agent.rank_request import NoReply, ask
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case.reader import RankCase
from hanglab.recorder.case.records import (
    FileLockWait,
    ProcessKind,
    ProcessSample,
    StackSample,
    ThreadStack,
)
from hanglab.recorder.case.writer import clock
from hanglab.recorder.system import cgroups, file_locks, procfs, stacks

#: Processes below a rank that are looked at, at most.
MOST_DESCENDANTS = 64


def socket_of(rank: WatchedRank | RankCase, runtime: Path) -> Path:
    return runtime / f"rank-{rank.rank}.{rank.attempt}.sock"


def kind_of(rank: WatchedRank, pid: int) -> ProcessKind:
    """The kind of a process: the rank, one of its loader's workers, or another child.

    A forked worker has its parent's command line, a spawned one says so in its own.
    """
    if pid == rank.pid:
        return "rank"
    words = procfs.command_line(pid)
    if words == procfs.command_line(rank.pid) or "--multiprocessing-fork" in words:
        return "worker"
    return "child"


def process_samples(rank: WatchedRank, capture: bool) -> list[ProcessSample]:
    """The rank and its descendants, those that still exist."""
    samples = []
    for pid in (rank.pid, *rank.descendants[:MOST_DESCENDANTS]):
        stat = rank.stat() if pid == rank.pid else procfs.stat(pid)
        if stat is None:
            continue
        io = procfs.io_bytes(pid)
        samples.append(
            ProcessSample(
                at=clock(),
                pid=pid,
                ppid=stat.ppid,
                kind=kind_of(rank, pid),
                state=stat.state,
                cpu_s=stat.cpu_s,
                threads=stat.threads,
                rss_bytes=stat.rss_bytes,
                io_read_bytes=io[0] if io else None,
                io_write_bytes=io[1] if io else None,
                open_fds=procfs.open_fds(pid),
                wchan=procfs.wchan(pid),
                name=stat.name,
                capture=capture,
                frozen=stat.state == "D" and cgroups.is_frozen(pid),
            )
        )
    return samples


def file_lock_waits(ranks: Sequence[WatchedRank]) -> dict[WatchedRank, list[FileLockWait]]:
    """Locks of files that processes of some ranks wait for and processes of others hold."""
    owners = {pid: rank for rank in ranks for pid in (rank.pid, *rank.descendants)}
    found: dict[WatchedRank, list[FileLockWait]] = {}
    for lock in file_locks.wanted_locks():
        waiter = owners.get(lock.pid)
        if waiter is None:
            continue
        held = file_locks.holder_of(lock, (pid for pid in owners if owners[pid] is not waiter))
        if held is not None:
            pid, path = held
            wait = FileLockWait(lock.pid, lock.kind, path, pid, owners[pid].rank)
            found.setdefault(waiter, []).append(wait)
    return found


def rank_stacks(rank: WatchedRank, runtime: Path, capture: bool) -> StackSample:
    """Stacks of the rank's own process.  Raises NoStacks if neither py-spy nor the rank tells."""
    stat = rank.stat()
    if stat is None or stat.state in "ZX":
        raise stacks.NoStacks("the process has ended")
    try:
        threads = stacks.threads_of(rank.pid, stopped=stat.state in "TtD")
        return StackSample(clock(), rank.pid, "rank", threads, "py-spy", capture)
    except stacks.NoStacks as reason:
        if stat.state in "TtD":
            raise
        try:
            (answer,) = ask(socket_of(rank, runtime), "stacks", [1.0])
            threads = msgspec.convert(answer.get("threads"), list[ThreadStack])
        except (NoReply, msgspec.ValidationError) as why:
            raise stacks.NoStacks(f"{reason}; {why}") from None
        return StackSample(clock(), rank.pid, "rank", threads, "in-rank", capture)


def child_stacks(rank: WatchedRank, pid: int) -> StackSample:
    """Stacks of a process below the rank.  Raises NoStacks, also where it is no Python process."""
    stat = procfs.stat(pid)
    if stat is None or stat.state in "ZX":
        raise stacks.NoStacks("the process has ended")
    threads = stacks.threads_of(pid, stopped=stat.state in "TtD")
    kind = kind_of(rank, pid)
    # A process with the rank's own command line may be any fork; its loop tells.
    functions = {f.function.rpartition(".")[2] for t in threads for f in t.frames}
    if threads and kind != "rank":
        kind = "worker" if "_worker_loop" in functions else "child"
    return StackSample(clock(), pid, kind, threads, "py-spy", True)
