"""A child process that serves one pool after the other.

To fork costs more than to read the few small dumps of one Case: whoever reads a thousand Cases
keeps one child for all of them.  It is held to the same limits, and one that dies is replaced.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import struct
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from hanglab.analyzer.flight_recorder.worker_pool import (
    COLLECT_EVERY,
    Child,
    Limits,
    Pool,
    address_space,
    reply,
    settle,
    write,
)

T = TypeVar("T")
R = TypeVar("R")

_SIZE = struct.Struct("<Q")


class KeptChild:
    """The place where the child waits between two pools; the forks of this process have none."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._owner = os.getpid()

    def take(self) -> Child | None:
        """The child, for whoever has it now; None where there is none."""
        child, self._child = self._child, None
        return child if self._owner == os.getpid() else None

    def put(self, child: Child) -> None:
        self._child, self._owner = child, os.getpid()

    def end(self) -> None:
        """End the child, which waits for work, and wait until it has ended."""
        child = self.take()
        if child is not None:
            os.close(child.tasks)
            os.close(child.replies)
            os.waitpid(child.pid, 0)


class KeptChildPool(Pool[T, R]):
    """A pool of one child, the one that is kept where there is one.

    The child may be older than function and items, so both are sent to it: the function must be
    one that can be pickled.
    """

    def __init__(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        limits: Callable[[T], Limits],
        *,
        kept: KeptChild,
    ) -> None:
        super().__init__(function, items, limits, count=1)
        self._kept = kept

    def _start(self) -> None:
        child = self._kept.take()
        if child is None:
            super()._start()
        else:
            self._add(child)

    def _feed(self, child: Child) -> None:
        # One at a time: of two that write to each other neither would read.
        if not self._waiting or child.assigned:
            return
        child.since = time.monotonic()
        number = self._waiting.popleft()
        child.assigned.append(number)
        item = self._items[number]
        message = pickle.dumps((number, self._function, item, self._limits(item)), protocol=5)
        # If the child is gone, the end of its replies tells.
        with contextlib.suppress(BrokenPipeError):
            write(child.tasks, _SIZE.pack(len(message)) + message)

    def _release(self, child: Child) -> None:
        if child.assigned:
            self._end(child)
        else:
            self._remove(child)
            self._kept.put(child)

    # In the child.

    def _serve(self, tasks: int, replies: int) -> None:
        settle()
        served = 0
        with open(tasks, "rb") as messages:
            while len(size := messages.read(_SIZE.size)) == _SIZE.size:
                number, function, item, limits = pickle.loads(messages.read(_SIZE.unpack(size)[0]))
                # What earlier items have left behind is not this one's.
                reply(replies, number, function, item, limits, address_space())
                served += 1
                if served % COLLECT_EVERY == 0:
                    gc.collect()
