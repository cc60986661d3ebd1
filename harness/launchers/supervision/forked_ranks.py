"""Ranks forked off a warm supervisor, and the store that they meet at."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hanglab.harness.launchers.environment import rank_environment
from hanglab.harness.launchers.supervision.channel import Message
from hanglab.harness.launchers.supervision.supervisor import Supervisor, decode_status
from hanglab.harness.rank.shared_gpu import host_identity

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore


@dataclass(frozen=True)
class RankSpec:
    """Specification of the rank that a forked process becomes."""

    rank: int
    world_size: int
    script: Path
    #: None: the script is ``__main__``.
    function: str | None
    arguments: tuple[str, ...]
    #: Without MASTER_PORT, which comes through ``port_pipe``.
    environment: dict[str, str]
    folder: str
    log_dir: Path
    port_pipe: int
    supervisor: int


class ForkedRanks:
    """Ranks that are children of the supervisor, so that waitpid tells how they end."""

    interval_s: float | None = None

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}

    def reaped(self, pid: int, status: int) -> Iterable[Message]:
        rank = self.pids.pop(pid, None)
        if rank is not None:
            code, number = decode_status(status)
            yield {"event": "exit", "rank": rank, "code": code, "signal": number}

    def watched(self) -> Iterable[int]:
        return ()

    def look(self) -> Iterable[Message]:
        return ()


def run_job(end: socket.socket, hanglab: int) -> RankSpec:
    """Supervises one job; returns in its ranks only."""
    supervisor = Supervisor(end, hanglab)
    order = supervisor.order()
    ranks = ForkedRanks()
    pipes: list[int] = []
    try:
        for rank in range(order["world_size"]):
            reading, writing = os.pipe()
            pipes.append(writing)
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                supervisor.release()
                return _rank_spec(order, rank, reading, parent)
            os.close(reading)
            ranks.pids[pid] = rank
        supervisor.tell_started({rank: pid for pid, rank in ranks.pids.items()})
        # After the forks: the store starts threads, and a fork would lose them.
        store = _store(order["world_size"])
        for pipe in pipes:
            os.write(pipe, f"{store.port}\n".encode())
            os.close(pipe)
        supervisor.collect(ranks)
        supervisor.watch(ranks, order["limit_s"])
    except Exception as error:
        supervisor.fail(error)
    supervisor.finish(ranks)
    raise AssertionError("a supervisor ends in finish")


def _rank_spec(order: Message, rank: int, port_pipe: int, supervisor: int) -> RankSpec:
    world_size = order["world_size"]
    return RankSpec(
        rank=rank,
        world_size=world_size,
        script=Path(order["script"]),
        function=order["function"],
        arguments=tuple(order["arguments"]),
        environment=order["environment"]
        | rank_environment(rank, world_size, Path(order["runtime_dir"]).name)
        | host_identity(order["environment"], rank),
        folder=order["folder"],
        log_dir=Path(order["log_dir"]),
        port_pipe=port_pipe,
        supervisor=supervisor,
    )


def _store(world_size: int) -> TCPStore:
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(
        "127.0.0.1", 0, world_size, is_master=True, wait_for_workers=False, use_libuv=True
    )
