"""Conditions of this process's device: sound, unless a fault has given an order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hanglab.harness.nccl_emulated.control import ControlPage, Order
from hanglab.harness.nccl_emulated.settings import EmulationError

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.operation import DeviceOperation

#: What a communication is taken to need on a sound device, in seconds.
_USUAL_S = 0.001


class DeviceError(EmulationError):
    """The error that CUDA tells of its device, long after the call that it is about."""

    advice = "A declared fault had the emulated device fail."


class Conditions:
    """Asked by the device before it does anything, starts an operation and ends one."""

    def __init__(self, page: ControlPage) -> None:
        self._page = page
        self._order = Order.NONE
        self._amount = 0.0
        self._text = ""
        #: The operation that stays unfinished.
        self._stuck: DeviceOperation | None = None
        #: When the operation that is over by itself is over on a slow device.
        self._ends: dict[int, float] = {}

    @property
    def patience_s(self) -> float:
        """Seconds for which the device may sleep."""
        if not self._ends:
            return 1.0
        return max(0.0005, min(self._ends.values()) - time.monotonic())

    @property
    def sound(self) -> bool:
        return self._order is Order.NONE

    def halted(self) -> bool:
        if self._page.has_order():
            self._order, self._amount, self._text = self._page.order()
        return self._order is Order.HALT

    def may_start(self, operation: DeviceOperation) -> bool:
        return self._order not in (Order.OCCUPY, Order.HALT)

    def failure(self, operation: DeviceOperation) -> DeviceError | None:
        """The error with which an operation ends that was about to start."""
        return DeviceError(self._text) if self._order is Order.FAIL else None

    def may_end(self, operation: DeviceOperation) -> bool:
        """False while a slow device is still at it, and for ever where it hangs in its part."""
        if self._order is Order.HANG_IN_PART:
            if self._stuck is None and operation.communicator is not None:
                self._stuck = operation
            return operation is not self._stuck
        if self._order is not Order.SLOW:
            return True
        key, now = id(operation), time.monotonic()
        if key not in self._ends:
            computed = (time.time_ns() - operation.started_ns) / 1e9
            usual = _USUAL_S if operation.communicator is not None else computed
            self._ends[key] = now + usual * (self._amount - 1)
        if now < self._ends[key]:
            return False
        del self._ends[key]
        return True
