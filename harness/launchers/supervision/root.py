"""The process above all supervisors: it forks them, and outlives them.

One root supervisor serves one launcher.  Whatever a supervisor that was killed leaves
comes to the root supervisor, which is a subreaper too, and is ended there.  When
hanglab goes, every supervisor ends its job and the root supervisor waits for that.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.launchers.supervision import leftovers
from hanglab.harness.launchers.supervision.channel import ChannelClosed, readable, take_over
from hanglab.harness.launchers.supervision.descendants import (
    ChildSignal,
    become_subreaper,
    children_of,
    descendants_of,
    end_below,
    is_janitor,
    reap,
    watch_process,
)

#: The root supervisor's only message, sent once it takes jobs.
READY = b"ready"

#: Longer than a supervisor takes to give up on a process that cannot be killed.
_FAREWELL_S = 25.0


@dataclass(frozen=True)
class SupervisionRequest:
    """A job to be supervised, in the process that was forked for it."""

    end: socket.socket
    #: Process id of hanglab itself.
    hanglab: int


@dataclass(frozen=True)
class _WatchedSupervisor:
    """A supervisor.  The copy of its channel tells hanglab, by closing, that all is clean."""

    end: socket.socket
    runtime_dir: Path


@contextmanager
def dying_with(control: socket.socket) -> Iterator[None]:
    """Within, the kernel kills this process when the other end of ``control`` is closed.

    For long work, such as importing torch, before anybody reads the socket:
    hanglab sends nothing before the root supervisor has said that it is ready.
    """
    descriptor = control.fileno()
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)  # SIGIO, which ends a process
    try:
        if readable(control, timeout=0):
            os._exit(1)
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


class RootSupervisor:
    def __init__(self, control: socket.socket) -> None:
        become_subreaper()
        self._control = control
        self._parent = os.getppid()
        self._hanglab = watch_process(self._parent)
        self._woken = ChildSignal()
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._wards: dict[int, _WatchedSupervisor] = {}
        self._lost: list[_WatchedSupervisor] = []
        self._seen: set[int] = set()

    def serve(self) -> SupervisionRequest:
        """Forks a supervisor for each job; returns in those only."""
        self._control.send(READY)
        while True:
            ready = readable(self._control, self._woken, self._hanglab, timeout=60)
            if self._woken.fileno() in ready:
                if signal.SIGTERM in self._woken.drain():
                    self._leave()
                self._tidy()
            if self._hanglab in ready or os.getppid() != self._parent:
                self._leave()
            if self._control.fileno() in ready:
                try:
                    message, descriptor = take_over(self._control)
                except ChannelClosed:
                    self._leave()
                request = self._fork(socket.socket(fileno=descriptor), message["runtime_dir"])
                if request is not None:
                    return request

    def _fork(self, end: socket.socket, runtime_dir: str) -> SupervisionRequest | None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._release()
            return SupervisionRequest(end, self._parent)
        self._wards[pid] = _WatchedSupervisor(end, Path(runtime_dir))
        return None

    def _release(self) -> None:
        self._woken.close()
        self._control.close()
        if self._hanglab is not None:
            os.close(self._hanglab)
        for ward in self._wards.values():
            ward.end.close()
        self._wards.clear()

    def _reaped(self, pid: int, _status: int) -> None:
        self._seen.add(pid)
        ward = self._wards.pop(pid, None)
        if ward is not None:
            self._lost.append(ward)

    def _tidy(self) -> None:
        """Cleans up behind supervisors that have ended; most have done so themselves."""
        reap(self._reaped)
        orphans = [pid for pid in children_of(os.getpid()) if pid not in self._wards]
        if orphans:
            below = orphans + [pid for orphan in orphans for pid in descendants_of(orphan)]
            self._seen.update(below)
            segments = leftovers.shared_memory_of(pid for pid in below if not is_janitor(pid))
            end_below(self._reaped, self._woken, spare=lambda: self._wards)
            leftovers.remove_shared_memory(segments, self._seen)
        for ward in self._lost:
            if ward.runtime_dir.exists():
                leftovers.remove_tree(ward.runtime_dir)
            ward.end.close()
        self._lost.clear()
        self._seen.clear()

    def _leave(self) -> None:
        """Ends all jobs, then this process."""
        until = time.monotonic() + _FAREWELL_S
        for pid in self._wards:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        while self._wards and time.monotonic() < until:
            readable(self._woken, timeout=1)
            self._woken.drain()
            self._tidy()
        self._wards.clear()
        end_below(self._reaped, self._woken)
        self._tidy()
        os._exit(0)
