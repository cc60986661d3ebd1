"""Run-queue delay: time that a thread was ready to run and had no processor, by the kernel."""

from __future__ import annotations

import threading
from pathlib import Path

from hanglab.recorder.slowness import RunQueue

_COUNT = Path("/proc/thread-self/schedstat")


class RunQueueDelay:
    """The waits of the thread that reports, window by window."""

    def __init__(self) -> None:
        self._before = _read()

    def take(self) -> RunQueue | None:
        """The waits since the last call; None where the kernel does not count, and where
        another thread called last."""
        before, self._before = self._before, _read()
        if before is None or self._before is None or before[0] != self._before[0]:
            return None
        ran, delay = (max(0, self._before[1][i] - before[1][i]) / 1e6 for i in (0, 1))
        return RunQueue(delay, ran)


def _read() -> tuple[int, tuple[int, int]] | None:
    """The calling thread, and the nanoseconds that it has run and waited so far."""
    try:
        ran, waited, *_ = map(int, _COUNT.read_bytes().split())
        return threading.get_ident(), (ran, waited)
    except (OSError, ValueError):
        return None
