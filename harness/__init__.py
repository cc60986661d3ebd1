"""The names that scenario authors need; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.analyzer.verdict import Cause, Status
    from hanglab.harness.faults.blocked_disk import BlockDisk
    from hanglab.harness.faults.clock_skew import ClockSkew
    from hanglab.harness.faults.conditions import Operations, Steps
    from hanglab.harness.faults.death import KillNode, KillRank
    from hanglab.harness.faults.delay import Delay
    from hanglab.harness.faults.descriptors import NodeDescriptors
    from hanglab.harness.faults.device import (
        AbortCommunicators,
        FailDevice,
        FillDeviceMemory,
        HangInPart,
        OccupyDevice,
        SlowDevice,
        StopDevice,
    )
    from hanglab.harness.faults.freeze import Freeze
    from hanglab.harness.faults.freeze_node import FreezeNode
    from hanglab.harness.faults.full_file_systems import FillDisk, ShrinkShm
    from hanglab.harness.faults.kill import Kill
    from hanglab.harness.faults.limits import LimitCpu, LimitMemory, LimitTasks
    from hanglab.harness.faults.link import FlapLink, NarrowLink
    from hanglab.harness.faults.node_cpu import NodeCpu
    from hanglab.harness.faults.node_memory import MemoryPressure, NodeMemory
    from hanglab.harness.faults.node_tasks import NodeTasks
    from hanglab.harness.faults.partition import CutOff, DropBetween
    from hanglab.harness.faults.port_taken import PortTaken
    from hanglab.harness.faults.rate import LimitRate
    from hanglab.harness.faults.refuse import RefuseConnections
    from hanglab.harness.faults.store_gone import StoreGone
    from hanglab.harness.faults.terminate import Terminate
    from hanglab.harness.faults.wrong_address import WrongAddress, WrongInterface
    from hanglab.harness.rank.job import Job
    from hanglab.harness.scenarios.declaration import Expect, scenario

__all__ = [
    "AbortCommunicators",
    "BlockDisk",
    "Cause",
    "ClockSkew",
    "CutOff",
    "Delay",
    "DropBetween",
    "Expect",
    "FailDevice",
    "FillDeviceMemory",
    "FillDisk",
    "FlapLink",
    "Freeze",
    "FreezeNode",
    "HangInPart",
    "Job",
    "Kill",
    "KillNode",
    "KillRank",
    "LimitCpu",
    "LimitMemory",
    "LimitRate",
    "LimitTasks",
    "MemoryPressure",
    "NarrowLink",
    "NodeCpu",
    "NodeDescriptors",
    "NodeMemory",
    "NodeTasks",
    "OccupyDevice",
    "Operations",
    "PortTaken",
    "RefuseConnections",
    "ShrinkShm",
    "SlowDevice",
    "Status",
    "Steps",
    "StopDevice",
    "StoreGone",
    "Terminate",
    "WrongAddress",
    "WrongInterface",
    "scenario",
]

_HOMES = {
    "AbortCommunicators": "hanglab.harness.faults.device",
    "BlockDisk": "hanglab.harness.faults.blocked_disk",
    "Cause": "hanglab.analyzer.verdict",
    "ClockSkew": "hanglab.harness.faults.clock_skew",
    "CutOff": "hanglab.harness.faults.partition",
    "Delay": "hanglab.harness.faults.delay",
    "DropBetween": "hanglab.harness.faults.partition",
    "Expect": "hanglab.harness.scenarios.declaration",
    "FailDevice": "hanglab.harness.faults.device",
    "FillDeviceMemory": "hanglab.harness.faults.device",
    "FillDisk": "hanglab.harness.faults.full_file_systems",
    "FlapLink": "hanglab.harness.faults.link",
    "Freeze": "hanglab.harness.faults.freeze",
    "FreezeNode": "hanglab.harness.faults.freeze_node",
    "HangInPart": "hanglab.harness.faults.device",
    "Job": "hanglab.harness.rank.job",
    "Kill": "hanglab.harness.faults.kill",
    "KillNode": "hanglab.harness.faults.death",
    "KillRank": "hanglab.harness.faults.death",
    "LimitCpu": "hanglab.harness.faults.limits",
    "LimitMemory": "hanglab.harness.faults.limits",
    "LimitRate": "hanglab.harness.faults.rate",
    "LimitTasks": "hanglab.harness.faults.limits",
    "MemoryPressure": "hanglab.harness.faults.node_memory",
    "NarrowLink": "hanglab.harness.faults.link",
    "NodeCpu": "hanglab.harness.faults.node_cpu",
    "NodeDescriptors": "hanglab.harness.faults.descriptors",
    "NodeMemory": "hanglab.harness.faults.node_memory",
    "NodeTasks": "hanglab.harness.faults.node_tasks",
    "OccupyDevice": "hanglab.harness.faults.device",
    "Operations": "hanglab.harness.faults.conditions",
    "PortTaken": "hanglab.harness.faults.port_taken",
    "RefuseConnections": "hanglab.harness.faults.refuse",
    "ShrinkShm": "hanglab.harness.faults.full_file_systems",
    "SlowDevice": "hanglab.harness.faults.device",
    "Status": "hanglab.analyzer.verdict",
    "Steps": "hanglab.harness.faults.conditions",
    "StopDevice": "hanglab.harness.faults.device",
    "StoreGone": "hanglab.harness.faults.store_gone",
    "Terminate": "hanglab.harness.faults.terminate",
    "WrongAddress": "hanglab.harness.faults.wrong_address",
    "WrongInterface": "hanglab.harness.faults.wrong_address",
    "scenario": "hanglab.harness.scenarios.declaration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
