"""A link between this device and a peer's that carries little, or that is down at times.

Collectives go round the ring of a group's ranks, so that they pass the link where the two are
neighbours in it; a message passes it where it is between the two.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hanglab.harness.nccl_emulated.control import Order
from hanglab.harness.nccl_emulated.kernels import Grouped, Message

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.operation import DeviceOperation


@dataclass
class DeviceLink:
    """The link to the device of process ``peer``.

    ``bytes_per_s`` is what it carries; it is down for ``down_s`` seconds, up for ``up_s``, and so
    on, or down for good where ``up_s`` is 0.
    """

    peer: int
    bytes_per_s: float = math.inf
    down_s: float = 0.0
    up_s: float = 0.0
    since: float = field(default_factory=time.monotonic)
    since_ns: int = field(default_factory=time.time_ns)
    #: When an operation may hand over its part.
    _through: dict[int, float] = field(default_factory=dict)
    _is_down: bool = False

    @classmethod
    def of_order(cls, order: Order, amount: float, text: str) -> DeviceLink | None:
        """The link that an order is about, if it is about one."""
        if order is Order.NARROW_LINK:
            return cls(int(text), bytes_per_s=amount)
        if order is Order.FLAP_LINK:
            peer, _, up_s = text.partition(" ")
            return cls(int(peer), down_s=amount, up_s=float(up_s))
        return None

    def held_until(self, operation: DeviceOperation) -> float:
        """Moment (monotonic) before which the operation gets no further; 0.0 for none."""
        # What has handed over its part already: peers go on by that.
        if operation.started_ns < self.since_ns:
            return 0.0
        key, now = id(operation), time.monotonic()
        if key not in self._through:
            if not _passes(operation, self.peer):
                return 0.0
            self._through[key] = (
                self._up_again(now) if self.down_s else now + self._needs(operation)
            )
        held = now < self._through[key]
        if self.down_s and held is not self._is_down:
            self._is_down = held
            _warn(f"NET/IB : mlx5_0:1 Got async event : port {'error' if held else 'active'}")
        return self._through[key] if held else 0.0

    def forget(self, operation: DeviceOperation) -> None:
        """The operation is done."""
        self._through.pop(id(operation), None)

    def _needs(self, operation: DeviceOperation) -> float:
        """Seconds that the largest of its tensors needs."""
        return max((one.nbytes for one in operation.tensors), default=0) / self.bytes_per_s

    def _up_again(self, now: float) -> float:
        """Moment from which the link is up; ``now`` where it is."""
        if not self.up_s:
            return math.inf
        phase = (now - self.since) % (self.down_s + self.up_s)
        return now + max(0.0, self.down_s - phase)


def _warn(text: str) -> None:
    """Say what NCCL says on stderr where NCCL_DEBUG asks for it (transport/net_ib.cc)."""
    if os.environ.get("NCCL_DEBUG", "").upper() in ("WARN", "INFO", "ABORT", "TRACE"):
        where = f"{os.uname().nodename}:{os.getpid()}:{threading.get_native_id()} [0]"
        sys.stderr.write(f"{where} NCCL WARN {text}\n")
        sys.stderr.flush()


def _passes(operation: DeviceOperation, peer: int) -> bool:
    communicator = operation.communicator
    place = communicator.place_of(peer) if communicator is not None else None
    if communicator is None or place is None:
        return False
    kernel = operation.kernel
    parts = kernel.parts if isinstance(kernel, Grouped) else [kernel]
    messages = [part.lane[1] for part in parts if isinstance(part, Message)]
    if messages:
        return place in messages
    size = communicator.size
    return (place - communicator.rank) % size in (1, size - 1)
