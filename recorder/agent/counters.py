"""The counters of one rank, read from outside while the rank may be writing them."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from hanglab.recorder.case import folders, layout
from hanglab.recorder.case.progress import Counters, NotProgress, read_counters


class CounterFile:
    """The head of a rank's progress file, mapped as soon as it is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._header: mmap.mmap | None = None
        #: As last read; None before the first time.
        self.counters: Counters | None = None

    def changes(self) -> str:
        """What of them has changed since the last call; "" if nothing."""
        old = self.counters
        new = self._read()
        if new is not None and new != old:
            if old is None:
                return "steps"
            for name, then, now in (
                ("steps", old.step, new.step),
                ("steps", old.steps_total, new.steps_total),
                ("sections", old.section_event_ns, new.section_event_ns),
                ("operations", old.operation_event_ns, new.operation_event_ns),
                ("operations", old.group_events, new.group_events),
                ("stack", old.standing_changes, new.standing_changes),
                ("steps", old.phase, new.phase),
            ):
                if then != now:
                    return name
        return ""

    @property
    def begun(self) -> bool:
        """Whether the rank has entered any operation."""
        counters = self.counters
        return counters is not None and counters.operation_event_ns + counters.group_events > 0

    def close(self) -> None:
        if self._header is not None:
            self._header.close()
            self._header = None

    def _read(self) -> Counters | None:
        if self._header is None:
            with contextlib.suppress(OSError, ValueError):
                fd = os.open(self._folder / folders.PROGRESS, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    self._header = mmap.mmap(fd, layout.HEADER_BYTES, access=mmap.ACCESS_READ)
                finally:
                    os.close(fd)
        if self._header is not None:
            with contextlib.suppress(NotProgress):
                self.counters = read_counters(self._header[: layout.COUNTERS_BYTES])
        return self.counters
