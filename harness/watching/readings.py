"""Readings of ranks: signs of life that the kernel tells without stopping anybody."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hanglab.harness.watching.signs import Signs
from hanglab.recorder.agent.counters import CounterFile
from hanglab.recorder.system import procfs
from hanglab.recorder.system.sockets import socket_inodes
from hanglab.recorder.system.tcp_info import Flow, NoSockets, flows, in_namespace_of

#: Seconds between two looks for what changes seldom: sockets that a rank has open, threads that
#: serve a store.
_SELDOM_S = 10.0


@dataclass
class RankReader:
    """Reader of one rank; ``below`` are the processes below it, as last looked up."""

    pid: int
    #: In clock ticks since boot: tells the process from a later one with its id.
    started: int
    #: Port of the job's store: whoever waits there asks it again and again.
    store_port: int | None = None
    counters: CounterFile | None = None
    below: Sequence[int] = ()
    _changes: int = 0
    _inodes: frozenset[int] = field(default_factory=frozenset)
    _store_threads: Sequence[int] = ()
    _looked_s: float = float("-inf")
    #: Bytes and seconds of processes below that have ended, so that sums only grow.
    _io: dict[int, int] = field(default_factory=dict)
    _io_gone: int = 0
    _wanted: dict[int, float] = field(default_factory=dict)
    _wanted_gone: float = 0.0
    #: Bytes that each connection had carried, and those of all together, to peers and others.
    _carried: dict[int, int] = field(default_factory=dict)
    _flowed: list[int] = field(default_factory=lambda: [0, 0])

    def alive(self) -> bool:
        stat = procfs.stat(self.pid)
        return stat is not None and stat.started == self.started and stat.state not in "ZX"

    def look_seldom(self, now_s: float) -> None:
        if now_s - self._looked_s >= _SELDOM_S:
            self._looked_s = now_s
            self._inodes = frozenset(
                i for pid in (self.pid, *self.below) for i in socket_inodes(pid)
            )
            self._store_threads = procfs.store_threads(self.pid)

    @property
    def inodes(self) -> frozenset[int]:
        """Sockets that it has open, as last looked up."""
        return self._inodes

    def flowed(self, table: Mapping[int, Flow], owners: Mapping[int, int], ends: _Ends) -> None:
        """Add up what its connections have carried since the last look."""
        for inode in self._inodes:
            flow = table.get(inode)
            if flow is None or flow.listens:
                continue
            total = flow.received + flow.sent
            grown = total - self._carried.get(inode, 0)
            self._carried[inode] = total
            if grown <= 0 or self.store_port in (flow.local[1], flow.remote[1]):
                continue
            other = owners.get(ends.get((flow.remote, flow.local), 0))
            self._flowed[0 if other not in (None, self.pid) else 1] += grown

    def signs(self) -> Signs | None:
        """Readings of this moment; None where the process has ended."""
        stat = procfs.stat(self.pid)
        if stat is None or stat.started != self.started or stat.state in "ZX":
            return None
        io = sum(procfs.io_bytes(self.pid) or (0, 0))
        for tid in self._store_threads:
            io -= sum(procfs.thread_io_bytes(self.pid, tid))
        wanted = procfs.wanted_s(self.pid)
        wanted = (stat.cpu_s if wanted is None else wanted) + stat.reaped_s
        alive = dict.fromkeys(self.below)
        for pid in self._io.keys() - alive.keys():
            self._io_gone += self._io.pop(pid)
            # Its seconds count in who has waited for it.
            self._wanted.pop(pid, None)
        for pid in alive:
            if (bytes_ := procfs.io_bytes(pid)) is not None:
                self._io[pid] = max(self._io.get(pid, 0), sum(bytes_))
            if (one := procfs.stat(pid)) is not None:
                seconds = max(one.cpu_s, procfs.wanted_s(pid) or 0.0) + one.reaped_s
                self._wanted[pid] = max(self._wanted.get(pid, 0.0), seconds)
        progress = None
        if self.counters is not None:
            self._changes += bool(self.counters.changes())
            progress = self._changes if self.counters.counters is not None else None
        to_peers, to_others = self._flowed
        return Signs(
            progress,
            io + self._io_gone + sum(self._io.values()),
            to_peers,
            to_others,
            wanted + sum(self._wanted.values()),
            stat.state,
        )


_Ends = Mapping[tuple[tuple[bytes, int], tuple[bytes, int]], int]


def read_all(readers: Iterable[RankReader]) -> dict[int, Signs]:
    """Signs of all ranks that live, by process id; of those on other hosts nothing is seen."""
    readers = list(readers)
    now_s = time.monotonic()
    namespaces: dict[str, int] = {}
    for reader in readers:
        reader.look_seldom(now_s)
        namespaces.setdefault(procfs.network_namespace(reader.pid), reader.pid)
    owners = {inode: reader.pid for reader in readers for inode in reader.inodes}
    table: dict[int, Flow] = {}
    for name, pid in namespaces.items():
        if name:
            # Without connections there are other signs.
            with contextlib.suppress(NoSockets, OSError):
                with contextlib.closing(in_namespace_of(pid)) as sock:
                    table |= {flow.inode: flow for flow in flows(sock) if flow.inode in owners}
    ends = {(flow.local, flow.remote): flow.inode for flow in table.values() if not flow.listens}
    found = {}
    for reader in readers:
        reader.flowed(table, owners, ends)
        signs = reader.signs()
        if signs is not None:
            found[reader.pid] = signs
    return found
