"""Child processes that ended before the rank did, seen without reaping them.

Who waits for a child must still find it: torch's DataLoader learns from its own
look at a dead worker why it died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class ChildWatch:
    """Looks for dead children of multiprocessing.

    ``serving`` gives the loader workers that are still counted on; ``workers`` are
    all that were started, by process id, and those that have ended are taken out.
    A loader that notices a dead worker itself counts on it no longer, and
    multiprocessing forgets it.  Of children that nobody counts on only a failing
    end is told.
    """

    def __init__(
        self,
        serving: Callable[[], Iterable[Any]],
        workers: dict[int, Any],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self._serving = serving
        self._workers = workers
        self._tell = tell
        #: Ended, and told if there was anything to tell.
        self._settled: set[int] = set()
        self._looking = threading.RLock()

    def look(self, workers: Iterable[Any] = ()) -> None:
        """Tell of the children found dead since the last look, as records.ChildExit has them.

        ``workers`` are counted on as well as those that ``serving`` gives.
        """
        # Whoever has looked may leave: what another thread has found is told by then.
        with self._looking:
            for worker in (*workers, *self._serving()):
                self._look_at(worker, counted_on=True)
            for pid, worker in list(self._workers.items()):
                if self._look_at(worker, counted_on=False):
                    self._workers.pop(pid, None)
            process = sys.modules.get("multiprocessing.process")
            for child in list(getattr(process, "_children", ())):
                self._look_at(child, counted_on=False)

    def look_at_all(self) -> None:
        """Look at children of ``subprocess`` and ``os.fork``, too: dead, and asked for by nobody.

        Of a rank that fails: a program that goes on may well be about to ask for their end.
        """
        self.look()
        with self._looking:
            for pid in _children(os.getpid()):
                self._look_at(_Unknown(pid), counted_on=False)

    def _look_at(self, child: Any, counted_on: bool) -> bool:
        """True if there is no more to be seen of it."""
        try:
            pid = child.pid
        except ValueError:  # closed
            return True
        if pid in self._settled:
            return True
        if pid is None:
            return False
        end = _end_of(pid, getattr(getattr(child, "_popen", None), "returncode", None))
        if end is None:
            return False
        worker = counted_on or pid in self._workers
        # A loader that shuts down ends its slow workers by SIGTERM.
        quiet = end == (0, None) or (worker and end == (None, signal.SIGTERM))
        if counted_on or not quiet:
            self._tell(
                {
                    "at": {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()},
                    "pid": pid,
                    "kind": "worker" if worker else "child",
                    "code": end[0],
                    "signal": end[1],
                    "name": str(getattr(child, "name", "")),
                }
            )
        self._settled.add(pid)
        return True


class _Unknown(NamedTuple):
    """A child of which only its process id is known."""

    pid: int


def _children(pid: int) -> list[int]:
    """Process ids of the living and the dead ones, and of what is below them."""
    with contextlib.suppress(OSError, ImportError):  # no file can be opened any more
        from hanglab.recorder.system import procfs

        return procfs.descendants([pid])[pid]
    return []


def _end_of(pid: int, returncode: int | None) -> tuple[int | None, int | None] | None:
    """(code, signal) of a dead child; None while it lives or where nobody can tell."""
    if returncode is not None:  # reaped by multiprocessing
        return (returncode, None) if returncode >= 0 else (None, -returncode)
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return None
    if info is None:
        return None
    if info.si_code == os.CLD_EXITED:
        return info.si_status, None
    return None, info.si_status
