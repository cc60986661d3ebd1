"""The end of a job whose owner wants hangs to be ended: its ranks are asked, then killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping

from hanglab.recorder.system import procfs

#: Seconds between the request and the end by force: launchers end their other ranks meanwhile.
_ASKED_S = 10.0


def end_job(ranks: Mapping[int, int]) -> None:
    """Ends ranks by their process ids and starts, as of which an id is no later process's."""
    _send(ranks, signal.SIGTERM)
    # What is stopped hears of it only once it goes on.
    _send(ranks, signal.SIGCONT)
    until = time.monotonic() + _ASKED_S
    while _alive(ranks) and time.monotonic() < until:
        time.sleep(0.1)
    _send(ranks, signal.SIGKILL)


def _alive(ranks: Mapping[int, int]) -> list[int]:
    found = []
    for pid, started in ranks.items():
        stat = procfs.stat(pid)
        if stat is not None and stat.started == started and stat.state not in "ZX":
            found.append(pid)
    return found


def _send(ranks: Mapping[int, int], number: signal.Signals) -> None:
    for pid in _alive(ranks):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
