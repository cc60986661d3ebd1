"""The places of the ring of operations, as the boundary that writes them keeps them."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

from hanglab.recorder.case import layout

_FIELD = {name: place for place, name in enumerate(layout.OPERATION_FIELDS)}


class Times(ctypes.Structure):
    """A record, for its times: to set a field costs half of what an index does."""

    _fields_ = [(name, ctypes.c_int64) for name in layout.OPERATION_FIELDS]


class OperationCell:
    """A place in the ring, and the operation that has it now."""

    __slots__ = ("flags", "number", "options", "place", "reduce_op", "signature", "times", "work")

    def __init__(self, place: int, times: Times) -> None:
        #: The operation's; whoever finds another than his own comes too late to write.
        self.number = 0
        #: Its Work.
        self.work: weakref.ref[Any] | None = None
        #: What tells its reduce operation, until that has been read.
        self.options: Any = None
        #: Offset of the record; below, slots of its fields.
        self.place = place
        self.times = times
        first = place >> 3
        self.signature = first + _FIELD["signature"]
        self.reduce_op = first + _FIELD["reduce_op"]
        self.flags = first + _FIELD["flags"]


def cells(mapping: mmap.mmap, first: int) -> list[OperationCell]:
    """All of the ring that begins at the offset ``first``."""
    ring = layout.OPERATIONS
    times = (Times * ring.capacity).from_buffer(mapping, first)
    return [
        OperationCell(first + place * ring.record, times[place]) for place in range(ring.capacity)
    ]


def slot_object(mapping: mmap.mmap, slot: int) -> ctypes.c_int64:
    """A slot of the header; its ``value`` can be set."""
    return ctypes.c_int64.from_buffer(mapping, 8 * slot)
