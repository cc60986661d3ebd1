"""hanglab's process on a node that it reaches over standard input and output alone."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.injection import Injector
from hanglab.harness.hosts import ThisMachine
from hanglab.harness.launchers.nodes.processes import NodeChannel, NodePaths, NodeProcesses
from hanglab.harness.launchers.supervision import leftovers
from hanglab.harness.launchers.supervision.channel import (
    ChannelClosed,
    Message,
    MessageChannel,
    PipeChannel,
)
from hanglab.harness.launchers.supervision.descendants import (
    become_subreaper,
    children_of,
    descendants_of,
    is_janitor,
)
from hanglab.recorder.system import procfs

#: For hanglab to say what is to be done; a busy host of it takes its time.
_ORDER_S = 120.0
#: Between two looks at the ranks' progress while a fault waits for its moment.
_FAULT_PACE_S = 0.002


class RemoteProcesses(NodeProcesses):
    """Everything of the job that runs on this node besides this process; its faults strike here."""

    def __init__(self, order: Message, channel: NodeChannel, paths: NodePaths) -> None:
        super().__init__(order, channel, paths)
        self.paths = paths
        self._environment: dict[str, str] = order["environment"]
        faults: list[tuple[int, Fault]] = pickle.loads(base64.b64decode(order["faults"]))
        self._numbers = [number for number, _ in faults]
        self._injector = Injector([fault for _, fault in faults], paths.case, order["world_size"])
        self._machine = ThisMachine(self.ranks)
        #: Shared memory of ranks, and the processes that had it.
        self._segments: set[Path] = set()
        self._seen: set[int] = set()

    def rank_environment(self, rank: int) -> dict[str, str]:
        return {**os.environ, **self._environment}

    def others(self) -> set[int]:
        me = os.getpid()
        spared = {self.agent} if self.agent is not None else set()
        below = {
            pid
            for child in children_of(me)
            if child not in spared
            for pid in (child, *descendants_of(child))
            if not procfs.has_ended(pid)
        }
        self._seen |= below
        self._segments |= leftovers.shared_memory_of(pid for pid in below if not is_janitor(pid))
        return below

    def look(self) -> float:
        if not self._injector.pending:
            return 1.0
        struck = [strike.at_ns for strike in self._injector.strikes]
        self._injector.poll(self.ranks, self._machine)
        if struck != [strike.at_ns for strike in self._injector.strikes]:
            self._tell_strikes()
        return _FAULT_PACE_S

    def cleared(self) -> None:
        leftovers.remove_shared_memory(self._segments, self._seen)
        self._injector.close()
        self._tell_strikes()

    def left(self) -> None:
        shutil.rmtree(self.paths.temporary, ignore_errors=True)

    def _tell_strikes(self) -> None:
        if self._numbers:
            strikes = [
                {name: value for name, value in vars(strike).items() if name != "fault"}
                for strike in self._injector.strikes
            ]
            for strike in strikes:
                for name in ("proof", "end_proof"):
                    strike[name] = asdict(strike[name]) if strike[name] is not None else None
            self.tell(
                {"event": "strikes", "strikes": dict(zip(self._numbers, strikes, strict=True))}
            )


Make = Callable[[Message, NodeChannel, NodePaths], RemoteProcesses]


def serve(make: Make, hello: dict[str, Any], prepare: Callable[[Message], None]) -> None:
    """Says hello, and does what hanglab then says.

    ``prepare`` gets the order before anything of it is done; an OSError of it is told.
    """
    become_subreaper()
    # Whatever else writes to standard output must not come between the messages.
    channel = PipeChannel(os.dup(0), os.dup(1))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    channel.send({"event": "hello", "machine": _machine(), "port": _port(), **hello})
    try:
        order = channel.receive(_ORDER_S)
    except ChannelClosed:
        order = None
    if order is None:
        return
    paths = NodePaths(Path(order["case"]), Path(order["log"]), Path(order["temporary"]))
    os.environ.update(TMPDIR=str(paths.temporary))
    _run(make, order, channel, paths, prepare)


def _run(
    make: Make,
    order: Message,
    channel: MessageChannel,
    paths: NodePaths,
    prepare: Callable[[Message], None],
) -> None:
    try:
        prepare(order)
        os.chdir(order["folder"])
        make(order, channel, paths).run()
    except OSError as error:
        with suppress(ChannelClosed):
            channel.send(
                {"event": "failed", "error": f"{error.strerror or error}: {error.filename}"}
            )
        shutil.rmtree(paths.temporary, ignore_errors=True)
        raise


def _machine() -> str:
    """Identity of the machine: several nodes of a test may be one."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def _port() -> int:
    """A port that is free on this node now, for the ranks to meet at."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
