"""Writing ``branches.bin``: a shared mapping that outlives its process."""

from __future__ import annotations

import builtins
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from types import ModuleType

from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_layout import BranchSlot
from hanglab.recorder.rank.branches.instrumentation import TAKEN
from hanglab.recorder.rank.operation_cells import slot_object
from hanglab.recorder.rank.progress_file import map_file

_SIZE = layout.HEADER_BYTES + layout.CAPACITY * layout.RECORD_BYTES + layout.TEXT_BYTES


def ignore(way: int) -> None:
    """Stands for the function that records, in processes that are no ranks."""


class BranchRing:
    """The file of one rank.  Raises OSError where it cannot be had.

    Branches of other threads than the one that makes it are not recorded.
    """

    def __init__(self, path: Path) -> None:
        self._mapping = map_file(path, _SIZE)
        slots = memoryview(self._mapping).cast("q")
        slots[BranchSlot.VERSION] = layout.VERSION
        slots[BranchSlot.CAPACITY] = layout.CAPACITY
        self._slots = slots
        self.taken = self._new_taken()
        slots[BranchSlot.MAGIC] = layout.MAGIC

    def _new_taken(self) -> Callable[[int], None]:
        first = layout.HEADER_BYTES
        ring = range(first, first + layout.CAPACITY * layout.RECORD_BYTES, layout.RECORD_BYTES)
        next_record = zip(itertools.count(1), itertools.cycle(ring)).__next__
        pack_into, mapping = Struct("<2q").pack_into, self._mapping
        total = slot_object(mapping, BranchSlot.TOTAL)
        main, thread, clock = threading.get_ident(), threading.get_ident, time.time_ns

        def taken(way: int) -> None:
            if thread() == main:
                number, place = next_record()
                pack_into(mapping, place, clock(), way)
                total.value = number

        return taken

    def name_file(self, file: str) -> None:
        """Say the next file's name; those that find no room have none."""
        data = os.fsencode(file)
        used = self._slots[BranchSlot.TEXT_USED]
        if used + 8 + len(data) > layout.TEXT_BYTES:
            return
        at = layout.HEADER_BYTES + layout.CAPACITY * layout.RECORD_BYTES + used
        self._mapping[at : at + 8 + len(data)] = len(data).to_bytes(8, "little") + data
        self._slots[BranchSlot.TEXT_USED] = used + 8 + len(data)


def record_with(taken: Callable[[int], None]) -> None:
    """Have all files that were compiled for it call ``taken`` from here on."""
    setattr(builtins, TAKEN, taken)


def leave_compiled_code_alone(_: ModuleType) -> None:
    """Once there is torch's compiler: in what it compiles there are no calls, and no breaks."""
    from torch.compiler import is_compiling

    record = getattr(builtins, TAKEN)

    def taken(way: int) -> None:
        if not is_compiling():
            record(way)

    record_with(taken)
