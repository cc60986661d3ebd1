"""What the containers of a job are made with, by its faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.outside.node_fault import NodeFault

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import NodeSettings


def shape(faults: Iterable[Fault], faulty: bool, number: int, settings: NodeSettings) -> None:
    """Changes the settings of container ``number`` before it is made."""
    for fault in faults:
        fault.prepare(number, settings)
        if strikes_in(fault, faulty):
            fault.settings(number, settings)


def strikes_in(fault: Fault, faulty: bool) -> bool:
    """Whether a declared fault is in force in this variant."""
    return faulty or (isinstance(fault, NodeFault) and fault.in_control)
