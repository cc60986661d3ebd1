"""Base of faults that are done to the host of a rank, not to its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hanglab.harness.faults.conditions import Condition, FromTheStart
from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.proof import Probe
from hanglab.harness.hosts import Hosts

#: Takes a fault back.  Raises OSError where that is not possible.
Undo = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class HostFault(Fault):
    """Something done from outside to the host that rank ``rank`` runs on.

    ``in_control`` has it strike in the control as well: it is then no fault but a
    circumstance, which must not change a verdict.
    """

    in_control: bool = False
    needs = "docker"

    def strike_host(self, hosts: Hosts) -> Undo | None:
        """Does it; returns what takes it back, or None for what is done once and for all.

        Raises OSError where it cannot be done.
        """
        raise NotImplementedError

    def probe(self, hosts: Hosts) -> Probe:
        """Looks how things are before the fault."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class LastingFault(HostFault):
    """A fault that is there before any rank begins, or from the moment that is given."""

    def __post_init__(self) -> None:
        if self.at_step is None and self.after_s is None and self.when is None:
            return
        super().__post_init__()

    @property
    def condition(self) -> Condition:
        if self.at_step is None and self.after_s is None and self.when is None:
            return FromTheStart(self.rank)
        return super().condition


def strikes_in(fault: Fault, faulty: bool) -> bool:
    """True if a declared fault is in force in this variant of its job."""
    return faulty or (isinstance(fault, HostFault) and fault.in_control)
