"""Faults of the link between the emulated devices of two ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.harness.faults.device import DeviceFault
from hanglab.harness.nccl_emulated.control import Order, give_order


@dataclass(frozen=True, kw_only=True)
class LinkFault(DeviceFault):
    """A fault of the link between ``rank`` and ``peer``, which each end meets.

    Collectives pass it where the two are neighbours in the ring of their group, messages where
    they are between the two.
    """

    peer: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.peer == self.rank:
            raise ValueError("a link is between two ranks: rank= and peer= are the same")

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset({self.rank, self.peer})

    def strike_among(self, pids: Mapping[int, int]) -> None:
        for here, there in ((self.rank, self.peer), (self.peer, self.rank)):
            self.strike_end(pids[here], pids[there])

    def strike_end(self, pid: int, peer: int) -> None:
        """Does it to the device of process ``pid``, whose link leads to that of ``peer``."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class NarrowLink(LinkFault):
    """From now on the link carries ``kibibytes`` a second."""

    order = Order.NARROW_LINK
    kibibytes: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kibibytes > 0:
            raise ValueError(f"kibibytes= is more than 0, not {self.kibibytes}")

    def strike_end(self, pid: int, peer: int) -> None:
        give_order(pid, self.order, self.kibibytes * 1024, str(peer))


@dataclass(frozen=True, kw_only=True)
class FlapLink(LinkFault):
    """From now on the link is down for ``down_s`` seconds, up for ``up_s``, and so on.

    Where ``up_s`` is 0 it stays down.
    """

    order = Order.FLAP_LINK
    down_s: float
    up_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.down_s > 0 or not self.up_s >= 0:
            raise ValueError("down_s= is more than 0, and up_s= not less")

    def strike_end(self, pid: int, peer: int) -> None:
        give_order(pid, self.order, self.down_s, f"{peer} {self.up_s}")
