"""Threads of Python besides the main one, and whether that may wait for one of them.

What they read and write while the main thread is in an operation, as who logs or uploads does,
brings the rank no further; threads of a backend, which Python does not know, carry its data.
"""

from __future__ import annotations

import sys
import threading

from hanglab.recorder.case.layout import Slot

_MOST = Slot.IN_OPERATION - Slot.FIRST_THREAD


def note_threads(slots: memoryview[int]) -> None:
    """Write their ids, and whether the main thread is in an operation, into a header's slots."""
    main = threading.main_thread()
    # Without the lock by which ``threading.enumerate`` may wait for the job.
    known = list(getattr(threading, "_active", {}).values())
    ids = [one.native_id for one in known if one is not main and one.native_id]
    if len(ids) <= _MOST:
        for place, number in enumerate(ids, Slot.FIRST_THREAD):
            slots[place] = number
    slots[Slot.THREADS] = len(ids) if len(ids) <= _MOST else -1
    in_operation = slots[Slot.COUNTERS_OPEN] > 0 and not _waits_in_python(main.ident)
    slots[Slot.IN_OPERATION] = int(in_operation)


def _waits_in_python(thread: int | None) -> bool:
    """True if a thread is in the standard library: in a queue, a lock, a pipe, a child's end."""
    frame = sys._current_frames().get(thread or 0)
    name = str(frame.f_globals.get("__name__")) if frame is not None else ""
    return name.partition(".")[0] in sys.stdlib_module_names
