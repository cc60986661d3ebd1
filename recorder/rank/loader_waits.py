"""Time that a rank waits for its DataLoader, and the workers that serve it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from hanglab.recorder.rank import wait_timer
from hanglab.recorder.rank.error_guard import GUARD
from hanglab.recorder.rank.hooks import Hooked
from hanglab.recorder.rank.loader_queues import LoaderQueues
from hanglab.recorder.rank.sections import INPUT, SectionFactory
from hanglab.recorder.rank.wait_timer import WAIT_TIMER

#: Name of the section that a wait for a batch is recorded as.
SECTION = "dataloader"


class LoaderWatch(Hooked):
    """Wraps ``__next__`` of torch's DataLoader iterators, and what ends their workers.

    Waits are timed there, too, while anybody wants to know that (``wait_timer``).
    ``delivered(batch)`` is called with each batch that the job gets; ``queues``
    hears of iterators that have workers.
    ``before_end(workers)`` is called before an iterator joins the workers that it
    counts on: afterwards nobody could tell that one was dead already.
    """

    def __init__(
        self,
        section: SectionFactory,
        delivered: Callable[[object], None],
        before_end: Callable[[Iterable[Any]], None],
        queues: LoaderQueues,
    ) -> None:
        super().__init__()
        self._section = section
        self._queues = queues
        self._delivered = delivered
        self._before_end = before_end
        #: By process id, every worker that was started and not yet found to have ended.
        self.workers: dict[int, Any] = {}
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self, dataloader: ModuleType) -> None:
        """``dataloader`` is torch.utils.data.dataloader.  Installing twice does nothing."""
        if self._hooks:
            return
        base = dataloader._BaseDataLoaderIter
        WAIT_TIMER.entrust(self, base)
        self._hooks.put(base, "__next__", self._next_wrapper(base.__dict__["__next__"]))
        workers = dataloader._MultiProcessingDataLoaderIter
        self._hooks.put(workers, "__init__", self._init_wrapper(workers.__dict__["__init__"]))
        end = workers.__dict__.get("_shutdown_workers")
        if end is not None:
            self._hooks.put(workers, "_shutdown_workers", self._end_wrapper(end))

    def uninstall(self) -> None:
        super().uninstall()
        WAIT_TIMER.take_back(self)

    def serving(self) -> Iterator[Any]:
        """The worker processes that a live iterator still counts on."""
        for iterator in list(self._iterators):
            yield from _serving(iterator)

    def _next_wrapper(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        section = self._section
        delivered = self._delivered
        handed_out = self._queues.delivered
        fetch = original

        def use(now: Callable[..., Any]) -> None:
            nonlocal fetch
            fetch = now

        WAIT_TIMER.follow(self, original, wait_timer.INPUT, 0, use)

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            with section(SECTION, INPUT):
                batch = fetch(iterator)
            with GUARD:
                delivered(batch)
                handed_out(iterator)
            return batch

        return __next__

    def _init_wrapper(self, original: Callable[..., None]) -> Callable[..., None]:
        iterators = self._iterators
        started = self.workers
        queues = self._queues

        @functools.wraps(original)
        def __init__(iterator: Any, *args: Any, **kwargs: Any) -> None:
            original(iterator, *args, **kwargs)
            iterators.add(iterator)
            started.update((worker.pid, worker) for worker in getattr(iterator, "_workers", ()))
            with GUARD:
                queues.add(iterator)

        return __init__

    def _end_wrapper(self, original: Callable[..., None]) -> Callable[..., None]:
        before_end = self._before_end
        queues = self._queues

        @functools.wraps(original)
        def _shutdown_workers(iterator: Any, *args: Any, **kwargs: Any) -> None:
            with GUARD:
                before_end(_serving(iterator))
                queues.end(iterator)
            original(iterator, *args, **kwargs)

        return _shutdown_workers


def _serving(iterator: Any) -> list[Any]:
    if getattr(iterator, "_shutdown", True):
        return []
    workers = getattr(iterator, "_workers", ())
    status = getattr(iterator, "_workers_status", ())
    # A worker of an exhausted iterable data set has said goodbye: no status.
    return [worker for worker, serves in zip(workers, status, strict=False) if serves]
