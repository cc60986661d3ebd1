"""The page by which faults reach an emulated device from outside its process.

It lies behind the device's wakeup: a file without a name, which the process has open.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
import time
from pathlib import Path

#: Name of the file in ``/proc/<pid>/fd``.
PAGE_NAME = "hanglab-wakeup"
_AT = 64
_ORDER = struct.Struct("<IId200s")
#: Number of times that the order had an effect.
_EFFECTS = struct.Struct("<I")
_EFFECTS_AT = _AT + _ORDER.size
#: Between two looks whether the device has taken an order, in seconds.
_PACE_S = 0.002
#: A device looks at the page at least so often, in seconds, unless its process stands still.
_TAKEN_S = 5.0


class Order(enum.IntEnum):
    """Conditions that a fault puts the device into."""

    NONE = 0
    #: It does nothing any more.
    HALT = 1
    #: It starts nothing any more, as if a kernel that never ends had it.
    OCCUPY = 2
    #: The next operation stays unfinished after the device has done its part.
    HANG_IN_PART = 3
    #: Every operation takes longer.
    SLOW = 4
    #: The next operation fails.
    FAIL = 5
    #: What goes over the link to a peer takes its time.
    NARROW_LINK = 6
    #: The link to a peer is down at times.
    FLAP_LINK = 7
    #: Communicators that are there are aborted, on this rank alone.
    ABORT = 8
    #: Others have all of its memory.
    FILL_MEMORY = 9


class ControlPage:
    """The page as device or fault has it mapped."""

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page

    def order(self) -> tuple[Order, float, str]:
        """(what, by how much, text); the device has taken note of it."""
        kind, _, amount, text = _ORDER.unpack_from(self._page, _AT)
        if kind:
            struct.pack_into("<I", self._page, _AT + 4, kind)
        return Order(kind), amount, text.rstrip(b"\0").decode()

    def has_order(self) -> bool:
        return self._page[_AT] != 0

    def give(self, order: Order, amount: float = 0.0, text: str = "") -> None:
        # The kind comes last: whoever sees it may read the rest.
        struct.pack_into("<I", self._page, _AT + 4, 0)
        struct.pack_into("<d200s", self._page, _AT + 8, amount, text.encode()[:199])
        struct.pack_into("<I", self._page, _AT, order)

    @property
    def taken(self) -> int:
        return int(struct.unpack_from("<I", self._page, _AT + 4)[0])

    def note_effect(self) -> None:
        """The order has changed what the device does."""
        _EFFECTS.pack_into(self._page, _EFFECTS_AT, self.effects + 1)

    @property
    def effects(self) -> int:
        return int(_EFFECTS.unpack_from(self._page, _EFFECTS_AT)[0])


def give_order(pid: int, order: Order, amount: float = 0.0, text: str = "") -> None:
    """Give the device of a process an order, and return when it has taken note.

    Raises OSError where the process has no emulated device, or that takes none.
    """
    page = open_page(pid)
    page.give(order, amount, text)
    until = time.monotonic() + _TAKEN_S
    while page.taken != order:
        if time.monotonic() > until:
            raise OSError(0, "its emulated device does not look for orders")
        time.sleep(_PACE_S)


def open_page(pid: int) -> ControlPage:
    """The page of another process, which outlives it.  Raises OSError where there is none."""
    folder = Path(f"/proc/{pid}/fd")
    for entry in folder.iterdir():
        try:
            if PAGE_NAME in os.readlink(entry):
                descriptor = os.open(entry, os.O_RDWR | os.O_CLOEXEC)
                break
        except FileNotFoundError:
            continue
    else:
        raise OSError(0, "it has no emulated device; such faults need --backend nccl-emulated")
    try:
        return ControlPage(mmap.mmap(descriptor, mmap.PAGESIZE))
    finally:
        os.close(descriptor)
