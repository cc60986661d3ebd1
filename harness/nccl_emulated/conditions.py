"""What is wrong with this process's device: nothing, unless a fault has been injected."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.operation import Operation


class Conditions:
    """Asked by the device before it starts an operation and before it ends one."""

    def __init__(self) -> None:
        #: The device does nothing any more.
        self.halted = False
        #: How many times as long as they need operations of the device take.
        self.slowness = 1.0
        self._ends: dict[int, float] = {}

    @property
    def patience_s(self) -> float:
        return 0.05 if not self._ends else max(0.0, min(self._ends.values()) - time.monotonic())

    def stopped(self) -> bool:
        return self.halted

    def may_start(self, operation: Operation) -> bool:
        return True

    def may_end(self, operation: Operation) -> bool:
        """False while a slow device is still at it."""
        return True
