"""The counters of one rank, read from outside while the rank may be writing them."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import layout
from hanglab.recorder.case.progress import Counters, NotProgress, read_counters

#: Of the smallest file that a rank may have.
_BYTES = min(layout.offsets(tables)[-1] for tables in layout.TABLES_OF.values())


class CounterFile:
    """A rank's progress file, mapped as soon as it is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mapping: mmap.mmap | None = None
        #: As last read; None before the first time.
        self.counters: Counters | None = None

    def changes(self) -> str:
        """The counter that has changed since the last call; "" if none has."""
        old = self.counters
        new = self._read()
        if new is not None and new != old:
            if old is None:
                return "steps"
            for name, then, now in (
                ("steps", old.step, new.step),
                ("steps", old.steps_total, new.steps_total),
                ("sections", old.section_event_ns, new.section_event_ns),
                ("operations", old.operations_total, new.operations_total),
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
        """True if the rank has entered any operation."""
        counters = self.counters
        return counters is not None and counters.operation_event_ns + counters.group_events > 0

    def heartbeat_ns(self) -> int | None:
        """Time by the monotonic clock at which the rank's recorder thread last ran, as of now."""
        if self._mapping is not None:
            with contextlib.suppress(NotProgress):
                return read_counters(self._mapping).heartbeat_mono_ns
        return None

    def close(self) -> None:
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None

    def _read(self) -> Counters | None:
        if self._mapping is None:
            with contextlib.suppress(OSError, ValueError):
                fd = os.open(self._folder / files.PROGRESS.name, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    # Not in the middle of its being allocated; it is never cut.
                    if os.fstat(fd).st_size >= _BYTES:
                        self._mapping = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
                finally:
                    os.close(fd)
        if self._mapping is not None:
            with contextlib.suppress(NotProgress):
                self.counters = read_counters(self._mapping)
        return self.counters
