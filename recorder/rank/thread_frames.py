"""Walking the frames of threads that go on running.

Up to Python 3.11 a garbage collection may start wherever an object is made, inside of
``frame.f_back``, too.  What it calls (a callback, a finalizer) can let another thread run, which
leaves the frame that is being looked up: the process dies.  From 3.12 on collections start only
between two instructions (python/cpython#97922).
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from types import FrameType, TracebackType

_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
#: No walk takes so many seconds: one that began earlier has been cut off.
ABANDONED_S = 1.0


class SteadyFrames:
    """A context in which no collection starts by itself; held for microseconds.

    Nobody waits for it: a signal handler of the job may ask for a dump inside of one.  A
    child that is forked meanwhile collects as its parent did.
    """

    def __init__(self) -> None:
        #: When each walk that is under way began, in monotonic seconds.
        self._begun: list[float] = []
        self._paused = False
        os.register_at_fork(after_in_child=self._resume)

    def __enter__(self) -> None:
        if not _COLLECTS_ANYWHERE:
            return
        self._begun.append(time.monotonic())
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
        with contextlib.suppress(IndexError):  # taken for abandoned meanwhile
            self._begun.pop()
        # What a handler raises may cut a walk off before it comes here.
        now = time.monotonic()
        if all(now - begun >= ABANDONED_S for begun in self._begun):
            self._resume()

    def _resume(self) -> None:
        self._begun.clear()
        if self._paused:
            self._paused = False
            gc.enable()


steady_frames = SteadyFrames()


def line_number(frame: FrameType) -> int:
    """Line that a frame is at; the jump back to a loop's head may be of none, and ends one."""
    if frame.f_lineno is not None:
        return frame.f_lineno
    spans = frame.f_code.co_lines()
    lines = [line for start, _, line in spans if start <= frame.f_lasti and line is not None]
    return lines[-1] if lines else frame.f_code.co_firstlineno
