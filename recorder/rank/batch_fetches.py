"""Time that loader workers take to make their batches.

A rank's wait for its loader does not say how slow the loader is: a batch may
have been made while the rank waited for its peers.  Workers are forked, so they
share the rank's progress file, and each writes a row of its own; the last row is
the rank's, which makes its batches itself where there are no workers.  Workers
that are spawned are not timed.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import NONE
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.system import procfs

_CLASSES = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class FetchWatch:
    """Wraps ``fetch`` of torch's fetchers; it stays in forked workers."""

    def __init__(self, progress: ProgressFile) -> None:
        self._progress = progress
        self._pid = os.getpid()
        self._installed = False

    def install(self, fetching: ModuleType) -> None:
        """``fetching`` is torch.utils.data._utils.fetch.  Installing twice does nothing."""
        if self._installed:
            return
        self._installed = True
        for name in _CLASSES:
            owner = getattr(fetching, name, None)
            if owner is not None and "fetch" in owner.__dict__:
                owner.fetch = self._wrapper(owner.__dict__["fetch"])

    def _wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        slots = self._progress.slots
        first = self._progress.at[layout.FETCHES] // 8
        width = layout.FETCHES.record // 8
        own = layout.FETCHES.capacity - 1
        pid = self._pid

        @functools.wraps(original)
        def fetch(fetcher: Any, *args: Any, **kwargs: Any) -> Any:
            kept = _kept_ns()
            started, cpu = time.time_ns(), time.thread_time_ns()
            try:
                return original(fetcher, *args, **kwargs)
            finally:
                worker = _worker_number(own)
                # A child that is no worker but loads something has no row.
                if worker < own or (worker == own and os.getpid() == pid):
                    row = first + worker * width
                    ended = time.time_ns()
                    slots[row + 1] += ended - started
                    slots[row + 2] += time.thread_time_ns() - cpu
                    slots[row + 3] = slots[row + 3] or started
                    slots[row + 4] = ended
                    if NONE in (kept, kept_by_now := _kept_ns(), slots[row + 5]):
                        slots[row + 5] = NONE
                    else:
                        slots[row + 5] += kept_by_now - kept
                    slots[row] += 1

        return fetch


def _kept_ns() -> int:
    """Nanoseconds for which this thread was ever runnable without a processor; NONE if not told.

    The file is opened each time: a worker has its own, and descriptors may be scarce.
    """
    both = procfs.run_and_delay_ns(procfs.THIS_THREAD)
    return NONE if both is None else both[1]


def _worker_number(own: int) -> int:
    """Number of the loader worker that this process is; ``own`` in the rank itself."""
    module = sys.modules.get("torch.utils.data._utils.worker")
    info = getattr(module, "_worker_info", None)
    if info is None:
        return own
    number = getattr(info, "id", None)
    # Workers beyond the table are not timed.
    return number if isinstance(number, int) and number < own else own + 1
