"""Sections: named stretches of a rank's work, timed on the wall and on the processor."""

from __future__ import annotations

import itertools
import time
from struct import Struct
from threading import get_ident
from types import TracebackType

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.progress_file import ProgressFile

#: A reading of the thread's CPU clock is a system call.  One that is younger than
#: this is carried forward instead, as if the thread had run ever since.
_FRESH_NS = 20_000
_RING = layout.SECTIONS.capacity
_RECORD_BYTES = layout.SECTIONS.record


class Sections:
    """Opens sections and writes them to the progress file as they end."""

    def __init__(self, progress: ProgressFile) -> None:
        self._slots = progress.slots
        self._mapping = progress.mapping
        self._progress = progress
        self._at = progress.at[layout.SECTIONS]
        self._record = Struct("<7q")
        self._total_record = Struct("<5q")
        self._ended = itertools.count()
        self._events = itertools.count(1)
        first = progress.at[layout.OPEN] // 8
        self._free = [first + 3 * i for i in reversed(range(layout.OPEN.capacity))]
        #: (name, kind) -> [text number, byte offset of the row, count, wall, cpu]
        self._totals: dict[tuple[str, int], list[int]] = {}
        #: Thread, wall and CPU time of the latest reading of a CPU clock.
        self._reading = (0, 0, 0)

    def section(self, name: str, kind: int = 0) -> Section:
        """A context manager; ``kind`` 1 is a wait for input."""
        return Section(self, name, kind)

    def _total(self, name: str, kind: int) -> list[int]:
        number = self._progress.text(name)
        used = len(self._totals)
        if used < layout.TOTALS.capacity:
            place = self._progress.at[layout.TOTALS] + used * layout.TOTALS.record
            total = self._totals[name, kind] = [number, place, 0, 0, 0]
            self._total_record.pack_into(self._mapping, place, number, kind, 0, 0, 0)
            self._slots[Slot.TOTALS_USED] = used + 1
            return total
        self._progress.note_truncated()
        return [number, 0, 0, 0, 0]

    def begin(self, section: Section) -> None:
        total = self._totals.get((section.name, section.kind))
        if total is None:
            total = self._total(section.name, section.kind)
        section.total = total
        thread = get_ident()
        now = time.time_ns()
        known, at, cpu = self._reading
        if known == thread and 0 <= now - at < _FRESH_NS:
            section.cpu = cpu + now - at
        else:
            section.cpu = time.thread_time_ns()
            self._reading = (thread, now, section.cpu)
        section.started = now
        slots = self._slots
        try:
            row = self._free.pop()
        except IndexError:
            section.row = 0
        else:
            section.row = row
            slots[row] = total[0]
            slots[row + 2] = thread
            slots[row + 1] = now
        slots[Slot.SECTION_EVENTS] = next(self._events)

    def end(self, section: Section) -> None:
        thread = get_ident()
        now = time.time_ns()
        known, at, cpu = self._reading
        if known == thread and 0 <= now - at < _FRESH_NS:
            cpu += now - at
        else:
            cpu = time.thread_time_ns()
            self._reading = (thread, now, cpu)
        slots = self._slots
        if section.row:
            slots[section.row + 1] = 0
            self._free.append(section.row)
        started = section.started
        wall = now - started
        cpu -= section.cpu
        total = section.total
        total[2] += 1
        total[3] += wall
        total[4] += cpu
        if total[1]:
            self._total_record.pack_into(
                self._mapping, total[1], total[0], section.kind, total[2], total[3], total[4]
            )
        index = next(self._ended)
        number = index + 1
        self._record.pack_into(
            self._mapping,
            self._at + index % _RING * _RECORD_BYTES,
            number,
            total[0],
            started,
            wall,
            cpu,
            slots[Slot.STEP],
            number,
        )
        slots[Slot.SECTIONS_TOTAL] = number
        slots[Slot.SECTION_EVENTS] = next(self._events)


class Section:
    """One section.  Never swallows an exception; may be entered again after it ended."""

    __slots__ = ("_sections", "cpu", "kind", "name", "row", "started", "total")

    def __init__(self, sections: Sections, name: str, kind: int) -> None:
        self._sections = sections
        self.name = name
        self.kind = kind
        self.total: list[int] = []
        self.started = self.cpu = self.row = 0

    def __enter__(self) -> None:
        self._sections.begin(self)

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sections.end(self)
