"""The processes below this one: finding them, and ending them until none is left.

Needs Linux.  A subreaper inherits every orphan below it, also one that called
setsid or forked twice, so nothing leaves its tree while it lives.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from hanglab.harness.launchers.supervision.channel import readable
from hanglab.recorder.system import procfs

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: How long the helpers that clean up after a dead process get to do so.
_JANITOR_PATIENCE_S = 1.0
#: How long processes get to come to a stop; one in the kernel may take longer.
_FREEZE_S = 0.25
_JANITORS = ("multiprocessing.resource_tracker", "torch_shm_manager")

#: Called with the process id and the wait status of each child that was reaped.
Reaped = Callable[[int, int], None]


def become_subreaper() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Lets the kernel kill this process when the thread that forked it ends.

    Only a second belt: it follows a thread, and grandchildren do not have it.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def watch_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None on a kernel before 5.3."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class ChildSignal:
    """Makes SIGCHLD wake a ``select``: the descriptor is readable when a child has ended."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> bytes:
        """The numbers of the signals that have come since the last call."""
        with suppress(BlockingIOError):
            return os.read(self._read, 4096)
        return b""

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)


def reap(reaped: Reaped) -> bool:
    """Collects every child that has ended; False if there are no children at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        reaped(pid, status)


def children_of(pid: int) -> list[int]:
    """Children in the order in which they were started, with those that are not reaped yet."""
    if not _kernel_lists_children():
        stats = {other: procfs.stat(other) for other in procfs.everyone()}
        return [other for other, stat in stats.items() if stat is not None and stat.ppid == pid]
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


@functools.cache
def _kernel_lists_children() -> bool:
    return os.path.exists("/proc/thread-self/children")


def descendants_of(pid: int) -> list[int]:
    """Every process below ``pid``, parents before their children."""
    found: list[int] = []
    pending = children_of(pid)
    while pending:
        found += pending
        pending = [child for parent in pending for child in children_of(parent)]
    return found


def is_janitor(pid: int) -> bool:
    """True if it exists to remove what a process leaves behind, once that one has ended."""
    line = "\0".join(procfs.command_line(pid))
    return any(name in line for name in _JANITORS)


def freeze_below(spare: Collection[int] = ()) -> list[int]:
    """Stops every descendant but janitors, so that none sees the others end; returns them all.

    ``spare`` are children that are left alone with all below them.

    Otherwise the last ranks to go would write in their logs, and into the Case,
    that their peers are gone.
    """
    root = os.getpid()
    until = time.monotonic() + _FREEZE_S
    stopped: set[int] = set()
    while True:
        below = list(_below(set(spare)))
        moving = [pid for pid in below if procfs.state(pid) not in "TtZX" and not is_janitor(pid)]
        fresh = [pid for pid in below if pid not in stopped and not is_janitor(pid)]
        if (not moving and not fresh) or time.monotonic() > until:
            return below
        for pid in fresh:
            _send(pid, root, signal.SIGSTOP)
        stopped.update(fresh)
        time.sleep(0.001)


def end_below(
    reaped: Reaped,
    woken: ChildSignal,
    spare: Callable[[], Iterable[int]] = tuple,
    deadline_s: float = 20.0,
) -> list[int]:
    """Kills all descendants of this process, except the children that ``spare`` names.

    Children orphaned on the way come to this process, which has to be a
    subreaper, and are killed in turn.  Returns those that would not go in time.
    """
    begun = time.monotonic()
    while True:
        some = reap(reaped)
        woken.drain()
        spared = set(spare())
        left = list(_below(spared)) if some else []
        waited = time.monotonic() - begun
        # The kernel's word counts: a list of processes can miss one that is just moving.
        if not some or (spared and not left) or waited > deadline_s:
            return left
        janitors = {pid for pid in left if is_janitor(pid)}
        for pid in left:
            # A janitor goes by itself once those it serves have gone, unless it is stopped.
            if pid not in janitors or waited > _JANITOR_PATIENCE_S or procfs.state(pid) in "Tt":
                _send(pid, os.getpid(), signal.SIGKILL)
        readable(woken, timeout=0.02)


def _below(spared: set[int]) -> Iterator[int]:
    me = os.getpid()
    for child in children_of(me):
        if child not in spared:
            yield child
            yield from descendants_of(child)


def _send(pid: int, root: int, number: signal.Signals) -> None:
    """Signals ``pid`` if it still is below ``root``: its number may have been given away."""
    handle = watch_process(pid)
    try:
        if not _is_below(pid, root):
            return
        with suppress(ProcessLookupError, PermissionError):
            if handle is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    finally:
        if handle is not None:
            os.close(handle)


def _is_below(pid: int, root: int) -> bool:
    stat = procfs.stat(pid)
    while stat is not None and stat.ppid > 1 and stat.ppid != root:
        stat = procfs.stat(stat.ppid)
    return stat is not None and stat.ppid == root
