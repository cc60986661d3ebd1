"""System calls in which threads wait for descriptors, and the descriptors that they wait for.

See proc_pid_syscall(5); of calls that name descriptors by an address, they are read out of the
process's memory, and those of an epoll out of its fdinfo.
"""

from __future__ import annotations

import os
import platform
import struct
from typing import NamedTuple

from hanglab.recorder.system.kernel_files import read

#: Numbers of calls whose first argument is the descriptor, and of those that name several
#: (linux/arch/*/entry/syscalls).
_CALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 19: "readv", 20: "writev", 23: "select",
        40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
        47: "recvmsg", 232: "epoll_wait", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
        288: "accept4", 299: "recvmmsg", 307: "sendmmsg", 441: "epoll_pwait2",
    },
    "aarch64": {
        22: "epoll_pwait", 63: "read", 64: "write", 65: "readv", 66: "writev", 71: "sendfile",
        72: "pselect6", 73: "ppoll", 202: "accept", 203: "connect", 206: "sendto",
        207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4", 243: "recvmmsg",
        269: "sendmmsg", 441: "epoll_pwait2",
    },
}.get(platform.machine(), {})  # fmt: skip
#: Descriptors of one call that are looked at.
_MOST = 64
_POLLED = struct.Struct("=ihh")


class BlockedCall(NamedTuple):
    """The call that a thread sleeps in; any of ``descriptors`` may end it."""

    name: str
    descriptors: tuple[int, ...]


def blocked_call(pid: int, thread: int) -> BlockedCall | None:
    """None where the thread is in no such call, or may not be asked."""
    words = (read(f"/proc/{pid}/task/{thread}/syscall") or "").split()
    # "running", or -1 and two addresses, where it is in no system call.
    if len(words) < 7 or not words[0].isdecimal():
        return None
    name = _CALLS.get(int(words[0]))
    if name is None:
        return None
    arguments = [int(word, 16) for word in words[1:7]]
    try:
        return BlockedCall(name, _descriptors(pid, name, arguments)[:_MOST])
    except OSError:
        return None


def _descriptors(pid: int, name: str, arguments: list[int]) -> tuple[int, ...]:
    if name in ("poll", "ppoll"):
        data = _memory(pid, arguments[0], min(arguments[1], _MOST) * _POLLED.size)
        whole = len(data) - len(data) % _POLLED.size
        return tuple(fd for fd, *_ in _POLLED.iter_unpack(data[:whole]) if fd >= 0)
    if name in ("select", "pselect6"):
        size = (arguments[0] + 63) // 64 * 8
        sets = [_memory(pid, address, size) for address in arguments[1:3] if address]
        bits = 0
        for one in sets:
            bits |= int.from_bytes(one, "little")
        return tuple(number for number in range(bits.bit_length()) if bits >> number & 1)
    # Of an int the kernel keeps the lower half.
    first = arguments[0] & 0x7FFFFFFF
    if name.startswith("epoll"):
        lines = (read(f"/proc/{pid}/fdinfo/{first}") or "").splitlines()
        rows = [line.split() for line in lines if line.startswith("tfd:")]
        return tuple(int(row[1]) for row in rows)
    return (first,)


def _memory(pid: int, address: int, size: int) -> bytes:
    """Raises OSError where it may not be read."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        return os.pread(memory.fileno(), size, address)
