"""Run-queue delay: time that a thread was ready to run and had no processor, by the kernel."""

from __future__ import annotations

import threading
from pathlib import Path

_COUNT = Path("/proc/thread-self/schedstat")


class RunQueueDelay:
    """The waits of the thread that reports, window by window."""

    def __init__(self) -> None:
        self._before = _read()

    def take(self) -> float | None:
        """Milliseconds since the last call; None where the kernel does not count, and where
        another thread called last."""
        before, self._before = self._before, _read()
        if before is None or self._before is None or before[0] != self._before[0]:
            return None
        return max(0, self._before[1] - before[1]) / 1e6


def _read() -> tuple[int, int] | None:
    """The calling thread, and the nanoseconds that it has waited so far."""
    try:
        return threading.get_ident(), int(_COUNT.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
