"""Sections: named stretches of a rank's work, timed on the monotonic clock and the processor's.

Whoever opens a section, the job, a watch of the recorder's or a straggler detector's section,
has it timed and noted here.
"""

from __future__ import annotations

import itertools
import time
from struct import Struct
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.progress_file import ProgressFile

#: A reading of the thread's CPU clock is a system call.  One that is younger than
#: this is carried forward instead, as if the thread had run ever since.
_FRESH_NS = 20_000
_RING = layout.SECTIONS.capacity
_RECORD_BYTES = layout.SECTIONS.record

#: Kinds of a section, as the table of totals has them.
PLAIN = 0
INPUT = 1
UPDATE = 2


class Section(Protocol):
    """A context manager that swallows nothing."""

    #: When it was entered last, in nanoseconds of the monotonic clock.
    @property
    def began(self) -> int: ...

    #: Nanoseconds that the latest entry took, and of its thread's processor time.
    @property
    def wall(self) -> int: ...

    @property
    def cpu(self) -> int: ...

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


class SectionFactory(Protocol):
    """Makes a section; ``kind`` INPUT is a wait for input, UPDATE an optimizer's step."""

    def __call__(self, name: str, kind: int = PLAIN) -> Section: ...

    def write_totals(self) -> None:
        """Bring the table of totals up to date."""

    def innermost(self, thread: int) -> str:
        """Name of the section that was opened last on a thread and is open; "" if none is."""

    def leave(self) -> None:
        """Write nothing any more: this process is no rank, but a fork of one."""


#: Of one section's name and kind: text number, kind, byte offset of the row in the table of
#: totals (0 if there was no room), count, wall and processor time.
_Total = list[int]


class _Totals:
    """The table of totals: one row per section's name and kind."""

    def __init__(self, progress: ProgressFile) -> None:
        self._progress = progress
        self._record = Struct("<5q")
        self._used = 0
        #: By name, one each per kind.
        self.known: tuple[dict[str, _Total], ...] = ({}, {}, {})
        self._written: dict[int, int] = {}

    def add(self, name: str, kind: int) -> _Total:
        progress = self._progress
        name = str(name)
        if name in self.known[kind]:
            return self.known[kind][name]
        number = progress.text(name)
        if self._used >= layout.TOTALS.capacity:
            progress.note_truncated()
            return [number, kind, 0, 0, 0, 0]
        place = progress.at[layout.TOTALS] + self._used * layout.TOTALS.record
        total = self.known[kind][name] = [number, kind, place, 0, 0, 0]
        self._record.pack_into(progress.mapping, place, number, kind, 0, 0, 0)
        self._used += 1
        progress.slots[Slot.TOTALS_USED] = self._used
        return total

    def write(self) -> None:
        """Bring the table up to date."""
        mapping = self._progress.mapping
        for totals in self.known:
            for text, kind, place, count, wall, cpu in list(totals.values()):
                if self._written.get(place) != count:
                    self._written[place] = count
                    self._record.pack_into(mapping, place, text, kind, count, wall, cpu)


def section_type(progress: ProgressFile, written: bool = True) -> SectionFactory:
    """The class of this file's sections, context managers that swallow nothing.

    Its ``write_totals`` is to be called now and then: the ring of sections is always
    up to date, the table of totals only then.  Where nothing need be ``written``, since
    nobody reads the file, the times alone are taken.
    """
    if progress.native is None:
        return _section_class(progress, written)
    progress.native.written = written
    return progress.native


