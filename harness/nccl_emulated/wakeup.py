"""Waking a device that sleeps, from its own host and from its peers' processes.

A device sleeps in a read of a pipe.  Peers reach the pipe, and the word that says whether it
sleeps, by ``/proc/<pid>/fd``: nothing has a name in a file system, so nothing can be left there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
from typing import NamedTuple

from hanglab.harness.nccl_emulated.control import PAGE_NAME, ControlPage

#: A wake-up that is lost between two processors' caches costs so long, in seconds.
_LONGEST_S = 0.05


class Address(NamedTuple):
    """Place at which peers find a wakeup."""

    pid: int
    flag: int
    pipe: int


class Wakeup:
    """This process's own."""

    def __init__(self) -> None:
        flag = os.memfd_create(PAGE_NAME, os.MFD_CLOEXEC)
        os.ftruncate(flag, mmap.PAGESIZE)
        self._flag = mmap.mmap(flag, mmap.PAGESIZE)
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self.control = ControlPage(self._flag)
        self.address = Address(os.getpid(), flag, self._write)

    def arm(self) -> None:
        """From now on whoever has news rings; look for news again before :meth:`wait`."""
        self._flag[0] = 1

    def wait(self, timeout_s: float = _LONGEST_S) -> None:
        """Returns when somebody has rung, or after a while."""
        if self._poll.poll(min(timeout_s, _LONGEST_S) * 1000):
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self._flag[0] = 0

    def disarm(self) -> None:
        self._flag[0] = 0

    def ring(self) -> None:
        if self._flag[0]:
            with contextlib.suppress(BlockingIOError):
                os.write(self._write, b"x")


class PeerWakeup:
    """A peer's, or this process's own as its peers see it."""

    def __init__(self, address: Address) -> None:
        folder = f"/proc/{address.pid}/fd"
        flag = os.open(f"{folder}/{address.flag}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._flag = mmap.mmap(flag, mmap.PAGESIZE, prot=mmap.PROT_READ)
        finally:
            os.close(flag)
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._pipe = os.open(f"{folder}/{address.pipe}", flags)

    def ring(self) -> None:
        if self._flag[0]:
            # Full: it will wake.  Gone: it will not.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._pipe, b"x")
