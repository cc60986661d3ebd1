"""Pipes and sockets that main threads of ranks are blocked on, and the processes behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case.host_records import Connection
from hanglab.recorder.case.records import DescriptorWait, OtherEnd
from hanglab.recorder.system import other_ends, procfs, sockets
from hanglab.recorder.system.blocked_calls import blocked_call
from hanglab.recorder.system.tcp_info import NoSockets, connections, in_namespace_of

#: Processes below a rank that are looked at, at most; and of the whole host.
_MOST_DESCENDANTS = 64
_MOST_PROCESSES = 4096
#: Other ends of one descriptor that are kept: forked children have their parent's.
_MOST_ENDS = 64
_SENDING = frozenset({"write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile", "connect"})


class _Blocked(NamedTuple):
    rank: WatchedRank
    pid: int
    call: str
    descriptor: int
    kind: str
    inode: int


class _Sockets(NamedTuple):
    """Sockets of a network namespace: connections by inode and by both ends, peers of unix ones."""

    tcp: dict[int, Connection]
    inodes: dict[tuple[str, str], int]
    unix: dict[int, int]


def descriptor_waits(ranks: Sequence[WatchedRank]) -> dict[WatchedRank, list[DescriptorWait]]:
    """By rank the waits of its processes for pipes and sockets; it has none without any."""
    blocked = [one for rank in ranks for one in _blocked(rank)]
    if not blocked:
        return {}
    owners = {pid: rank.rank for rank in ranks for pid in (rank.pid, *rank.descendants)}
    tables: dict[str, _Sockets] = {}
    rows = []
    for one in blocked:
        if one.kind == "pipe":
            kind, other, connection = "pipe", one.inode, None
        else:
            space = procfs.network_namespace(one.pid)
            if space not in tables:
                tables[space] = _sockets_of(one.pid)
            kind, other, connection = _peer(tables[space], one.inode)
        if kind:
            sends = one.call in _SENDING
            if one.kind == "pipe":
                sends = other_ends.writes(one.pid, one.descriptor)
            wait = DescriptorWait(
                one.pid,
                one.call,
                one.descriptor,
                kind,
                sends,
                connection.local if connection else "",
                connection.remote if connection else "",
                connection.state if connection else "",
            )
            rows.append((one, wait, (one.kind, other)))
    everyone = dict.fromkeys([*owners, *procfs.everyone()[:_MOST_PROCESSES]])
    held = other_ends.holders({key for *_, key in rows if key[1]}, everyone)
    found: dict[WatchedRank, list[DescriptorWait]] = {}
    for one, wait, key in rows:
        # A reader of a pipe waits for those who may write to it, and the other way round.
        ends = {
            pid: None
            for pid, number in held.get(key, ())
            if pid != one.pid
            and (key[0] != "pipe" or other_ends.writes(pid, number) is not wait.sends)
        }
        table = tables.get(procfs.network_namespace(one.pid))
        wait.others = [
            _other_end(pid, owners.get(pid), wait, table) for pid in list(ends)[:_MOST_ENDS]
        ]
        found.setdefault(one.rank, []).append(wait)
    return found


def _blocked(rank: WatchedRank) -> list[_Blocked]:
    found = []
    for pid in (rank.pid, *rank.descendants[:_MOST_DESCENDANTS]):
        call = blocked_call(pid, pid)
        for descriptor in call.descriptors if call is not None else ():
            kind, inode = other_ends.target(pid, descriptor)
            if call is not None and kind:
                found.append(_Blocked(rank, pid, call.name, descriptor, kind, inode))
    return found


def _sockets_of(pid: int) -> _Sockets:
    unix: dict[int, int] = {}
    try:
        with contextlib.closing(in_namespace_of(pid)) as sock:
            with contextlib.suppress(OSError):
                unix = other_ends.unix_peers(sock)
            tcp = dict(connections(sock))
    except NoSockets:
        tcp = sockets.from_proc(pid)
    return _Sockets(tcp, {(one.local, one.remote): inode for inode, one in tcp.items()}, unix)


def _peer(table: _Sockets, inode: int) -> tuple[str, int, Connection | None]:
    """Kind of a socket, the inode of its other end (0 if that is elsewhere), its connection."""
    connection = table.tcp.get(inode)
    if connection is not None:
        other = table.inodes.get((connection.remote, connection.local), 0)
        return "tcp", other, connection
    if inode in table.unix:
        return "unix", table.unix[inode], None
    return "", 0, None


def _other_end(
    pid: int, rank: int | None, wait: DescriptorWait, table: _Sockets | None
) -> OtherEnd:
    stat = procfs.stat(pid)
    served = False
    if wait.kind == "tcp" and table is not None and procfs.store_threads(pid):
        port = wait.remote.rpartition(":")[2]
        served = any(
            one.state == "LISTEN" and one.local.rpartition(":")[2] == port
            for one in table.tcp.values()
        )
    return OtherEnd(pid, stat.name if stat else "", rank, served)
