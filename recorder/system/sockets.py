"""The TCP connections of ranks, each from its own end, in whatever namespace they are."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque

from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.writer import clock
from hanglab.recorder.system import procfs
from hanglab.recorder.system.kernel_files import descriptors, read
from hanglab.recorder.system.tcp_info import STATES, NoSockets, connections, in_namespace_of

#: Connections of one rank that are kept: those of a full mesh of a thousand ranks.
_MOST = 2048
#: Nanoseconds between two samples that are kept, but for the latest.
_SPACE_NS = 3_000_000_000


def sample(pids: list[int], capture: bool) -> tuple[dict[int, ConnectionSample], list[str]]:
    """Connections of each process, and why some could not be asked in full.

    Processes that share a network namespace are asked for together.
    """
    by_namespace: dict[str, list[int]] = {}
    for pid in pids:
        if namespace := procfs.network_namespace(pid):
            by_namespace.setdefault(namespace, []).append(pid)
    found: dict[int, ConnectionSample] = {}
    problems = []
    for members in by_namespace.values():
        try:
            with contextlib.closing(in_namespace_of(members[0])) as sock:
                table = dict(connections(sock))
            source = "sock_diag"
        except NoSockets as reason:
            problems.append(f"{reason}; without TCP_INFO")
            table, source = from_proc(members[0]), "proc"
        for pid in members:
            mine = [table[inode] for inode in socket_inodes(pid) if inode in table][:_MOST]
            found[pid] = ConnectionSample(clock(), mine, source, capture)
    return found, problems


def keep(kept: deque[ConnectionSample], latest: ConnectionSample) -> None:
    """Appends a rank's latest sample, in place of the last one where that tells nothing more.

    That is so where the last one followed another too soon, or where nothing has been carried
    since that one: idle connections, as at a job's end, must not push out how they were busy.
    """
    if len(kept) > 1:
        near = kept[-1].at.mono_ns - kept[-2].at.mono_ns < _SPACE_NS
        carried = _carried(latest)
        idle = carried is not None and carried == _carried(kept[-1]) == _carried(kept[-2])
        if near or idle:
            kept.pop()
    kept.append(latest)


def _carried(sample: ConnectionSample) -> dict[tuple[str, str], tuple[int, int]] | None:
    """Bytes that each connection has sent and received; None where the kernel did not tell."""
    found = {}
    for one in sample.connections:
        if one.sent_bytes is None or one.received_bytes is None:
            return None
        found[one.local, one.remote] = one.sent_bytes, one.received_bytes
    return found


def socket_inodes(pid: int) -> list[int]:
    """Inodes of the sockets that a process holds open, each once, by descriptor."""
    inodes: dict[int, None] = {}
    for name in descriptors(pid):
        target = procfs.open_file(pid, name)
        if target.startswith("socket:["):
            inodes[int(target[8:-1])] = None
    return list(inodes)


def from_proc(pid: int) -> dict[int, Connection]:
    """Connections from /proc/PID/net, which needs no privilege and knows less."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in (read(f"/proc/{pid}/net/{name}") or "").splitlines()[1:]:
            row = parse_row(line)
            if row is not None:
                found[row[0]] = row[1]
    return found


def parse_row(line: str) -> tuple[int, Connection] | None:
    """A row of /proc/net/tcp; format: the kernel's networking/proc_net_tcp."""
    words = line.split()
    if len(words) < 10:
        return None
    state = int(words[3], 16)
    send, receive = (int(part, 16) for part in words[4].split(":"))
    timer = int(words[5].split(":")[0], 16)
    return int(words[9]), Connection(
        local=_address(words[1]),
        remote=_address(words[2]),
        state=STATES[state] if state < len(STATES) else str(state),
        send_queue=send,
        receive_queue=receive,
        backoff=int(words[6], 16) if timer == 1 else 0,
        retransmitting=timer == 1,
    )


def _address(text: str) -> str:
    """An address as the kernel prints it: words of four bytes in the machine's order."""
    digits, _, port = text.partition(":")
    data = b"".join(
        struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8)
    )
    if len(data) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, data)}:{int(port, 16)}"
    if data[:12] == b"\0" * 10 + b"\xff\xff":
        return f"{socket.inet_ntop(socket.AF_INET, data[12:])}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, data)}]:{int(port, 16)}"
