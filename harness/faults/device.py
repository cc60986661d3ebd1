"""Faults of an emulated device: what a GPU does that is broken, busy with something else, or slow.

They reach the rank's device through the page that it shares, and are struck once it has taken
note; the device counts there what the fault has changed, which is the proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.proof import Reading
from hanglab.harness.nccl_emulated.control import ControlPage, Order, give_order, open_page
from hanglab.harness.nccl_emulated.xid_numbers import XID_WORDS


@dataclass(frozen=True, kw_only=True)
class DeviceFault(Fault):
    """A fault of the rank's emulated device; it needs the backend ``nccl-emulated``."""

    order: ClassVar[Order]

    def strike(self, pid: int) -> None:
        give_order(pid, self.order)

    def probe_of(self, pids: Mapping[int, int]) -> EffectProbe:
        return EffectProbe([open_page(pids[rank]) for rank in sorted(self.ranks)])


class EffectProbe:
    """Counts by the devices themselves of what an order has changed."""

    def __init__(self, pages: list[ControlPage]) -> None:
        self._pages = [(page, page.effects) for page in pages]

    def struck(self) -> Reading:
        counts = [page.effects - before for page, before in self._pages]
        words = f"it changed what the device did {sum(counts)} times"
        return Reading(sum(counts) > 0, words, {"effects": sum(counts)})

    def ended(self) -> Reading:
        return Reading(True, "it ends with its process")


def _check_xid(number: int | None) -> None:
    if number is not None and number not in XID_WORDS:
        raise ValueError(f"xid= is one of {', '.join(map(str, XID_WORDS))}, not {number}")


@dataclass(frozen=True, kw_only=True)
class StopDevice(DeviceFault):
    """Halts the device wherever it is: operations that it has started stay unfinished.

    With ``xid`` the driver says so in the kernel's log, by that number.
    """

    order = Order.HALT
    xid: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_xid(self.xid)

    def strike(self, pid: int) -> None:
        give_order(pid, self.order, float(self.xid or 0))


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
    communications of a millisecond.  ``every`` n-th of them alone, where that is more than 1.
    """

    order = Order.SLOW
    times: float = 2.0
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 < self.times <= 1000:
            raise ValueError(f"times= is more than 1 and at most 1000, not {self.times}")
        if self.every < 1:
            raise ValueError(f"every= is 1 or more, not {self.every}")

    def strike(self, pid: int) -> None:
        give_order(pid, self.order, self.times, str(self.every))


@dataclass(frozen=True, kw_only=True)
class FailDevice(DeviceFault):
    """Has the next operation of the device end with an error of CUDA, as ``error`` words it.

    With ``xid`` the driver says so in the kernel's log, by that number.
    """

    order = Order.FAIL
    error: str = "an illegal memory access was encountered"
    xid: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_xid(self.xid)

    def strike(self, pid: int) -> None:
        give_order(pid, self.order, float(self.xid or 0), f"CUDA error: {self.error}")


@dataclass(frozen=True, kw_only=True)
class AbortCommunicators(DeviceFault):
    """Aborts the rank's communicators, as a health check does that gives the job up: what is open
    ends there undone, what is launched later is refused, and peers wait on.
    """

    order = Order.ABORT


@dataclass(frozen=True, kw_only=True)
class FillDeviceMemory(DeviceFault):
    """Has others take all of the device's memory, so that the next tensor finds no room there."""

    order = Order.FILL_MEMORY
