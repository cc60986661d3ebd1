"""Runs a function over many items in processes that may die.

A child is a fork: it starts in about a millisecond, knows the items and the
function already, and is held to limits of memory and processor time by the
kernel.  Whatever an item does to its child costs only that item.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import resource
import selectors
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_INDEX = struct.Struct("<q")
_HEADER = struct.Struct("<qBQ")
_DONE, _LOST, _BROKEN = range(3)
#: Items that a child has in hand, so that it never waits for the next one.
_AHEAD = 3
#: Wall time over processor time that is granted: other programs run too, disks are slow.
_WALL_FACTOR = 6.0
_WALL_GRACE_S = 10.0
#: Items after which a child collects garbage.
COLLECT_EVERY = 16
_DEATH_S = 5.0


@dataclass(frozen=True)
class Lost:
    """An item that yielded nothing, and why."""

    reason: str


@dataclass(frozen=True)
class Limits:
    """Limits of one item: processor seconds, and bytes beyond what the parent has."""

    seconds: float
    memory: int


@dataclass
class Child:
    """A process that serves, by the ends of the pipes to it."""

    pid: int
    tasks: int  # file descriptor to write item numbers to
    replies: int
    assigned: deque[int] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)
    #: When it was last heard of or last given work after having none.
    since: float = 0.0


class Pool(Generic[T, R]):
    """``function`` over ``items`` in ``count`` children.

    Results of a child are unpickled here: they are made by ``function``, which
    must not hand on objects of unknown classes.
    """

    def __init__(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        limits: Callable[[T], Limits],
        *,
        count: int,
    ) -> None:
        self._function = function
        self._items = items
        self._limits = limits
        self._count = max(1, min(count, len(items)))
        self._children: dict[int, Child] = {}  # by the descriptor of their replies
        self._waiting = deque(range(len(items)))
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()

    def run(self) -> Iterator[tuple[int, R | Lost]]:
        """Pairs of an item's number and its result, as they come; every item once."""
        left = len(self._items)
        try:
            while left:
                while self._waiting and len(self._children) < self._count:
                    self._start()
                for child in list(self._children.values()):
                    self._feed(child)
                for key, _ in self._selector.select(timeout=1.0):
                    for answer in self._receive(self._children[key.fd]):
                        left -= 1
                        yield answer
                now = time.monotonic()
                for child in list(self._children.values()):
                    if child.assigned and now - child.since > self._patience(child):
                        left -= 1
                        yield self._bury(child, "could not be read in time")
        finally:
            for child in list(self._children.values()):
                self._release(child)
            self._selector.close()

    def _patience(self, child: Child) -> float:
        seconds = self._limits(self._items[child.assigned[0]]).seconds
        return _WALL_FACTOR * seconds + _WALL_GRACE_S

    def _start(self) -> None:
        task_read, task_write = os.pipe()
        reply_read, reply_write = os.pipe()
        with warnings.catch_warnings():
            # Other threads of this process do not exist in the child, and it needs none.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                for other in self._children.values():
                    os.close(other.tasks)
                    os.close(other.replies)
                os.close(task_write)
                os.close(reply_read)
                self._serve(task_read, reply_write)
            finally:
                os._exit(1)
        os.close(task_read)
        os.close(reply_write)
        with contextlib.suppress(AttributeError, OSError):
            import fcntl

            fcntl.fcntl(reply_read, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(reply_read, False)
        self._add(Child(pid, task_write, reply_read))

    def _add(self, child: Child) -> None:
        self._children[child.replies] = child
        self._selector.register(child.replies, selectors.EVENT_READ)

    def _remove(self, child: Child) -> None:
        del self._children[child.replies]
        self._selector.unregister(child.replies)

    def _feed(self, child: Child) -> None:
        # Near the end each child gets one item at a time, so that none waits for another.
        ahead = _AHEAD if len(self._waiting) > _AHEAD * self._count else 1
        while self._waiting and len(child.assigned) < ahead:
            if not child.assigned:
                child.since = time.monotonic()
            number = self._waiting.popleft()
            child.assigned.append(number)
            # If the child is gone, the end of its replies tells.
            with contextlib.suppress(BrokenPipeError):
                os.write(child.tasks, _INDEX.pack(number))

    def _receive(self, child: Child) -> Iterator[tuple[int, R | Lost]]:
        try:
            piece = os.read(child.replies, 1 << 20)
        except BlockingIOError:
            return
        if not piece:
            if child.assigned:
                yield self._bury(child, "")
            else:
                self._end(child, dying=True)
            return
        child.received += piece
        child.since = time.monotonic()
        while len(child.received) >= _HEADER.size:
            number, kind, size = _HEADER.unpack_from(child.received)
            end = _HEADER.size + size
            if len(child.received) < end:
                return
            value = pickle.loads(memoryview(child.received)[_HEADER.size : end])
            del child.received[:end]
            child.assigned.remove(number)
            if kind == _BROKEN:
                raise RuntimeError(f"a worker failed:\n{value}")
            yield number, (Lost(value) if kind == _LOST else value)

    def _bury(self, child: Child, reason: str) -> tuple[int, Lost]:
        """The child died or must: its first item is to blame, the others go elsewhere."""
        number = child.assigned.popleft()
        self._waiting.extendleft(reversed(child.assigned))
        status = self._end(child, dying=not reason)
        if not reason:
            seconds = self._limits(self._items[number]).seconds
            reason = _cause_of_death(status, seconds)
        return number, Lost(reason)

    def _release(self, child: Child) -> None:
        """Let a child go that is not needed any more."""
        self._end(child)

    def _end(self, child: Child, *, dying: bool = False) -> int | None:
        """Ends a child, or waits for one that has closed its pipe; its status if it died."""
        self._remove(child)
        os.close(child.tasks)
        os.close(child.replies)
        if dying and (status := _await(child.pid)) is not None:
            return status
        # Not yet waited for, so the id is still this child's.
        os.kill(child.pid, signal.SIGKILL)
        _await(child.pid)
        return None

    # In the child.

    def _serve(self, tasks: int, replies: int) -> None:
        settle()
        base = address_space()
        served = 0
        while True:
            message = os.read(tasks, _INDEX.size)
            if len(message) < _INDEX.size:
                return
            number = _INDEX.unpack(message)[0]
            item = self._items[number]
            reply(replies, number, self._function, item, self._limits(item), base)
            served += 1
            if served % COLLECT_EVERY == 0:
                gc.collect()


def reply(
    replies: int, number: int, function: Callable[[T], R], item: T, limits: Limits, base: int
) -> None:
    """Write the result of one item, held to its limits beyond ``base`` bytes."""
    _limit_memory(base + limits.memory)
    signal.setitimer(signal.ITIMER_PROF, limits.seconds)
    try:
        kind, payload = _answer(function, item)
    except MemoryError:
        gc.collect()
        kind, payload = _LOST, pickle.dumps("asks for more memory than a dump needs")
    signal.setitimer(signal.ITIMER_PROF, 0)
    write(replies, _HEADER.pack(number, kind, len(payload)) + payload)


def _answer(function: Callable[[T], R], item: T) -> tuple[int, bytes]:
    try:
        value = function(item)
    except MemoryError:
        raise
    except Exception as error:
        return _LOST, pickle.dumps(f"could not be read: {type(error).__name__}: {error}"[:500])
    try:
        return _DONE, pickle.dumps(value, protocol=5)
    except MemoryError:
        raise
    except Exception:
        return _BROKEN, pickle.dumps(traceback.format_exc())


def settle() -> None:
    """Makes a fork of an unknown process a quiet, mortal one."""
    # Cyclic garbage is rare here; collecting while decoding would cost a third of the time.
    gc.disable()
    gc.freeze()
    faulthandler.disable()
    # CPython prints what it cannot raise; reasons go through the pipe.
    sys.stderr = None
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    for number in (signal.SIGTERM, signal.SIGPROF, signal.SIGALRM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _await(pid: int) -> int | None:
    """The status of a child that ends; None if it is stuck, as in a dead file system."""
    deadline = time.monotonic() + _DEATH_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.0005)
    return None


def address_space() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0  # no such file outside Linux, where the limit has no effect either


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _cause_of_death(status: int | None, seconds: float) -> str:
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGPROF:
            return f"takes more than {seconds:g} s of processor time"
        with contextlib.suppress(ValueError):
            return f"makes its reader die of {signal.Signals(number).name}"
    return "makes its reader die"


def usable_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
