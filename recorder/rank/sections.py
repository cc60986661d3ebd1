"""Sections: named stretches of a rank's work, timed on the wall and on the processor."""

from __future__ import annotations

import itertools
import time
from contextlib import AbstractContextManager
from struct import Struct
from threading import get_ident
from types import TracebackType
from typing import Protocol

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


class OpenSection(Protocol):
    """Makes a section; ``kind`` INPUT is a wait for input, UPDATE an optimizer's step."""

    def __call__(self, name: str, kind: int = PLAIN) -> AbstractContextManager[None]: ...


class _Totals:
    """The table of totals: one row per section's name and kind."""

    def __init__(self, progress: ProgressFile) -> None:
        self._progress = progress
        self.record = Struct("<5q")
        #: (name, kind) -> [text number, byte offset of the row or 0, count, wall, cpu]
        self.known: dict[tuple[str, int], list[int]] = {}

    def add(self, name: str, kind: int) -> list[int]:
        progress = self._progress
        number = progress.text(str(name))
        used = len(self.known)
        if used >= layout.TOTALS.capacity:
            progress.note_truncated()
            return [number, 0, 0, 0, 0]
        place = progress.at[layout.TOTALS] + used * layout.TOTALS.record
        total = self.known[name, kind] = [number, place, 0, 0, 0]
        self.record.pack_into(progress.mapping, place, number, kind, 0, 0, 0)
        progress.slots[Slot.TOTALS_USED] = used + 1
        return total


def section_type(progress: ProgressFile) -> OpenSection:
    """The class of this file's sections, each a context manager that swallows nothing."""
    # Sections are entered at every step: everything is a local name.
    slots = progress.slots
    mapping = progress.mapping
    totals = _Totals(progress)
    known = totals.known
    add = totals.add
    pack_total = totals.record.pack_into
    pack = Struct("<7q").pack_into
    at = progress.at[layout.SECTIONS]
    numbers = itertools.count(1)
    first = progress.at[layout.OPEN] // 8
    free = [first + 3 * i for i in reversed(range(layout.OPEN.capacity))]
    wall_clock = time.time_ns
    cpu_clock = time.thread_time_ns
    thread_id = get_ident
    event, step = Slot.SECTION_EVENT, Slot.STEP
    # Thread, wall and CPU time of the latest reading of a CPU clock.
    reading = (0, 0, 0)

    class Section:
        __slots__ = ("_cpu", "_kind", "_row", "_started", "_total")

        _cpu: int
        _row: int
        _started: int

        def __init__(self, name: str, kind: int = PLAIN) -> None:
            self._total = known.get((name, kind)) or add(name, kind)
            self._kind = kind

        def __enter__(self) -> None:
            nonlocal reading
            thread = thread_id()
            self._started = now = wall_clock()
            who, when, cpu = reading
            if who == thread and 0 <= now - when < _FRESH_NS:
                self._cpu = cpu + now - when
            else:
                self._cpu = cpu = cpu_clock()
                reading = (thread, now, cpu)
            try:
                self._row = row = free.pop()
            except IndexError:
                self._row = 0
            else:
                slots[row] = self._total[0]
                slots[row + 2] = thread
                slots[row + 1] = now
            slots[event] = now

        def __exit__(
            self,
            type_: type[BaseException] | None,
            value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            nonlocal reading
            thread = thread_id()
            now = wall_clock()
            who, when, cpu = reading
            if who == thread and 0 <= now - when < _FRESH_NS:
                cpu += now - when
            else:
                cpu = cpu_clock()
                reading = (thread, now, cpu)
            row = self._row
            if row:
                slots[row + 1] = 0
                free.append(row)
            started = self._started
            wall = now - started
            cpu -= self._cpu
            total = self._total
            total[2] += 1
            total[3] += wall
            total[4] += cpu
            text, place, count, all_wall, all_cpu = total
            if place:
                pack_total(mapping, place, text, self._kind, count, all_wall, all_cpu)
            number = next(numbers)
            place = at + (number - 1) % _RING * _RECORD_BYTES
            pack(mapping, place, number, text, started, wall, cpu, slots[step], number)
            slots[event] = now

    return Section