def _section_class(progress: ProgressFile, written: bool) -> SectionFactory:
    # What native/writer.c does in C has to be the same to whoever reads the file.
    # Sections are entered at every step: everything is a local name, and what can be
    # written together is.
    slots = progress.slots
    mapping = progress.mapping
    totals = _Totals(progress)
    plain, *others = totals.known
    add = totals.add
    pack = Struct("<7q").pack_into
    pack_open = Struct("<3q").pack_into
    at = progress.at[layout.SECTIONS]
    places = range(at, at + _RING * _RECORD_BYTES, _RECORD_BYTES)
    # Both at once: no other thread comes between a number and its place.
    next_place = zip(itertools.count(1), itertools.cycle(places)).__next__
    first = progress.at[layout.OPEN]
    free = [first + layout.OPEN.record * i for i in reversed(range(layout.OPEN.capacity))]
    take, give = free.pop, free.append
    clock = time.monotonic_ns
    wall_clock = time.time_ns
    cpu_clock = time.thread_time_ns
    thread_id = get_ident
    event, step = Slot.SECTION_EVENT, Slot.STEP
    # Thread of the latest reading of its CPU clock; when that was, on the clock that times all
    # sections; that minus the CPU's, and the wall clock minus it.
    who, read_at, behind, wall_minus_mono = 0, 0, 0, 0

    def innermost_open(thread: int) -> str:
        rows = slots[first >> 3 : (first >> 3) + 3 * layout.OPEN.capacity].tolist()
        latest = max(
            (
                (started, place)
                for place, started in enumerate(rows[1::3])
                if started and rows[3 * place + 2] == thread
            ),
            default=None,
        )
        return progress.read_text(rows[3 * latest[1]]) if latest else ""

    class TimedSection:
        __slots__ = ("_cpu_at_start", "_row", "_started", "_total", "began", "cpu", "wall")
        write_totals = staticmethod(totals.write)
        innermost = staticmethod(innermost_open)

        @classmethod
        def leave(cls) -> None:
            for name, instead in (
                ("__init__", _take_no_time), ("__enter__", _do_nothing), ("__exit__", _do_nothing)
            ):  # fmt: skip
                setattr(cls, name, instead)

        began: int
        _cpu_at_start: int
        _row: int
        _started: int

        def __init__(self, name: str, kind: int = PLAIN) -> None:
            try:
                self._total = others[kind - 1][name] if kind else plain[name]
            except (KeyError, TypeError):
                self._total = add(name, kind)
            self._row = self.wall = self.cpu = 0

        def __enter__(self) -> None:
            nonlocal who, read_at, behind, wall_minus_mono
            thread = thread_id()
            self.began = now = clock()
            if who != thread or now - read_at >= _FRESH_NS:
                wall_minus_mono = wall_clock() - now
                behind = now - cpu_clock()
                who, read_at = thread, now
            self._cpu_at_start = now - behind
            if not written:
                return
            self._started = now = now + wall_minus_mono
            try:
                # One of its own if it is entered again before it ends.
                row = self._row = self._row or take()
            except IndexError:
                pass
            else:
                pack_open(mapping, row, self._total[0], now, thread)
            slots[event] = now

        def __exit__(
            self,
            type_: type[BaseException] | None,
            value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            nonlocal who, read_at, behind, wall_minus_mono
            try:
                began = self.began
            except AttributeError:  # it was never entered
                return
            thread = thread_id()
            now = clock()
            if who != thread or now - read_at >= _FRESH_NS:
                wall_minus_mono = wall_clock() - now
                behind = now - cpu_clock()
                who, read_at = thread, now
            self.wall = wall = now - began
            self.cpu = cpu = now - behind - self._cpu_at_start
            if not written:
                return
            row = self._row
            if row:
                self._row = 0
                slots[(row >> 3) + 1] = 0
                give(row)
            total = self._total
            total[3] += 1
            total[4] += wall
            total[5] += cpu
            number, place = next_place()
            pack(
                mapping, place,
                number, total[0], self._started, wall, cpu, slots[step], number,
            )  # fmt: skip
            slots[event] = now + wall_minus_mono

    return TimedSection


def _do_nothing(*_: object, **__: object) -> None: ...


def _take_no_time(section: Any, *_: object, **__: object) -> None:
    section.began = section.wall = section.cpu = 0
