"""Time that each thread has been waiting, in communication and for input.

A section's time is its rank's own work only as far as the rank did not wait for
others meanwhile.  The methods of ProcessGroup, ``Work.wait`` and the iterators of
DataLoader tell: what runs below them is waiting.  Collectives that C++ issues
(DistributedDataParallel's reducer) do not pass there; the groups' sequence
numbers show that there were some.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any

from hanglab.recorder.case.operations import METHODS, MONITORED_BARRIER
from hanglab.recorder.rank.hooks import Hooks
from hanglab.recorder.rank.imports import AfterImport

#: Fields of a thread's record: nanoseconds in communication and waiting for input, so
#: far; operations entered; start of the outermost wait that it is in, or 0, and which of
#: the first two it is.
COMMUNICATION, INPUT, OPERATIONS, SINCE, WHAT = range(5)
Record = list[int]

#: What a monitored barrier adds to a group's sequence number: it may stand for any number.
_ANY_NUMBER = 1 << 32


class Waits:
    """Hooks for the whole process, and a record for each thread.

    Detectors share it: ``acquire`` puts the hooks in place, the last ``release``
    takes them away.
    """

    def __init__(self) -> None:
        self.by_thread: dict[int, Record] = {}
        self._users = 0
        self._imports = AfterImport()
        self._hooks = Hooks()

    def record(self) -> Record:
        """The present thread's, made at its first call."""
        me = get_ident()
        record = self.by_thread.get(me)
        if record is None:
            # Thread numbers are used again: records of threads that ended go with the
            # next one of their number, so there are never more than threads at once.
            record = self.by_thread.setdefault(me, [0, 0, 0, 0, 0])
        return record

    def acquire(self) -> None:
        self._users += 1
        if self._users > 1:
            return
        self._imports.add("torch.distributed.distributed_c10d", self._wrap_groups)
        self._imports.add("torch.distributed._functional_collectives", self._wrap_functional)
        self._imports.add("torch.utils.data.dataloader", self._wrap_loaders)

    def release(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users:
            return
        self._imports.stop()
        self._hooks.remove()

    def _wrap(self, owner: Any, name: str, field: int, counts: int) -> None:
        if not self._hooks.has(owner, name):
            self._hooks.put(owner, name, self._timed(getattr(owner, name), field, counts))

    def _wrap_groups(self, module: ModuleType) -> None:
        from torch._C._distributed_c10d import ProcessGroup, Work

        for name in METHODS:
            if name in ProcessGroup.__dict__:
                counts = _ANY_NUMBER if name == MONITORED_BARRIER.name else 1
                self._wrap(ProcessGroup, name, COMMUNICATION, counts)
        self._wrap(Work, "wait", COMMUNICATION, 0)

    def _wrap_functional(self, module: ModuleType) -> None:
        if "wait_tensor" in module.__dict__:
            self._wrap(module, "wait_tensor", COMMUNICATION, 0)

    def _wrap_loaders(self, module: ModuleType) -> None:
        self._wrap(module._BaseDataLoaderIter, "__next__", INPUT, 0)

    def _timed(self, original: Callable[..., Any], field: int, counts: int) -> Callable[..., Any]:
        by_thread = self.by_thread
        new = self.record
        clock = time.perf_counter_ns
        thread = get_ident

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            record = by_thread.get(thread()) or new()
            record[OPERATIONS] += counts
            if record[SINCE]:  # below another wait, which has the time
                return original(*args, **kwargs)
            record[SINCE] = started = clock()
            record[WHAT] = field
            try:
                return original(*args, **kwargs)
            finally:
                record[field] += clock() - started
                record[SINCE] = 0

        wrapper.__name__ = getattr(original, "__name__", "wrapper")
        wrapper.__qualname__ = getattr(original, "__qualname__", wrapper.__name__)
        wrapper.__doc__ = original.__doc__
        wrapper.__wrapped__ = original  # type: ignore[attr-defined]
        return wrapper


#: The one of this process.
WAITS = Waits()


def operations_issued() -> int | None:
    """Sum of the sequence numbers of all the process's groups; None where there are none.

    Every collective of theirs raises it, issued from Python or from C++.
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(module, "_world", None)
    if world is None:
        return None
    total = None
    with contextlib.suppress(Exception):  # another thread may be making a group
        for group in list(world.pg_map):
            with contextlib.suppress(Exception):  # a backend without sequence numbers
                total = (total or 0) + group._get_sequence_number_for_group()
    return total
