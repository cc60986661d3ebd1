"""Sections: named stretches of a rank's work, timed apart from its waits."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Any, Literal, TypeVar

import hanglab.recorder as recorder
from hanglab.recorder.straggler.gpu import DeviceClock, EventPair
from hanglab.recorder.straggler.kernels import KernelProfiler
from hanglab.recorder.straggler.waits import (
    COMMUNICATION,
    INPUT,
    OPERATIONS,
    WAITS,
    Record,
    operations_issued,
)

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["work", "input"]

#: Timings of a section that a window keeps: the latest.
WINDOW = 8192
#: The first entries of a window, and then every so many, are also asked for processor time
#: and for collectives that C++ issued; both cost more than the rest.
FIRST_SAMPLES = 4
SAMPLE_EVERY = 32

_clock = time.perf_counter_ns
_cpu_clock = time.thread_time_ns
_by_thread = WAITS.by_thread


class Section:
    """All entries of one name since the last report."""

    __slots__ = (
        "cpu", "device", "device_clock", "entered", "entries", "foreign", "hidden", "inside",
        "kernels", "kind", "left", "location", "name", "nested", "open", "profile_cuda",
        "raised", "samples",
    )  # fmt: skip

    def __init__(
        self, name: str, location: str, profile_cuda: bool, kind: Kind, kernels: KernelProfiler
    ) -> None:
        self.name = name
        #: Where it was first declared, ``file:line``.
        self.location = location
        self.profile_cuda = profile_cuda
        self.kind = kind
        self.kernels = kernels
        #: Entries ever, timed or not, and timed ones that were left.
        self.entered = self.left = 0
        #: Of the window: (wall, in communication, waiting for input), nanoseconds each.
        self.entries: deque[tuple[int, int, int]] = deque(maxlen=WINDOW)
        #: Processor time of the thread, of the entries that were looked at closely.
        self.cpu: deque[int] = deque(maxlen=WINDOW)
        self.samples = 0
        #: Events of the device around entries, not read yet.
        self.device: deque[EventPair] = deque(maxlen=1024)
        self.device_clock: DeviceClock | None = None
        #: Entries that are not over, with their start.
        self.open: dict[Entry, int] = {}
        #: Record of the thread that is inside, so that an entry below itself shows.
        self.inside: Record | None = None
        #: Entries of the window that were left by an exception, were left on another thread,
        #: or stood inside the same section: none of them is timed.
        self.raised = self.foreign = self.nested = 0
        #: Collectives were issued inside from C++, where nobody times the wait for them.
        self.hidden = False

    def take(self) -> tuple[deque[tuple[int, int, int]], deque[int]]:
        """The window's timings; a new window begins."""
        taken = self.entries, self.cpu
        self.entries, self.cpu = deque(maxlen=WINDOW), deque(maxlen=WINDOW)
        self.raised = self.foreign = self.nested = self.samples = 0
        return taken

    def device_times(self, keep: bool) -> list[float]:
        """Device times of the window's entries, in milliseconds, as far as the device has come."""
        clock = self.device_clock
        return [] if clock is None or keep else list(clock.read(self.device))


class Entry:
    """One entry of a section; a context manager that swallows nothing, or a decorator."""

    __slots__ = (
        "_communicated", "_cpu", "_events", "_every", "_issued", "_operations", "_profiler",
        "_read", "_recorded", "_section", "_started", "_thread",
    )  # fmt: skip

    def __init__(self, section: Section, every: int) -> None:
        self._section = section
        self._every = every
        self._thread: Record | None = None
        self._cpu = -1
        self._recorded: Any = None
        self._events: EventPair | None = None
        self._profiler: Any = None

    def __enter__(self) -> None:
        section = self._section
        number = section.entered
        section.entered = number + 1
        active = recorder._active
        if active is not None:
            self._recorded = entered = active.section(section.name)
            entered.__enter__()
        if self._every > 1 and number % self._every:
            return
        thread = _by_thread.get(get_ident()) or WAITS.record()
        if section.inside is thread:
            section.nested += 1
            return
        section.inside = self._thread = thread
        if section.hidden or section.samples < FIRST_SAMPLES or not number % SAMPLE_EVERY:
            self._look(section, thread)
        if section.device_clock is not None:
            self._begin_on_device(section, section.device_clock)
        self._communicated = thread[COMMUNICATION]
        self._read = thread[INPUT]
        self._started = section.open[self] = _clock()

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now = _clock()
        recorded = self._recorded
        if recorded is not None:
            self._recorded = None
            recorded.__exit__(type_, value, traceback)
        thread = self._thread
        if thread is None:
            return
        self._thread = None
        section = self._section
        section.left += 1
        section.open.pop(self, None)
        if section.inside is thread:
            section.inside = None
        distorted = False
        if section.device_clock is not None:
            distorted = self._end_on_device(section, type_ is None)
        if _by_thread.get(get_ident()) is not thread:
            section.foreign += 1
        elif type_ is not None:
            section.raised += 1
        elif not distorted:
            wall = now - self._started
            communicated = thread[COMMUNICATION] - self._communicated
            read = thread[INPUT] - self._read
            if section.kind == "input":
                rest = max(0, wall - communicated - read)
                thread[INPUT] += rest
                read += rest
            section.entries.append((wall, communicated, read))
            if self._cpu >= 0:
                self._close(section, thread)
        self._cpu = -1

    def _look(self, section: Section, thread: Record) -> None:
        """Look closely at this entry: processor time, collectives from C++, devices."""
        section.samples += 1
        if section.device_clock is None and section.profile_cuda:
            section.device_clock = DeviceClock.of_process()
        self._operations = thread[OPERATIONS]
        self._issued = operations_issued()
        self._cpu = _cpu_clock()

    def _close(self, section: Section, thread: Record) -> None:
        section.cpu.append(_cpu_clock() - self._cpu)
        issued = operations_issued()
        if issued is None or section.hidden:
            return
        if issued - (self._issued or 0) > thread[OPERATIONS] - self._operations:
            section.hidden = True
            # What was sampled so far is too little to go by: from now on all entries are.
            section.samples = 0

    def _begin_on_device(self, section: Section, clock: DeviceClock) -> None:
        if section.profile_cuda:
            if section.kernels.due():
                self._profiler = section.kernels.begin()
            self._events = clock.begin()

    def _end_on_device(self, section: Section, sound: bool) -> bool:
        """True if the entry had to wait for its kernels, and its time is not its own."""
        events, self._events = self._events, None
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            section.kernels.end(profiler)
            return True
        if events is not None and sound:
            events.end(section.device)
        return False

    def __call__(self, function: F) -> F:
        """As a decorator: every call of the function is an entry."""
        section, every = self._section, self._every

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Entry(section, every):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]
