"""Data that ranks fetch from, or bring to, somebody outside the job, as a sign that they move.

What a process receives by recv(2) does not count in /proc/PID/io, so a download of
weights would look like a hang.  The kernel counts a connection's payload; much of what
rests says something there now and then all the same, and is no movement: a store that
is polled, a tracker that reports, somebody who reads a rank's metrics.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hanglab.recorder.system import procfs
from hanglab.recorder.system.sockets import socket_inodes
from hanglab.recorder.system.tcp_info import End, Flow, NoSockets, flows, in_namespace_of

#: Seconds between two looks, or so many times what one costs on a host of many connections.
_EVERY_S = 0.5
_REST = 50.0
#: A connection is judged by so many looks in a row, of three seconds where they cost little.
_LOOKS = 6
_WINDOW_S = _LOOKS * _EVERY_S
#: Bytes in that time that are movement however they came ...
_DATA_BYTES = 64 * 1024
#: ... and that are if they came little by little: in at least so many of the looks.
_STREAM_BYTES = 4 * 1024
_STREAM_LOOKS = 3
#: Data fills segments; questions and answers, a store's among them, take some tens of bytes.
_SEGMENT_BYTES = 256


class Transfer(NamedTuple):
    """Payload in one direction between two looks."""

    size: int
    segments: int
    seconds: float = _EVERY_S


class RankProcesses(NamedTuple):
    """A rank's process, the processes below it, and the port at which the job has its store."""

    pid: int
    below: Sequence[int]
    store: int | None


class Downloads:
    """Looks at all connections of the ranks of one host, wherever their network is."""

    def __init__(self) -> None:
        self._seen: dict[int, Flow] = {}
        #: What each connection has received and sent between looks, by its socket.
        self._history: dict[int, deque[tuple[Transfer, Transfer]]] = {}
        #: When, in monotonic seconds, unless there is nothing to compare with.
        self._looked: float | None = None
        self._due = float("-inf")

    def forget(self) -> None:
        """The rest is over: compare with nothing at the next look."""
        self._seen, self._history = {}, {}
        self._looked = None

    def moved(self, families: Sequence[RankProcesses]) -> list[int]:
        """Process ids of the ranks that have moved data lately; to be called while all rest."""
        now = time.monotonic()
        if now < self._due:
            return []
        began = time.thread_time()  # on a busy host little work takes long
        found = self._look(families)
        self._due = now + max(_EVERY_S, _REST * (time.thread_time() - began))
        return found

    def _look(self, families: Sequence[RankProcesses]) -> list[int]:
        try:
            tables = list(_tables(families))
        except (NoSockets, OSError):
            # Without the other end's table a peer could not be told from somebody else.
            self.forget()
            return []
        listening = [{flow.local[1] for flow in table if flow.listens} for table in tables]
        ends = {(f.local, f.remote): f.inode for table in tables for f in table if not f.listens}
        stores = {family.store for family in families}
        known = {flow.inode: flow for table in tables for flow in table if flow.inode}
        self._note(known)
        data = [
            flow
            for table, ports in zip(tables, listening, strict=True)
            for flow in table
            # Who has been called has not asked for it: peers and readers do.
            if flow.local[1] not in ports
            and flow.remote[1] not in stores
            and is_data(self._history.get(flow.inode, ()))
        ]
        if not data:
            return []
        return list(dict.fromkeys(_outside(data, families, ends)))

    def _note(self, known: Mapping[int, Flow]) -> None:
        """Add a look to the history of each connection, also of one that has come since."""
        now = time.monotonic()
        if self._looked is not None:
            seconds = now - self._looked
            for inode, flow in known.items():
                then = self._seen.get(inode)
                if then is None or (then.local, then.remote) != (flow.local, flow.remote):
                    then = Flow(inode, flow.local, flow.remote, flow.listens)
                    self._history.pop(inode, None)
                came = flow.received - then.received
                went = flow.sent - then.sent
                segments = flow.received_segments - then.received_segments
                looks = self._history.setdefault(inode, deque(maxlen=_LOOKS))
                looks.append(
                    (
                        Transfer(came, segments, seconds),
                        Transfer(went, flow.sent_segments - then.sent_segments, seconds),
                    )
                )
        self._history = {inode: of for inode, of in self._history.items() if inode in known}
        self._seen = dict(known)
        self._looked = now


def is_data(history: Iterable[tuple[Transfer, Transfer]]) -> bool:
    """True if what a connection has carried, look by look, is data in either direction."""
    return any(_streams(looks) for looks in zip(*history, strict=True))


def _streams(looks: Sequence[Transfer]) -> bool:
    size = sum(look.size for look in looks)
    longer = max(1.0, sum(look.seconds for look in looks) / _WINDOW_S)
    if size < longer * _STREAM_BYTES or size < _SEGMENT_BYTES * sum(
        look.segments for look in looks
    ):
        return False
    some = sum(look.size >= _SEGMENT_BYTES for look in looks)
    return size >= longer * _DATA_BYTES or some >= _STREAM_LOOKS


def _tables(families: Sequence[RankProcesses]) -> Iterable[list[Flow]]:
    """The connections of each network namespace that a rank is in.  Raises NoSockets, OSError."""
    namespaces: dict[str, int] = {}
    for family in families:
        namespaces.setdefault(procfs.network_namespace(family.pid), family.pid)
    for pid in namespaces.values():
        with contextlib.closing(in_namespace_of(pid)) as sock:
            yield list(flows(sock))


def _outside(
    data: Iterable[Flow], families: Sequence[RankProcesses], ends: Mapping[tuple[End, End], int]
) -> Iterable[int]:
    """Ranks that move data, unless another rank is at the other end.

    A process below that one alone serves others, as one outside the job would.
    """
    ranks = {inode: one.pid for one in families for inode in socket_inodes(one.pid)}
    below = {
        inode: one.pid for one in families for pid in one.below for inode in socket_inodes(pid)
    }
    for flow in data:
        rank = ranks.get(flow.inode, below.get(flow.inode))
        other = ranks.get(ends.get((flow.remote, flow.local), 0))
        if rank is not None and other in (None, rank):
            yield rank
