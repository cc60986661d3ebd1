"""The environment of everything in a node's container."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hanglab.harness.launchers.docker import container_paths, image
from hanglab.harness.launchers.environment import RANK_VARIABLES, torch_dumps
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.recorder.case.backends import backend_of

#: Of hanglab's own environment only what speaks to torch, to its backends and to the
#: recorder goes into containers: the rest describes another machine.
_HANDED_ON = (
    "GLOO_", "HANGLAB_BRANCHES", "HANGLAB_LOCALS", "HANGLAB_NATIVE", "HANGLAB_SOURCE",
    "KINETO_", "MKL_", "NCCL_", "OMP_", "OPENBLAS_", "PYTHONHASHSEED", "PYTORCH_", "TORCH", "TP_",
)  # fmt: skip
#: The rendezvous; every node has all ports to itself.
MASTER_PORT = 29500
#: Docker's name of the interface in the job's network.
_INTERFACE = "eth0"


def node_environment(plan: JobPlan, number: int, nodes: int) -> dict[str, str]:
    """Environment of a node's container, which its ranks inherit."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_HANDED_ON) and name not in RANK_VARIABLES
    }
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("HANGLAB_BRANCHES", "1")
    for name, value in torch_dumps(container_paths.DUMPS).items():
        environment.setdefault(name, value)
    environment.update(plan.environment)
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # the container has only those of the node
    # On one host ranks talk over loopback, which would not reach another container.
    environment.update(GLOO_SOCKET_IFNAME=_INTERFACE, NCCL_SOCKET_IFNAME=_INTERFACE)
    if backend_of(plan.backend).needs_gpu:
        environment.update(
            TORCH_NCCL_DUMP_ON_TIMEOUT="1",
            TORCH_NCCL_ENABLE_MONITORING="1",
            TORCH_NCCL_DEBUG_INFO_PIPE_FILE=container_paths.PIPES,
        )
    environment.update(
        TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
        TMPDIR=container_paths.TEMPORARY,
        HOME=container_paths.TEMPORARY,
        # A user without a name has none otherwise, and torch asks for it.
        USER="hanglab",
        HANGLAB_CASE=container_paths.CASE,
        HANGLAB_RUNTIME=container_paths.TEMPORARY,
        HANGLAB_FAULT="1" if plan.faulty else "0",
        HANGLAB_SEED=str(plan.seed),
        HANGLAB_BACKEND=plan.backend,
        WORLD_SIZE=str(plan.world_size),
        GROUP_RANK=str(number),
        GROUP_WORLD_SIZE=str(nodes),
        MASTER_PORT=str(MASTER_PORT),
        TORCHELASTIC_RESTART_COUNT="0",
    )
    if image.checkout() is not None:
        environment["PYTHONPATH"] = container_paths.SOURCE
    return environment


def meeting_point(addresses: Mapping[int, str]) -> dict[str, str]:
    """Variables known only when all containers are there; one that is set before stays."""
    return {"MASTER_ADDR": addresses[0]}
