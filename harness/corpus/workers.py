"""Worker processes that take items one by one; one that dies costs its own item alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.util import Finalize
from typing import Generic, TypeVar

from hanglab.analyzer.flight_recorder.loading import keep_reader

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items handed out for each worker, so that none is idle behind one that takes long.
_AHEAD = 4
#: Pause between two looks at whether somebody wants it to stop, in seconds.
_LOOK_S = 0.1


class WorkerDied(Exception):
    """Stands in for the result of an item that its worker did not survive."""


class WorkerPool(Generic[Item, Result]):
    """Maps ``function``, which a worker imports, over items in ``jobs`` processes.

    Each worker stands in a folder of its own, which is empty at first and gone afterwards.
    """

    def __init__(self, function: Callable[[Item], Result], jobs: int) -> None:
        self._function = function
        self._jobs = jobs

    def map(
        self, items: Sequence[Item], stop: threading.Event | None = None
    ) -> Iterator[Result | WorkerDied]:
        """Results in the order of the items; once ``stop`` is set, no more of them.

        Raises what the function raises.
        """
        stop = stop or threading.Event()
        with tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as scratch:
            begun = 0
            while begun < len(items) and not stop.is_set():
                for result in self._until_broken(items[begun:], scratch, stop):
                    begun += 1
                    yield result

    def _until_broken(
        self, items: Sequence[Item], scratch: str, stop: threading.Event
    ) -> Iterator[Result | WorkerDied]:
        """Like :meth:`map`, up to those items of which one has killed its worker."""
        pool = self._start(self._jobs, scratch)
        window: deque[tuple[Item, Future[Result]]] = deque()
        left = deque(items)
        try:
            while left or window:
                while left and len(window) < self._jobs * _AHEAD:
                    item = left.popleft()
                    window.append((item, pool.submit(self._function, item)))
                if not _is_done(window[0][1], stop):
                    return
                try:
                    yield window[0][1].result()
                except BrokenProcessPool:
                    break
                window.popleft()
        except BrokenProcessPool:
            pass  # while items were handed out
        finally:
            _close(pool, stop)
        for item, future in window:
            if stop.is_set():
                return
            if future.done() and not future.exception():
                yield future.result()
            else:
                yield self._alone(item, scratch)

    def _alone(self, item: Item, scratch: str) -> Result | WorkerDied:
        """Tries an item by itself: the pool does not say whose worker died."""
        with self._start(1, scratch) as pool:
            try:
                return pool.submit(self._function, item).result()
            except BrokenProcessPool:
                return WorkerDied("the process that analyzed it died")

    def _start(self, jobs: int, scratch: str) -> ProcessPoolExecutor:
        # Threads of a test runner, or of a progress bar, do not go well with forking.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(jobs, context, _settle, (scratch,))


def _is_done(future: Future[Result], stop: threading.Event) -> bool:
    while not stop.is_set():
        if wait([future], _LOOK_S).done:
            return True
    return False


def _close(pool: ProcessPoolExecutor, stop: threading.Event) -> None:
    if stop.is_set():
        for worker in multiprocessing.active_children():
            worker.terminate()
    pool.shutdown(cancel_futures=True)


def _settle(scratch: str) -> None:
    """Ctrl-C reaches all processes of the terminal, and is the parent's to answer.

    Dumps of all items are read by one child: each item has few, and to fork takes longer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(tempfile.mkdtemp(dir=scratch))
    Finalize(None, keep_reader(), exitpriority=0)
