"""Limits of a node that are drawn tighter while the job runs: processor, memory, tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.containers import asking
from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.groups import group_folder
from hanglab.harness.probes.memory import OomProbe, PressureProbe
from hanglab.harness.probes.quota import QuotaProbe
from hanglab.harness.probes.tasks import TasksProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes

#: Microseconds of a period of the processor's quota; the kernel's own default.
_PERIOD_US = 100_000
#: Bytes that no node has: before 23.0 Docker does not take back a limit by any other name.
_LIMITLESS = 1 << 52


@dataclass(frozen=True, kw_only=True)
class NodeCpu(NodeFault):
    """From now on the node gets ``cpus`` processors' worth of time, a fraction or more."""

    cpus: float

    def strike_node(self, nodes: Nodes) -> Undo:
        container = nodes.of_rank(self.rank).container

        def lift() -> None:
            with asking("lift the processor quota"):
                container.update(cpu_period=_PERIOD_US, cpu_quota=-1)

        with asking("set a processor quota"):
            container.update(cpu_period=_PERIOD_US, cpu_quota=int(self.cpus * _PERIOD_US))
        return lift

    def probe(self, nodes: Nodes) -> QuotaProbe:
        return QuotaProbe(nodes.of_rank(self.rank).pid)


@dataclass(frozen=True, kw_only=True)
class NodeMemory(NodeFault):
    """From now on the node may use no more than ``mebibytes``, and has no swap."""

    mebibytes: int

    def strike_node(self, nodes: Nodes) -> Undo:
        container = nodes.of_rank(self.rank).container

        def lift() -> None:
            with asking("lift the memory limit"):
                container.update(mem_limit=_LIMITLESS, memswap_limit=_LIMITLESS)

        with asking("set a memory limit"):
            size = self.mebibytes << 20
            container.update(mem_limit=size, memswap_limit=size)
        return lift

    def probe(self, nodes: Nodes) -> OomProbe:
        """The limit alone may go unnoticed: only a kill proves that it was met."""
        node = nodes.of_rank(self.rank)
        return OomProbe(node.pid, node.container)


@dataclass(frozen=True, kw_only=True)
class MemoryPressure(NodeMemory):
    """The same for a node that only rereads what it had to drop, and loses nobody."""

    def probe(self, nodes: Nodes) -> PressureProbe:  # type: ignore[override]
        return PressureProbe(nodes.of_rank(self.rank).pid)


@dataclass(frozen=True, kw_only=True)
class NodeTasks(NodeFault):
    """From now on the node may have only ``spare`` more processes and threads than it has."""

    spare: int
    needs = "outside_processes"

    def strike_node(self, nodes: Nodes) -> Undo:
        # Docker's API can set it, its SDK for Python cannot.
        folder, _ = group_folder("pids", nodes.of_rank(self.rank).pid)

        def lift() -> None:
            if folder.exists():
                (folder / "pids.max").write_text("max")

        used = int((folder / "pids.current").read_text())
        (folder / "pids.max").write_text(str(used + self.spare))
        return lift

    def probe(self, nodes: Nodes) -> TasksProbe:
        return TasksProbe(nodes.of_rank(self.rank).pid)
