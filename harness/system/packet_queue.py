"""The process that holds packets of a queue and lets them go later: ``holding PID QUEUE MS``.

Speaks nfnetlink_queue by hand (linux/netfilter/nfnetlink_queue.h).  It never
sees what is in a packet.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections import deque

from hanglab.harness.system.namespaces import call_in_network

_NETLINK_NETFILTER = 12
_SOL_NETLINK, _NO_ENOBUFS = 270, 5
_PACKET, _VERDICT_BATCH, _CONFIG = 0x300, 0x303, 0x302
_REQUEST, _ACK = 1, 4
_ERROR = 2
_BIND, _COPY_META, _ACCEPT = 1, 1, 1
_CFG_COMMAND, _CFG_PARAMETERS, _CFG_LENGTH, _CFG_MASK, _CFG_FLAGS = 1, 2, 3, 4, 5
_PACKET_HEADER, _VERDICT_HEADER = 1, 2
#: Large packets stay whole.
_FLAG_GSO = 4
_LONGEST = 1 << 16


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data.ljust((len(data) + 3) & ~3, b"\0")


def _message(kind: int, flags: int, queue: int, *attributes: bytes) -> bytes:
    body = struct.pack("!BBH", socket.AF_UNSPEC, 0, queue) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 0, 0) + body


class Queue:
    """A queue of a network namespace, of which this process gets every packet's number."""

    def __init__(self, number: int) -> None:
        """Raises OSError."""
        self._number = number
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self.sock.bind((0, 0))
        self.sock.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._configure(_attribute(_CFG_COMMAND, struct.pack("!BBH", _BIND, 0, 0)))
        self._configure(_attribute(_CFG_PARAMETERS, struct.pack("!IB", 0, _COPY_META)))
        self._configure(_attribute(_CFG_LENGTH, struct.pack("!I", _LONGEST)))
        self._configure(
            _attribute(_CFG_FLAGS, struct.pack("!I", _FLAG_GSO)),
            _attribute(_CFG_MASK, struct.pack("!I", _FLAG_GSO)),
        )

    def _configure(self, *attributes: bytes) -> None:
        self.sock.send(_message(_CONFIG, _ACK, self._number, *attributes))
        data = self.sock.recv(1 << 16)
        code = -int(struct.unpack_from("=i", data, 16)[0])
        if code:
            raise OSError(code, os.strerror(code))

    def take(self) -> int | None:
        """Number of the latest packet that waits to be told of; None if none does."""
        latest = None
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
                latest = _packet_in(data) or latest
        return latest

    def release(self, latest: int) -> None:
        """Lets that packet go, and all before it."""
        verdict = _attribute(_VERDICT_HEADER, struct.pack("!II", _ACCEPT, latest))
        self.sock.send(_message(_VERDICT_BATCH, 0, self._number, verdict))


def _packet_in(data: bytes) -> int | None:
    at, latest = 0, None
    while at + 20 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if length < 20:
            break
        place, end = at + 20, min(at + length, len(data))
        while kind == _PACKET and place + 4 <= end:
            size, name = struct.unpack_from("=HH", data, place)
            if size < 4:
                break
            if name & 0x3FFF == _PACKET_HEADER and size >= 8:
                latest = int(struct.unpack_from("!I", data, place + 4)[0])
            place += (size + 3) & ~3
        at += (length + 3) & ~3
    return latest


def hold(queue: Queue, seconds: float) -> None:
    """Until standard input ends."""
    held: deque[tuple[float, int]] = deque()
    while True:
        pause = max(0.0, held[0][0] - time.monotonic()) if held else None
        ready, _, _ = select.select([queue.sock, sys.stdin], [], [], pause)
        now = time.monotonic()
        if queue.sock in ready and (latest := queue.take()) is not None:
            held.append((now + seconds, latest))
        due = None
        while held and held[0][0] <= now:
            due = held.popleft()[1]
        if due is not None:
            queue.release(due)
        if sys.stdin in ready:
            if held:
                queue.release(held[-1][1])
            return


def main() -> int:
    pid, number, milliseconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    try:
        queue = call_in_network(pid, lambda: Queue(number))
    except OSError as failure:
        print(failure.strerror or failure, file=sys.stderr)
        return 1
    print("ready", flush=True)
    hold(queue, milliseconds / 1e3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
