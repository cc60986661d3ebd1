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


#: Gets what its caller is to call from now on.
Use = Callable[[Callable[..., Any]], None]


class WaitTimer:
    """Times the waits of the whole process, with a record for each thread.

    A method that waits is wrapped once.  Where the recorder wraps it, the wrapper follows the
    timer: it calls the original, or what times it while anybody wants to know.  The others are
    wrapped here, from the first ``acquire`` to the last ``release``.
    """

    def __init__(self) -> None:
        self.by_thread: dict[int, Record] = {}
        self._users = 0
        #: Owners of methods that somebody else has wrapped, and his wrappers: how each is told
        #: what to call, the original, and what times it.
        self._entrusted: list[tuple[object, type]] = []
        self._following: list[tuple[object, Use, Callable[..., Any], Callable[..., Any]]] = []
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
        if self._users == 1:
            self._tell()
            self._place()

    def release(self) -> None:
        self._users = max(0, self._users - 1)
        if not self._users:
            self._tell()
            self._imports.stop()
            self._hooks.remove()

    def entrust(self, who: object, *owners: type) -> None:
        """The wrappers over these owners' methods are ``who``'s, and follow."""
        self._entrusted.extend((who, owner) for owner in owners)
        for owner in owners:
            self._hooks.remove(owner)

    def follow(
        self, who: object, original: Callable[..., Any], field: int, operations: int, use: Use
    ) -> None:
        """Have ``use`` called now, and whenever it changes, with what is to be called."""
        timed = self.timed(original, field, operations)
        self._following.append((who, use, original, timed))
        use(timed if self._users else original)

    def take_back(self, who: object) -> None:
        """The wrappers of ``who`` are gone."""
        self._entrusted = [(one, owner) for one, owner in self._entrusted if one is not who]
        self._following = [one for one in self._following if one[0] is not who]
        if self._users:
            self._place()

    def _tell(self) -> None:
        for _, use, original, timed in self._following:
            use(timed if self._users else original)

    def _place(self) -> None:
        self._imports.add("torch.distributed.distributed_c10d", self._wrap_groups)
        self._imports.add("torch.distributed._functional_collectives", self._wrap_functional)
        self._imports.add("torch.utils.data.dataloader", self._wrap_loaders)

    def _wrap(self, owner: Any, name: str, field: int, counts: int) -> None:
        entrusted = any(owner is one for _, one in self._entrusted)
        if not entrusted and not self._hooks.has(owner, name):
            self._hooks.put(owner, name, self.timed(getattr(owner, name), field, counts))

    def _wrap_groups(self, module: ModuleType) -> None:
        from torch._C._distributed_c10d import ProcessGroup, Work

        for name in METHODS:
            if name in ProcessGroup.__dict__:
                self._wrap(ProcessGroup, name, COMMUNICATION, operations_of(name))
        self._wrap(Work, "wait", COMMUNICATION, 0)

    def _wrap_functional(self, module: ModuleType) -> None:
        if "wait_tensor" in module.__dict__:
            self._wrap(module, "wait_tensor", COMMUNICATION, 0)

    def _wrap_loaders(self, module: ModuleType) -> None:
        self._wrap(module._BaseDataLoaderIter, "__next__", INPUT, 0)

    def timed(self, original: Callable[..., Any], field: int, counts: int) -> Callable[..., Any]:
        """``original``, each call of which is a wait, and enters ``counts`` operations."""
        by_thread = self.by_thread
        new = self.record
        clock = time.monotonic_ns
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
WAIT_TIMER = WaitTimer()


def operations_of(method: str) -> int:
    """Operations that a call of a group's method may add to its sequence number."""
    return _ANY_NUMBER if method == MONITORED_BARRIER.name else 1


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
