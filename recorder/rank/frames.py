"""Walking the frames of threads that go on running.

Up to Python 3.11 a garbage collection may start wherever an object is made, inside of
``frame.f_back``, too.  What it calls (a callback, a finalizer) can let another thread run, which
leaves the frame that is being looked up: the process dies.  From 3.12 on collections start only
between two instructions (python/cpython#97922).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import TracebackType

_COLLECTS_ANYWHERE = sys.version_info < (3, 12)


class SteadyFrames:
    """A context in which no collection starts by itself; held for microseconds.

    One at a time; a child that is forked meanwhile collects as its parent did.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paused = False
        os.register_at_fork(after_in_child=self._after_fork)

    def __enter__(self) -> None:
        if not _COLLECTS_ANYWHERE:
            return
        self._lock.acquire()
        if gc.isenabled():
            self._paused = True
            gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not _COLLECTS_ANYWHERE:
            return
        self._resume()
        self._lock.release()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            gc.enable()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._resume()


steady_frames = SteadyFrames()
