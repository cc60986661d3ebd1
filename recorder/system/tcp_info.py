"""Asking the kernel for all TCP sockets of a network namespace, with TCP_INFO.

NETLINK_SOCK_DIAG read by hand: the library that speaks it takes longer to
import than the agent to start, and forks to enter a namespace.  Layouts:
linux/inet_diag.h, linux/tcp.h (struct tcp_info only ever grows at its end).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from hanglab.recorder.case.host_records import Connection

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_DONE, _ERROR = 3, 2
_REQUEST_DUMP = 0x301
_INFO = 2
_CLONE_NEWNET = 0x40000000
#: Of the message behind the netlink header.
_MESSAGE = struct.Struct("=BBBB HH16s16sI8s IIIII".replace(" ", ""))
_RETRANSMIT_TIMER = 1
STATES = (
    "", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE",
    "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV",
)  # fmt: skip
#: All but TIME_WAIT, which no process owns any more.
_WANTED = 0xFFF & ~(1 << 6)
_ESTABLISHED, _LISTEN = 1, 10

#: How an address of the newer family begins that stands for one of the older.
_MAPPED = b"\0" * 10 + b"\xff\xff"

#: An address and a port.
End = tuple[bytes, int]


class NoSockets(Exception):
    """The kernel did not answer; the text says why."""


class Flow(NamedTuple):
    """Bytes that an established connection has carried; of a listener only its own end."""

    inode: int
    local: End
    remote: End
    listens: bool
    #: Payload that has come, in bytes and in segments, and the same that the peer has got.
    received: int = 0
    received_segments: int = 0
    sent: int = 0
    sent_segments: int = 0


def in_namespace_of(pid: int) -> socket.socket:
    """A sock_diag socket in the network namespace of a process.  Raises NoSockets."""
    try:
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/thread-self/ns/net"):
            return _open()
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NoSockets(f"network namespace: {error.strerror}") from None
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Of this thread alone; the socket stays where it was opened.
            _setns(there)
            try:
                return _open()
            finally:
                _setns(home)
        finally:
            os.close(there)
    except OSError as error:
        raise NoSockets(f"network namespace: {error.strerror}") from None
    finally:
        os.close(home)


def connections(sock: socket.socket) -> Iterator[tuple[int, Connection]]:
    """(inode, connection) of every TCP socket.  Raises NoSockets."""
    yield from map(decode, _messages(sock, _WANTED))


def flows(sock: socket.socket) -> Iterator[Flow]:
    """Flows of every established connection and every listener.  Raises NoSockets."""
    yield from map(flow_of, _messages(sock, 1 << _ESTABLISHED | 1 << _LISTEN))


def _messages(sock: socket.socket, states: int) -> Iterator[bytes]:
    """An ``inet_diag_msg`` with its attributes for every TCP socket in one of the states."""
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack(
            "=IHHII BBBBI48s".replace(" ", ""),
            72, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0,
            family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, states, b"\0" * 48,
        )  # fmt: skip
        try:
            sock.send(request)
            yield from answers(sock, _MESSAGE.size)
        except OSError as error:
            raise NoSockets(f"sock_diag: {error.strerror or error}") from None


def answers(sock: socket.socket, least: int) -> Iterator[bytes]:
    """Messages of an answer that have at least so many bytes.  Raises OSError."""
    while True:
        data = memoryview(sock.recv(1 << 20))
        while len(data) >= 16:
            length, kind = struct.unpack_from("=IH", data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, 16)[0]
                raise OSError(code, os.strerror(code))
            if length < 16 or length > len(data):
                return
            if length >= 16 + least:
                yield bytes(data[16:length])
            data = data[(length + 3) & ~3 :]


def decode(message: bytes) -> tuple[int, Connection]:
    """One ``inet_diag_msg`` with its attributes."""
    (
        family, state, timer, retransmits, _, _, source, destination, _, _,
        _, receive, send, _, inode,
    ) = _MESSAGE.unpack_from(message)  # fmt: skip
    ports = struct.unpack_from("!HH", message, 4)
    return inode, Connection(
        local=_address(family, source, ports[0]),
        remote=_address(family, destination, ports[1]),
        state=STATES[state] if state < len(STATES) else str(state),
        send_queue=send,
        receive_queue=receive,
        backoff=retransmits if timer == _RETRANSMIT_TIMER else 0,
        retransmitting=timer == _RETRANSMIT_TIMER,
        **_info(_tcp_info(message)),  # type: ignore[arg-type]
    )


def flow_of(message: bytes) -> Flow:
    """Flow of a message, at a part of the cost."""
    family, state, _, _, _, _, source, destination, *_, inode = _MESSAGE.unpack_from(message)
    ports = struct.unpack_from("!HH", message, 4)
    carried = 0, 0, 0, 0
    info = _tcp_info(message)
    if state == _ESTABLISHED and len(info) >= 160:
        sent, received = struct.unpack_from("=2Q", info, 120)
        received_segments, sent_segments = struct.unpack_from("=2I", info, 152)
        carried = received, received_segments, sent, sent_segments
    ends = (_plain(family, source), ports[0]), (_plain(family, destination), ports[1])
    return Flow(inode, *ends, state == _LISTEN, *carried)


def _tcp_info(message: bytes) -> bytes:
    at = _MESSAGE.size
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            break
        if kind == _INFO:
            return message[at + 4 : at + length]
        at += (length + 3) & ~3
    return b""


def _info(data: bytes) -> dict[str, int | float]:
    if len(data) < 104:
        return {}
    (unacked,) = struct.unpack_from("=I", data, 24)
    sent, _, received, acknowledged = struct.unpack_from("=4I", data, 44)
    (rtt,) = struct.unpack_from("=I", data, 68)
    (retransmitted,) = struct.unpack_from("=I", data, 100)
    found: dict[str, int | float] = {
        "unacknowledged": unacked,
        "last_sent_ms": sent,
        "last_received_ms": received,
        "last_acknowledged_ms": acknowledged,
        "rtt_ms": rtt / 1e3,
        "retransmitted": retransmitted,
    }
    if len(data) >= 192:
        found["sent_bytes"], found["received_bytes"] = struct.unpack_from("=2Q", data, 120)
        (least,) = struct.unpack_from("=I", data, 148)
        rate, busy, window, buffer = struct.unpack_from("=4Q", data, 160)
        found["delivery_bytes_s"] = rate
        found["busy_s"], found["peer_limited_s"] = busy / 1e6, window / 1e6
        found["buffer_limited_s"] = buffer / 1e6
        if least != 0xFFFFFFFF:
            found["least_rtt_ms"] = least / 1e3
    return found


def _address(family: int, data: bytes, port: int) -> str:
    if family == socket.AF_INET:
        return f"{socket.inet_ntop(socket.AF_INET, data[:4])}:{port}"
    if data[:12] == _MAPPED:  # a mapped address of the older family
        return f"{socket.inet_ntop(socket.AF_INET, data[12:])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, data)}]:{port}"


def _plain(family: int, data: bytes) -> bytes:
    """The bytes of an address, a mapped one of the older family as those of that."""
    if family == socket.AF_INET:
        return data[:4]
    return data[12:] if data[:12] == _MAPPED else data


def _open() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
    sock.settimeout(1.0)
    return sock


def _setns(descriptor: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
