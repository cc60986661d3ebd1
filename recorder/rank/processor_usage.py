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
        self._schedstat = _open_schedstat()
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
        if self._schedstat is None or rests:
            return NONE
        try:
            return int(os.pread(self._schedstat, 128, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return NONE

    def leave_in_child(self) -> None:
        """A forked child must not hold the parent's file open."""
        if self._schedstat is not None:
            with contextlib.suppress(OSError):
                os.close(self._schedstat)
            self._schedstat = None


def _open_schedstat() -> int | None:
    """The main thread's schedstat; None where the kernel keeps none."""
    try:
        # A process bears the number of its main thread.
        return os.open(f"/proc/self/task/{os.getpid()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
