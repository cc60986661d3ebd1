"""Faults of an emulated device: what a GPU does that is broken, busy with something else, or slow.

They reach the rank's device through the page that it shares, and are struck once it has taken note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hanglab.harness.faults.fault import Fault
from hanglab.harness.nccl_emulated.control import Order, give_order


@dataclass(frozen=True, kw_only=True)
class DeviceFault(Fault):
    """A fault of the rank's emulated device; it needs the backend ``nccl-emulated``."""

    order: ClassVar[Order]

    def strike(self, pid: int) -> None:
        give_order(pid, self.order)


@dataclass(frozen=True, kw_only=True)
class StopDevice(DeviceFault):
    """Halts the device wherever it is: operations that it has started stay unfinished."""

    order = Order.HALT


@dataclass(frozen=True, kw_only=True)
class OccupyDevice(DeviceFault):
    """Has a kernel that never ends on the device: what is launched from then on never starts."""

    order = Order.OCCUPY


@dataclass(frozen=True, kw_only=True)
class HangInPart(DeviceFault):
    """Has the device do its part in its next communication, and not finish."""

    order = Order.HANG_IN_PART


@dataclass(frozen=True, kw_only=True)
class SlowDevice(DeviceFault):
    """Has operations of the device take ``times`` as long: computations what they took, and
    communications of a millisecond.
    """

    order = Order.SLOW
    times: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 < self.times <= 1000:
            raise ValueError(f"times= is more than 1 and at most 1000, not {self.times}")

    def strike(self, pid: int) -> None:
        give_order(pid, self.order, self.times)


@dataclass(frozen=True, kw_only=True)
class FailDevice(DeviceFault):
    """Has the next operation of the device end with an error of CUDA, as ``error`` words it."""

    order = Order.FAIL
    error: str = "an illegal memory access was encountered"

    def strike(self, pid: int) -> None:
        give_order(pid, self.order, text=f"CUDA error: {self.error}")
