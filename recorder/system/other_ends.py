"""Processes at the other ends of pipes and of sockets that lead to this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable

from hanglab.recorder.system import procfs
from hanglab.recorder.system.kernel_files import descriptors, read
from hanglab.recorder.system.tcp_info import answers

#: Of linux/unix_diag.h: ask for the peer's inode, and the attribute that has it.
_SHOW_PEER, _PEER = 4, 2
_HEADER = struct.Struct("=BBBBIII")


def target(pid: int, descriptor: int) -> tuple[str, int]:
    """``pipe`` or ``socket`` and the inode of a descriptor; ("", 0) of anything else."""
    with contextlib.suppress(ValueError):
        kind, _, rest = procfs.open_file(pid, descriptor).partition(":[")
        if kind in ("pipe", "socket"):
            return kind, int(rest[:-1])
    return "", 0


def writes(pid: int, descriptor: int) -> bool:
    """True if a descriptor was opened for writing alone, as one end of a pipe is."""
    for line in (read(f"/proc/{pid}/fdinfo/{descriptor}") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8) & os.O_ACCMODE == os.O_WRONLY
    return False


def unix_peers(sock: socket.socket) -> dict[int, int]:
    """Inode of the other end of each connected unix socket, by its own.

    ``sock`` speaks sock_diag (``tcp_info.in_namespace_of``).  Raises OSError.
    """
    sock.send(
        struct.pack(
            "=IHHIIBBHIIIII", 40, 20, 0x301, 1, 0,
            socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF,
        )
    )  # fmt: skip
    found = {}
    for message in answers(sock, _HEADER.size):
        inode = _HEADER.unpack_from(message)[4]
        at = _HEADER.size
        while at + 8 <= len(message):
            length, kind, peer = struct.unpack_from("=HHI", message, at)
            if length < 4:
                break
            if kind == _PEER:
                found[inode] = peer
            at += (length + 3) & ~3
    return found


def holders(
    inodes: Iterable[tuple[str, int]], processes: Iterable[int]
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Processes that have a thing open, each with a descriptor, by kind and inode."""
    wanted = set(inodes)
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for pid in processes:
        for number in descriptors(pid):
            key = target(pid, number)
            if key in wanted:
                found.setdefault(key, []).append((pid, number))
    return found
