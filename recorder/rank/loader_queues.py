"""Lengths of the queues between a rank and its loader's workers.

A rank that waits for a batch may have a worker that is stuck in one, a worker
that is gone, or a batch that lies ready.  The queues' depths, the batches asked
for and the age of the latest tell them apart, also after the rank was killed.
"""

from __future__ import annotations

import itertools
import time
import weakref
from struct import Struct
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import NONE
from hanglab.recorder.rank.error_guard import GUARD
from hanglab.recorder.rank.progress_file import ProgressFile

_ROWS = layout.LOADERS.capacity
_FIELD = {name: place for place, name in enumerate(layout.LOADER_FIELDS)}


class LoaderQueues:
    """One row of the table LOADERS for each live iterator with workers."""

    def __init__(self, progress: ProgressFile) -> None:
        self._mapping = progress.mapping
        self._slots = progress.slots
        self._place = progress.at[layout.LOADERS]
        self._record = Struct(f"<{layout.LOADERS.record // 8}q")
        self._numbers = itertools.count(1)
        #: Rows of the live iterators, by the iterator's id.
        self._rows: dict[int, tuple[weakref.ref[Any], int]] = {}

    def add(self, iterator: Any) -> None:
        """An iterator has started its workers."""
        number = next(self._numbers)
        row = (number - 1) % _ROWS
        self._rows = {
            key: entry
            for key, entry in self._rows.items()
            if entry[0]() is not None and entry[1] != row
        }
        pids = [int(worker.pid or 0) for worker in iterator._workers][: layout.LOADER_PIDS]
        values = [number, time.time_ns(), len(iterator._workers), 0, NONE, NONE, 0, 0, 0, *pids]
        values += [0] * (layout.LOADERS.record // 8 - len(values))
        self._record.pack_into(self._mapping, self._place + row * layout.LOADERS.record, *values)
        self._rows[id(iterator)] = weakref.ref(iterator), row

    def delivered(self, iterator: Any) -> None:
        """An iterator has handed out a batch."""
        known = self._rows.get(id(iterator))
        if known is None or known[0]() is not iterator:
            return
        slot = (self._place + known[1] * layout.LOADERS.record) // 8
        self._slots[slot + _FIELD["delivered"]] += 1
        self._slots[slot + _FIELD["delivered_at"]] = time.time_ns()

    def look(self) -> None:
        """Note how much is asked for, and how much lies in the queues."""
        for reference, row in list(self._rows.values()):
            iterator = reference()
            if iterator is None:
                continue
            slot = (self._place + row * layout.LOADERS.record) // 8
            with GUARD:
                outstanding = int(iterator._tasks_outstanding)
                ready = iterator._worker_result_queue.qsize()
                # Taken out of order, or by the thread that pins memory.
                ready += sum(len(task) == 2 for task in list(iterator._task_info.values()))
                if iterator._data_queue is not iterator._worker_result_queue:
                    ready += iterator._data_queue.qsize()
                indices = sum(queue.qsize() for queue in iterator._index_queues)
                self._slots[slot + _FIELD["outstanding"]] = outstanding
                self._slots[slot + _FIELD["ready"]] = ready
                self._slots[slot + _FIELD["indices"]] = indices
                self._slots[slot + _FIELD["looked_at"]] = time.time_ns()

    def end(self, iterator: Any) -> None:
        """An iterator is about to end its workers."""
        self.look()
        known = self._rows.pop(id(iterator), None)
        if known is not None:
            slot = (self._place + known[1] * layout.LOADERS.record) // 8
            self._slots[slot] = -self._slots[slot]
