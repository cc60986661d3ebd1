"""The environment of ranks on nodes of Slurm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hanglab.harness.launchers.environment import job_environment
from hanglab.harness.launchers.protocol import JobPlan

#: Of one machine: of nodes apart it is for NCCL and gloo to choose, or for the caller.
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def node_environment(plan: JobPlan, number: int, nodes: int, temporary: Path) -> dict[str, str]:
    """Variables on top of what Slurm's step has, which is the caller's environment."""
    environment = job_environment(plan, os.environ, temporary)
    for name in _INTERFACES:
        if name not in os.environ:
            environment.pop(name, None)
    # Those that this host leased are none of the node's: Slurm says there which are the job's.
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    environment.update(
        WORLD_SIZE=str(plan.world_size),
        GROUP_RANK=str(number),
        GROUP_WORLD_SIZE=str(nodes),
        TORCHELASTIC_RESTART_COUNT="0",
    )
    return {name: value for name, value in environment.items() if os.environ.get(name) != value}


def meeting_point(nodes: list[str], machines: Mapping[int, str], port: int) -> dict[str, str]:
    """Variables known only when all nodes are there; one that is set before stays."""
    if len(set(machines.values())) == 1:
        one = dict.fromkeys(_INTERFACES, "lo")
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **one}
    return {"MASTER_ADDR": nodes[0], "MASTER_PORT": str(port)}
