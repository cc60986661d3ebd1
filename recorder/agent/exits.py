"""Ends of ranks: seen at the moment when they happen, or told by who collected them.

A zombie shows its status, but the parent may collect it before anybody looks.  The
launcher writes down what it collects if it is Python and has the start-up hook;
for all others the kernel keeps the status with a descriptor of the process, since
Linux 6.15 (PIDFD_GET_INFO in linux/include/uapi/linux/pidfd.h).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.rank.reaped_exits import NAME, read_exits
from hanglab.recorder.system import procfs

#: struct pidfd_info as first published: mask, control group, eleven numbers of 32 bits, status.
_INFO = struct.Struct("<QQ11Ii")
#: _IOWR(0xFF, 11, struct pidfd_info)
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_WITH_EXIT = 1 << 3


class ExitWatch:
    """A descriptor per rank that becomes readable when the rank's process ends."""

    def __init__(self, runtime: Path) -> None:
        self._ranks: dict[int, WatchedRank] = {}
        #: Those that have ended in a way that is not known yet.
        self._leaving: dict[int, WatchedRank] = {}
        self._known: set[int] = set()
        self._path = runtime / NAME
        self._read = 0
        #: By process id; a rank may be found only after its launcher has told.
        self._told: dict[int, int] = {}

    def add(self, rank: WatchedRank) -> None:
        """Kernels before 5.3 and Pythons before 3.9 have no such descriptors."""
        if rank.pid in self._known:
            return
        self._known.add(rank.pid)
        with contextlib.suppress(AttributeError, OSError):
            self._ranks[os.pidfd_open(rank.pid)] = rank

    @property
    def descriptors(self) -> list[int]:
        return list(self._ranks)

    def notice(self, descriptor: int) -> None:
        """Read how its process has ended, before its parent collects it."""
        rank = self._ranks.pop(descriptor, None)
        if rank is None:
            return
        stat = rank.stat()
        if stat is not None and stat.state == "Z" and may_read(rank.pid):
            rank.seen_status = stat.exit_status
            os.close(descriptor)
        else:
            self._leaving[descriptor] = rank

    def read(self, ranks: list[WatchedRank]) -> None:
        """Take in what the kernel, or a launcher, tells of ranks that have been collected."""
        for descriptor, rank in list(self._leaving.items()):
            status = status_of(descriptor)
            if status is not None:
                rank.seen_status = status
                del self._leaving[descriptor]
                os.close(descriptor)
        told, self._read = read_exits(self._path, self._read)
        self._told.update(told)
        for rank in ranks:
            if rank.pid in self._told and rank.seen_status is None and rank.stat() is None:
                rank.seen_status = self._told[rank.pid]

    def close(self) -> None:
        for descriptor in (*self._ranks, *self._leaving):
            os.close(descriptor)
        self._ranks.clear()
        self._leaving.clear()


def may_read(pid: int) -> bool:
    """True if a zombie's status may be read; otherwise it reads as 0."""
    owner = procfs.owner(pid)
    return owner is not None and os.geteuid() in (0, owner[0])


def status_of(descriptor: int) -> int | None:
    """Status as waitpid gave it to whoever collected it; None where the kernel does not tell."""
    buffer = bytearray(_INFO.size)
    struct.pack_into("<Q", buffer, 0, _WITH_EXIT)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(buffer)
    return status if mask & _WITH_EXIT else None
