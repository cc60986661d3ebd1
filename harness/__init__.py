"""The names that scenario authors need; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.analyzer.verdict import Cause, Status
    from hanglab.harness.declaration import Expect, scenario
    from hanglab.harness.faults.conditions import Operations, Steps
    from hanglab.harness.faults.freeze import Freeze
    from hanglab.harness.faults.kill import Kill
    from hanglab.harness.faults.limits import LimitCpu, LimitMemory, LimitTasks
    from hanglab.harness.faults.terminate import Terminate
    from hanglab.harness.job import Job

__all__ = [
    "Cause",
    "Expect",
    "Freeze",
    "Job",
    "Kill",
    "LimitCpu",
    "LimitMemory",
    "LimitTasks",
    "Operations",
    "Status",
    "Steps",
    "Terminate",
    "scenario",
]

_HOMES = {
    "Cause": "hanglab.analyzer.verdict",
    "Expect": "hanglab.harness.declaration",
    "Freeze": "hanglab.harness.faults.freeze",
    "Job": "hanglab.harness.job",
    "Kill": "hanglab.harness.faults.kill",
    "LimitCpu": "hanglab.harness.faults.limits",
    "LimitMemory": "hanglab.harness.faults.limits",
    "LimitTasks": "hanglab.harness.faults.limits",
    "Operations": "hanglab.harness.faults.conditions",
    "Status": "hanglab.analyzer.verdict",
    "Steps": "hanglab.harness.faults.conditions",
    "Terminate": "hanglab.harness.faults.terminate",
    "scenario": "hanglab.harness.declaration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
