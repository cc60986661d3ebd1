"""Which of a job's faults are in force in a variant of it."""

from __future__ import annotations

from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.outside.node_fault import NodeFault


def strikes_in(fault: Fault, faulty: bool) -> bool:
    """True if a declared fault is in force in this variant."""
    return faulty or (isinstance(fault, NodeFault) and fault.in_control)
