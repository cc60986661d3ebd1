"""The names that scenario authors need; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.analyzer.verdict import Cause, Status
    from hanglab.harness.faults.conditions import Operations, Steps
    from hanglab.harness.faults.freeze import Freeze
    from hanglab.harness.faults.kill import Kill
    from hanglab.harness.faults.limits import LimitCpu, LimitMemory, LimitTasks
    from hanglab.harness.faults.outside.blocked_disk import BlockDisk
    from hanglab.harness.faults.outside.clock_skew import ClockSkew
    from hanglab.harness.faults.outside.cut import CutOff
    from hanglab.harness.faults.outside.delay import Delay
    from hanglab.harness.faults.outside.descriptors import NodeDescriptors
    from hanglab.harness.faults.outside.disk import FillDisk
    from hanglab.harness.faults.outside.drop_between import DropBetween
    from hanglab.harness.faults.outside.freeze_node import FreezeNode
    from hanglab.harness.faults.outside.kill_node import KillNode
    from hanglab.harness.faults.outside.kill_rank import KillRank
    from hanglab.harness.faults.outside.limits import MemoryPressure, NodeCpu, NodeMemory, NodeTasks
    from hanglab.harness.faults.outside.port_taken import PortTaken
    from hanglab.harness.faults.outside.rate import LimitRate
    from hanglab.harness.faults.outside.refuse import RefuseConnections
    from hanglab.harness.faults.outside.shm import ShrinkShm
    from hanglab.harness.faults.outside.store_gone import StoreGone
    from hanglab.harness.faults.outside.wrong_address import WrongAddress, WrongInterface
    from hanglab.harness.faults.terminate import Terminate
    from hanglab.harness.scenarios.declaration import Expect, scenario
    from hanglab.harness.scenarios.job import Job

__all__ = [
    "BlockDisk",
    "Cause",
    "ClockSkew",
    "CutOff",
    "Delay",
    "DropBetween",
    "Expect",
    "FillDisk",
    "Freeze",
    "FreezeNode",
    "Job",
    "Kill",
    "KillNode",
    "KillRank",
    "LimitCpu",
    "LimitMemory",
    "LimitRate",
    "LimitTasks",
    "MemoryPressure",
    "NodeCpu",
    "NodeDescriptors",
    "NodeMemory",
    "NodeTasks",
    "Operations",
    "PortTaken",
    "RefuseConnections",
    "ShrinkShm",
    "Status",
    "Steps",
    "StoreGone",
    "Terminate",
    "WrongAddress",
    "WrongInterface",
    "scenario",
]

_HOMES = {
    "BlockDisk": "hanglab.harness.faults.outside.blocked_disk",
    "Cause": "hanglab.analyzer.verdict",
    "ClockSkew": "hanglab.harness.faults.outside.clock_skew",
    "CutOff": "hanglab.harness.faults.outside.cut",
    "Delay": "hanglab.harness.faults.outside.delay",
    "DropBetween": "hanglab.harness.faults.outside.drop_between",
    "Expect": "hanglab.harness.scenarios.declaration",
    "FillDisk": "hanglab.harness.faults.outside.disk",
    "Freeze": "hanglab.harness.faults.freeze",
    "FreezeNode": "hanglab.harness.faults.outside.freeze_node",
    "Job": "hanglab.harness.scenarios.job",
    "Kill": "hanglab.harness.faults.kill",
    "KillNode": "hanglab.harness.faults.outside.kill_node",
    "KillRank": "hanglab.harness.faults.outside.kill_rank",
    "LimitCpu": "hanglab.harness.faults.limits",
    "LimitMemory": "hanglab.harness.faults.limits",
    "LimitRate": "hanglab.harness.faults.outside.rate",
    "LimitTasks": "hanglab.harness.faults.limits",
    "MemoryPressure": "hanglab.harness.faults.outside.limits",
    "NodeCpu": "hanglab.harness.faults.outside.limits",
    "NodeDescriptors": "hanglab.harness.faults.outside.descriptors",
    "NodeMemory": "hanglab.harness.faults.outside.limits",
    "NodeTasks": "hanglab.harness.faults.outside.limits",
    "Operations": "hanglab.harness.faults.conditions",
    "PortTaken": "hanglab.harness.faults.outside.port_taken",
    "RefuseConnections": "hanglab.harness.faults.outside.refuse",
    "ShrinkShm": "hanglab.harness.faults.outside.shm",
    "Status": "hanglab.analyzer.verdict",
    "Steps": "hanglab.harness.faults.conditions",
    "StoreGone": "hanglab.harness.faults.outside.store_gone",
    "Terminate": "hanglab.harness.faults.terminate",
    "WrongAddress": "hanglab.harness.faults.outside.wrong_address",
    "WrongInterface": "hanglab.harness.faults.outside.wrong_address",
    "scenario": "hanglab.harness.scenarios.declaration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
