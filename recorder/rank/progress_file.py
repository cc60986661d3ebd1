"""Writing ``progress.bin``: a small shared mapping that outlives its process.

Every write is a single 8-byte store or one packed record, so that whoever reads
at any moment, or after this process was killed, finds whole values.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import operator
import os
import threading
import time
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from hanglab.recorder.case import folders, layout
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.native import WRITER

if TYPE_CHECKING:
    from hanglab.recorder.rank.native.writer import Writer


class BeginStep(Protocol):
    """A step begins; ``number`` is one more than the last one's unless given."""

    def __call__(self, number: int | None = None) -> None: ...


class ProgressFile:
    """The mapping, its header slots and its table of texts.

    Raises OSError where the file cannot be had.  The space is allocated before
    it is mapped: a sparse file on a full disk would kill the rank with SIGBUS
    at some later write.  Without a path the mapping belongs to this process
    alone, so that the rest of the recorder works the same.

    ``writer`` writes sections and steps; without one the code in Python does.
    """

    def __init__(self, path: Path | None, writer: type[Writer] | None = WRITER) -> None:
        *places, size = layout.offsets()
        self.mapping = map_file(path, size)
        #: The whole file as signed 64-bit integers.
        self.slots = memoryview(self.mapping).cast("q")
        #: Byte offset of each table.
        self.at = dict(zip(layout.ALL_TABLES, places, strict=True))
        self._texts: dict[str, int] = {"": 0}
        self._text_used = 8
        self._text_lock = threading.RLock()
        slots = self.slots
        for table, place in self.at.items():
            first = Slot.TABLES + 3 * table.place
            slots[first], slots[first + 1], slots[first + 2] = place, table.capacity, table.record
        slots[Slot.TEXT_USED] = self._text_used
        slots[Slot.FILE_BYTES] = size
        slots[Slot.STEP] = -1
        slots[Slot.VERSION] = layout.VERSION
        # Both at once: no other thread comes between a number and its place.
        steps, at = layout.STEPS, self.at[layout.STEPS]
        ring = range(at, at + steps.capacity * steps.record, steps.record)
        self._next_step = zip(itertools.count(1), itertools.cycle(ring)).__next__
        self._pack_step = Struct("<4q").pack_into
        self._pack_latest_step = Struct("<3q").pack_into
        self._left = False
        self.native = self._new_native(writer)
        #: What the job calls at each of its steps.
        self.step: BeginStep = self._step if self.native is None else self.native.step
        self.read_clocks()

    def _new_native(self, writer: type[Writer] | None) -> Writer | None:
        if writer is None:
            return None
        sections, totals, opened, steps = (
            (self.at[table], table.capacity, table.record)
            for table in (layout.SECTIONS, layout.TOTALS, layout.OPEN, layout.STEPS)
        )
        try:
            return writer(
                self.mapping,
                sections,
                totals,
                opened,
                steps,
                (Slot.STEP, Slot.SECTION_EVENT, Slot.TOTALS_USED),
                self.text,
                self.read_text,
                self.note_truncated,
            )
        except Exception:  # it was built of another state of this project
            return None

    def leave(self) -> None:
        """Count no steps any more: this process is no rank, but a fork of one."""
        self._left = True
        if self.native is not None:
            self.native.leave()

    def identify(self, rank: int, attempt: int, world_size: int | None) -> None:
        """Say whose file it is; readers take it for one only from here on."""
        slots = self.slots
        slots[Slot.PID] = os.getpid()
        slots[Slot.RANK] = rank
        slots[Slot.ATTEMPT] = attempt
        slots[Slot.WORLD_SIZE] = world_size or 0
        slots[Slot.PHASE] = layout.RUNNING
        slots[Slot.MAGIC] = layout.MAGIC

    def read_clocks(self) -> None:
        """Note that the recorder runs, and how the clocks stand to each other."""
        mono = time.monotonic_ns()
        self.slots[Slot.WALL_MINUS_MONO] = time.time_ns() - mono
        self.slots[Slot.HEARTBEAT_MONO] = mono

    def read_processor_time(self) -> None:
        """Note how much processor time the process has used since its first operation."""
        slots = self.slots
        if not slots[Slot.OPERATIONS_TOTAL] and not slots[Slot.COUNTERS_SUM]:
            return
        used, now = time.process_time_ns(), time.time_ns()
        if not slots[Slot.CPU_FIRST_AT]:
            slots[Slot.CPU_FIRST] = used
            slots[Slot.CPU_FIRST_AT] = now
        slots[Slot.CPU_LAST] = used
        slots[Slot.CPU_LAST_AT] = now

    def text(self, text: str) -> int:
        """Number of a text; 0, the empty text, where there is no room left."""
        number = self._texts.get(text)
        if number is not None:
            return number
        data = text.encode("utf-8", "replace")[:4096]
        size = 2 + len(data)
        with self._text_lock:
            number = self._text_used
            if number + size > layout.TEXT.capacity:
                self.note_truncated()
                return 0
            # Nothing may come between these two: a signal handler may get here too.
            self._text_used = number + size
            at = self.at[layout.TEXT] + number
            self.mapping[at : at + size] = len(data).to_bytes(2, "little") + data
            self.slots[Slot.TEXT_USED] = self._text_used
            self._texts[text] = number
        return number

    def read_text(self, number: int) -> str:
        """The text of a number that ``text`` gave."""
        at = self.at[layout.TEXT] + number
        size = int.from_bytes(self.mapping[at : at + 2], "little")
        return bytes(self.mapping[at + 2 : at + 2 + size]).decode("utf-8", "replace")

    def note_truncated(self) -> None:
        self.slots[Slot.FLAGS] |= layout.TRUNCATED

    def _step(self, number: int | None = None) -> None:
        if self._left:
            return
        step = self.slots[Slot.STEP] + 1 if number is None else self._given(number)
        total, place = self._next_step()
        now = time.time_ns()
        self._pack_step(self.mapping, place, total, step, now, total)
        # The slots STEP, STEP_STARTED and STEPS_TOTAL.
        self._pack_latest_step(self.mapping, 8 * Slot.STEP, step, now, total)

    def _given(self, number: int) -> int:
        """The number of a step, counted where what the job gives is none."""
        try:
            given = operator.index(number)
        except TypeError:
            given = layout.NONE
        return given if -(1 << 63) < given < 1 << 63 else self.slots[Slot.STEP] + 1

    def latest_operation(self) -> list[int]:
        """The record of the operation that was entered last; any other before the first."""
        ring = layout.OPERATIONS
        place = (self.slots[Slot.OPERATIONS_TOTAL] - 1) % ring.capacity * ring.record
        first = (self.at[ring] + place) // 8
        return self.slots[first : first + ring.record // 8].tolist()

    def counters(self, rows: list[tuple[int, int, int]]) -> None:
        """Copy per-group counters: (pg_id, last enqueued, last completed) each."""
        if len(rows) > layout.COUNTERS.capacity:
            self.note_truncated()
            rows = rows[-layout.COUNTERS.capacity :]
        at = self.at[layout.COUNTERS] // 8
        total = unfinished = 0
        for row in rows:
            self.slots[at], self.slots[at + 1], self.slots[at + 2] = row
            total += row[1] + row[2]
            unfinished += max(0, row[1] - row[2])
            at += 3
        self.slots[Slot.COUNTERS_USED] = len(rows)
        self.slots[Slot.COUNTERS_AT] = time.time_ns()
        self.slots[Slot.COUNTERS_SUM] = total
        self.slots[Slot.COUNTERS_OPEN] = unfinished


def map_file(path: Path | None, size: int) -> mmap.mmap:
    """A shared mapping of so many zeros, of a file or of this process alone.  Raises OSError."""
    if path is None:
        return mmap.mmap(-1, size)
    # Not cut to nothing first: a rank that replaces its program (execv) has one already, and
    # whoever watches it has that mapped and would be killed by SIGBUS.
    fd = folders.open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        before = os.fstat(fd).st_size
        os.posix_fallocate(fd, 0, size)
        os.ftruncate(fd, size)
        mapping = mmap.mmap(fd, size)
        if before:
            mapping[:] = bytes(size)
        return mapping
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)
