"""Runs of Python's garbage collector: nothing else of the rank's Python runs meanwhile."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from struct import Struct
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.progress_file import ProgressFile

#: Shorter runs are only summed up: there are hundreds of them a second.
LONG_NS = 200_000


class PauseWatch:
    """A callback in ``gc.callbacks`` that writes each run down as it ends."""

    def __init__(self, progress: ProgressFile) -> None:
        self._slots = progress.slots
        self._mapping = progress.mapping
        self._totals = progress.at[layout.COLLECTIONS] // 8
        self._ring = progress.at[layout.PAUSES]
        self._pack = Struct("<6q").pack_into
        self._numbers = itertools.count(1)
        self._started = 0
        # One object for install and uninstall.
        self._callback = self._called

    def install(self) -> None:
        """Begin to watch.  Installing twice does nothing."""
        if self._callback not in gc.callbacks:
            gc.callbacks.append(self._callback)

    def uninstall(self) -> None:
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._callback)

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        now = time.time_ns()
        slots = self._slots
        if phase == "start":
            self._started = slots[Slot.COLLECTING] = now
            return
        started = self._started
        slots[Slot.COLLECTING] = self._started = 0
        if not started:
            return
        wall = max(0, now - started)
        generation = min(info["generation"], layout.COLLECTIONS.capacity - 1)
        row = self._totals + 3 * generation
        slots[row] += 1
        slots[row + 1] += wall
        if wall > slots[row + 2]:
            slots[row + 2] = wall
        if wall >= LONG_NS:
            number = next(self._numbers)
            place = self._ring + (number - 1) % layout.PAUSES.capacity * layout.PAUSES.record
            self._pack(
                self._mapping, place, number, started, wall, generation, info["collected"], number
            )
