"""What a rank's process was really started with, by the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.meeting_point import variable
from hanglab.harness.probes.probe import Reading

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes


class ToldProbe:
    """The rank has the value, and a rank of another node has another or none."""

    def __init__(self, nodes: Nodes, rank: int, name: str, value: str) -> None:
        self._nodes, self._rank, self._name, self._value = nodes, rank, name, value

    def struck(self) -> Reading:
        mine = variable(self._nodes, self._rank, self._name)
        return Reading(
            mine == self._value, f"rank {self._rank} has {self._name}={mine}", {self._name: mine}
        )

    def ended(self) -> Reading:
        return Reading(True, "a variable of a process, and gone with it")
