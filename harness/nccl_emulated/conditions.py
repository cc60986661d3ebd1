"""Conditions of this process's device: sound, unless a fault has given an order."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import torch

from hanglab.harness.nccl_emulated.control import ControlPage, Order
from hanglab.harness.nccl_emulated.driver_log import write_xid
from hanglab.harness.nccl_emulated.links import DeviceLink
from hanglab.harness.nccl_emulated.settings import EmulationError

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.operation import DeviceOperation

#: What a communication is taken to need on a sound device, in seconds.
_USUAL_S = 0.001


class DeviceError(EmulationError):
    """The error that CUDA tells of its device, long after the call that it is about."""

    advice = "A declared fault had the emulated device fail."


class Conditions:
    """Asked by the device before it does anything, starts an operation, goes on and ends one."""

    def __init__(self, page: ControlPage) -> None:
        self._page = page
        self._order = Order.NONE
        self._amount = 0.0
        self._text = ""
        #: The operation that stays unfinished.
        self._stuck: DeviceOperation | None = None
        #: When the operation that is over by itself is over on a slow device.
        self._ends: dict[int, float] = {}
        #: Operations that were over by themselves since the device is slow.
        self._ended = 0
        self._link: DeviceLink | None = None
        #: When the link lets the operation go on that asked last.
        self._held_until = 0.0
        self._aborted = False

    @property
    def patience_s(self) -> float:
        """Seconds for which the device may sleep."""
        now = time.monotonic()
        moments = [*self._ends.values(), *([self._held_until] if self._held_until > now else [])]
        if not moments:
            return 1.0
        return max(0.0005, min(moments) - now)

    @property
    def sound(self) -> bool:
        return self._order is Order.NONE

    def halted(self, busy: bool) -> bool:
        """True if the device does nothing any more; ``busy`` where something is to be done."""
        if self._page.has_order():
            self._take()
        if self._order is not Order.HALT:
            return False
        if busy:
            self._page.note_effect()
        return True

    def _take(self) -> None:
        known = self._order, self._amount, self._text
        self._order, self._amount, self._text = self._page.order()
        if known == (self._order, self._amount, self._text):
            return
        self._aborted = False
        self._link = DeviceLink.of_order(self._order, self._amount, self._text)
        if self._order in (Order.HALT, Order.FAIL) and self._amount:
            write_xid(int(self._amount), _device_number())

    def aborts(self, any_there: bool) -> bool:
        """True once, where the communicators that are there are to be aborted."""
        if self._order is not Order.ABORT or not any_there or self._aborted:
            return False
        self._aborted = True
        self._page.note_effect()
        return True

    def may_start(self, operation: DeviceOperation) -> bool:
        if self._order is Order.OCCUPY:
            self._page.note_effect()
            return False
        return self._order is not Order.HALT

    def failure(self, operation: DeviceOperation) -> DeviceError | None:
        """The error with which an operation ends that was about to start."""
        if self._order is not Order.FAIL:
            return None
        self._page.note_effect()
        return DeviceError(self._text)

    def holds(self, operation: DeviceOperation) -> bool:
        """True while what an operation sends or receives is not through a link."""
        if self._link is None:
            return False
        self._held_until = self._link.held_until(operation)
        if not self._held_until:
            return False
        self._page.note_effect()
        return True

    def may_end(self, operation: DeviceOperation) -> bool:
        """False while a slow device is still at it, and for ever where it hangs in its part."""
        if self._link is not None:
            self._link.forget(operation)
        if self._order is Order.HANG_IN_PART:
            if self._stuck is None and operation.communicator is not None:
                self._stuck = operation
                self._page.note_effect()
            return operation is not self._stuck
        if self._order is not Order.SLOW:
            return True
        key, now = id(operation), time.monotonic()
        if key not in self._ends:
            self._ended += 1
            if self._ended % int(self._text or 1):
                return True
            computed = (time.time_ns() - operation.started_ns) / 1e9
            usual = _USUAL_S if operation.communicator is not None else computed
            self._ends[key] = now + usual * (self._amount - 1)
            self._page.note_effect()
        if now < self._ends[key]:
            return False
        del self._ends[key]
        return True

    def memory_is_full(self) -> bool:
        """True if others have all of the device's memory, which a host asks that wants some."""
        if self._order is not Order.FILL_MEMORY:
            return False
        self._page.note_effect()
        return True


def _device_number() -> int:
    """The number of the device that the rank has chosen, 0 where none is emulated."""
    with contextlib.suppress(Exception):
        return int(torch._C._cuda_getDevice())
    return 0
