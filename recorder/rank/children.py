"""Child processes that ended before the rank did, seen without reaping them.

Who waits for a child must still find it: torch's DataLoader learns from its own
look at a dead worker why it died.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any


class ChildWatch:
    """Looks for dead children of multiprocessing.

    ``serving`` gives the loader workers that are still counted on, and
    ``is_worker`` says of any process id whether it was a loader's worker.  Of
    children that nobody counts on only a failing end is told.
    """

    def __init__(
        self, serving: Callable[[], Iterable[Any]], is_worker: Callable[[int], bool]
    ) -> None:
        self._serving = serving
        self._is_worker = is_worker
        self._told: set[int] = set()

    def look(self, workers: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Children found dead since the last look, as records.ChildExit has them.

        ``workers`` are counted on as well as those that ``serving`` gives.
        """
        found: list[dict[str, Any]] = []
        for worker in (*workers, *self._serving()):
            self._look_at(worker, found, counted_on=True)
        process = sys.modules.get("multiprocessing.process")
        for child in list(getattr(process, "_children", ())):
            self._look_at(child, found, counted_on=False)
        return found

    def _look_at(self, child: Any, found: list[dict[str, Any]], counted_on: bool) -> None:
        try:
            pid = child.pid
        except ValueError:  # closed
            return
        if pid is None or pid in self._told:
            return
        end = _end_of(pid, getattr(getattr(child, "_popen", None), "returncode", None))
        if end is None:
            return
        worker = counted_on or self._is_worker(pid)
        # A loader that shuts down ends its slow workers by SIGTERM.
        if not counted_on and (end == (0, None) or (worker and end == (None, signal.SIGTERM))):
            return
        self._told.add(pid)
        found.append(
            {
                "at": {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()},
                "pid": pid,
                "kind": "worker" if worker else "child",
                "code": end[0],
                "signal": end[1],
                "name": str(getattr(child, "name", "")),
            }
        )


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
