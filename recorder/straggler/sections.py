"""Sections of a detector: what the recorder times, kept apart from the rank's waits meanwhile."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar

import hanglab.recorder as recorder
from hanglab.recorder.rank.private_progress import private_section
from hanglab.recorder.rank.sections import Section
from hanglab.recorder.rank.wait_timer import (
    COMMUNICATION,
    INPUT,
    OPERATIONS,
    WAIT_TIMER,
    Record,
    operations_issued,
)
from hanglab.recorder.straggler.gpu import DeviceClock, EventPair
from hanglab.recorder.straggler.kernels import KernelProfiler

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["work", "input"]
#: Of an entry, in nanoseconds: its wall time; with what of it was communication, and waiting for
#: input, where there was any.
Timing: TypeAlias = "int | tuple[int, int, int]"

#: Timings of a section that a window keeps: the latest.
WINDOW = 8192
#: The first entries of a window, and then every so many, are also asked for collectives that
#: C++ issued, which costs more than the rest; of these the processor time is kept.
FIRST_SAMPLES = 4
SAMPLE_EVERY = 32

_by_thread = WAIT_TIMER.by_thread


class SectionEntries:
    """All entries of one name since the last report."""

    __slots__ = (
        "closely", "cpu", "device", "device_clock", "entered", "entries", "foreign", "hidden",
        "inside", "kernels", "kind", "location", "name", "nested", "open", "profile_cuda",
        "raised", "samples", "timer", "waited",
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
        #: Times entries while nobody records the process.
        self.timer = private_section()
        #: Entries ever, timed or not.
        self.entered = 0
        #: Of the window.
        self.entries: deque[Timing] = deque(maxlen=WINDOW)
        #: Some entry ever held a wait.
        self.waited = False
        #: Processor time of the thread, of the entries that were looked at closely.
        self.cpu: deque[int] = deque(maxlen=WINDOW)
        self.samples = 0
        #: Events of the device around entries, not read yet.
        self.device: deque[EventPair] = deque(maxlen=1024)
        self.device_clock: DeviceClock | None = None
        #: Entries that are not over.
        self.open: dict[Entry, Section] = {}
        #: Record of the thread that is inside, so that an entry below itself shows.
        self.inside: Record | None = None
        #: Entries of the window that were left by an exception, were left on another thread,
        #: or stood inside the same section: none of them is timed.
        self.raised = self.foreign = self.nested = 0
        #: Collectives were issued inside from C++, where nobody times the wait for them.
        self.hidden = False
        #: Every entry is looked at closely, not only some.
        self.closely = True

    def take(self) -> tuple[deque[Timing], deque[int]]:
        """The window's timings; a new window begins."""
        taken = self.entries, self.cpu
        self.entries, self.cpu = deque(maxlen=WINDOW), deque(maxlen=WINDOW)
        self.raised = self.foreign = self.nested = self.samples = 0
        self.closely = True
        return taken

    def device_times(self, keep: bool) -> list[float]:
        """Device times of the window's entries, in milliseconds, as far as the device has come."""
        clock = self.device_clock
        return [] if clock is None or keep else list(clock.read(self.device))


class _More:
    """Parts that only entries need that are looked at closely."""

    __slots__ = ("events", "issued", "operations", "profiler")

    def __init__(self) -> None:
        self.issued: int | None = None
        self.operations = 0
        self.events: EventPair | None = None
        self.profiler: Any = None


class Entry:
    """One entry of a section; a context manager that swallows nothing, or a decorator."""

    __slots__ = ("_communicated", "_every", "_more", "_read", "_section", "_thread", "_timed")

    _communicated: int
    _read: int

    def __init__(self, section: SectionEntries, every: int) -> None:
        self._section = section
        self._every = every
        self._timed: Section | None = None
        self._thread: Record | None = None
        self._more: _More | None = None

    # These two run at every step of the job: what is rare stands in functions of its own.

    def __enter__(self) -> None:
        section = self._section
        number = section.entered
        section.entered = number + 1
        active = recorder._active
        self._timed = timed = (section.timer if active is None else active.section)(section.name)
        if number % self._every:
            timed.__enter__()
            return
        thread = _by_thread.get(get_ident()) or WAIT_TIMER.record()
        if section.inside is thread:
            section.nested += 1
            timed.__enter__()
            return
        section.inside = self._thread = thread
        if section.closely or not number % SAMPLE_EVERY:
            self._look(section, thread)
        self._communicated = thread[COMMUNICATION]
        self._read = thread[INPUT]
        section.open[self] = timed
        timed.__enter__()

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        timed = self._timed
        if timed is None:
            return
        timed.__exit__(type_, value, traceback)
        self._timed = None
        thread = self._thread
        if thread is None:
            return
        self._thread = None
        section = self._section
        section.open.pop(self, None)
        if section.inside is thread:
            section.inside = None
        more = self._more
        if more is not None:
            self._more = None
            if self._leave_device(section, more, type_ is None):
                return
        if _by_thread.get(get_ident()) is not thread:
            section.foreign += 1
            return
        if type_ is not None:
            section.raised += 1
            return
        wall = timed.wall
        communicated = thread[COMMUNICATION] - self._communicated
        read = thread[INPUT] - self._read
        if section.kind == "input":
            rest = max(0, wall - communicated - read)
            thread[INPUT] += rest
            read += rest
        if communicated or read:
            section.waited = True
            section.entries.append((wall, communicated, read))
        else:
            section.entries.append(wall)
        if more is not None:
            self._close(section, thread, more, timed.cpu)

    def _look(self, section: SectionEntries, thread: Record) -> None:
        """Look closely at this entry: processor time, collectives from C++, devices."""
        more = self._more = _More()
        section.samples += 1
        section.closely = (
            section.hidden or section.samples < FIRST_SAMPLES or section.device_clock is not None
        )
        if section.profile_cuda:
            if section.device_clock is None:
                section.device_clock = DeviceClock.of_process()
            if section.device_clock is not None:
                if section.kernels.due():
                    more.profiler = section.kernels.begin()
                more.events = section.device_clock.begin()
        more.operations = thread[OPERATIONS]
        more.issued = operations_issued()

    def _close(self, section: SectionEntries, thread: Record, more: _More, cpu: int) -> None:
        section.cpu.append(cpu)
        issued = operations_issued()
        if issued is None or section.hidden:
            return
        if issued - (more.issued or 0) > thread[OPERATIONS] - more.operations:
            # From now on every entry is looked at: processor time is what counts.
            section.hidden = section.closely = True

    def _leave_device(self, section: SectionEntries, more: _More, sound: bool) -> bool:
        """True if the entry had to wait for its kernels, and its time is not its own."""
        if more.profiler is not None:
            section.kernels.end(more.profiler)
            return True
        if more.events is not None and sound:
            more.events.end(section.device)
        return False

    def __call__(self, function: F) -> F:
        """As a decorator: every call of the function is an entry."""
        section, every = self._section, self._every

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Entry(section, every):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]
