"""Processor time that the rank uses and waits for, over time."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import threading
import time
from struct import Struct

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import NONE, Slot
from hanglab.recorder.rank.progress_file import ProgressFile

#: Slots of the header that change when the rank moves.
_MOVEMENT = (
    Slot.STEPS_TOTAL,
    Slot.OPERATION_EVENT,
    Slot.SECTION_EVENT,
    Slot.COUNTERS_SUM,
    Slot.STANDING_CHANGES,
)


#: Threads besides the main one whose waits for a processor hold the rank up as its own do.
_AWAITED: list[int] = []


def count_waits_of(thread: int) -> None:
    """Count a thread's waits for a processor as the rank's: its main thread waits for that one.

    ``thread`` is the kernel's number of it.
    """
    _AWAITED.append(thread)


class UsageSampler:
    """Appends one record to the table USAGE at each call of ``look``."""

    def __init__(self, progress: ProgressFile) -> None:
        self._mapping = progress.mapping
        self._place = progress.at[layout.USAGE]
        self._pack = Struct("<6q").pack_into
        self._numbers = itertools.count(1)
        # A dump at the end of the rank looks, too, beside the recorder's thread: without it a later
        # record could be the earlier one by its times.
        self._looking = threading.RLock()
        #: By the number of the thread; None where the kernel keeps none.
        self._schedstats: dict[int, int | None] = {}
        self._waits: dict[int, int] = {}
        self._process = os.getpid()
        self._slots = progress.slots
        self._latest_operation = progress.latest_operation
        self._moved: tuple[int, ...] = ()

    def look(self) -> None:
        with self._looking:
            self._append()

    def _append(self) -> None:
        number = next(self._numbers)
        place = self._place + (number - 1) % layout.USAGE.capacity * layout.USAGE.record
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        waited = self._waited()
        self._pack(
            self._mapping,
            place,
            number,
            time.time_ns(),
            time.process_time_ns(),
            waited,
            switches,
            number,
        )

    def _waited(self) -> int:
        """Second number of schedstat (Documentation/scheduler/sched-stats): run-queue time.

        Not known while the rank rests: bytes that are read, these too, count as movement,
        and a rank that hangs must not move for its being looked at.
        """
        moved = *(self._slots[slot] for slot in _MOVEMENT), *self._latest_operation()
        rests, self._moved = moved == self._moved, moved
        if rests:
            return NONE
        # A process bears the number of its main thread.
        waits = [self._waits_of(thread) for thread in (self._process, *_AWAITED)]
        return NONE if NONE in waits else sum(waits)

    def _waits_of(self, thread: int) -> int:
        if thread not in self._schedstats:
            self._schedstats[thread] = _open_schedstat(thread)
        opened = self._schedstats[thread]
        # Those of a thread that has ended stay.
        with contextlib.suppress(OSError, ValueError, IndexError):
            if opened is not None:
                self._waits[thread] = int(os.pread(opened, 128, 0).split()[1])
        return self._waits.get(thread, NONE)

    def leave_in_child(self) -> None:
        """A forked child must not hold the parent's file open."""
        for opened in self._schedstats.values():
            if opened is not None:
                with contextlib.suppress(OSError):
                    os.close(opened)
        self._schedstats.clear()
        self._waits.clear()
        _AWAITED.clear()


def _open_schedstat(thread: int) -> int | None:
    try:
        return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
