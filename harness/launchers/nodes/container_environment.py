"""The environment of ranks in containers, which have nothing of this machine's but the job."""

from __future__ import annotations

import os

from hanglab.harness.launchers.environment import RANK_VARIABLES, torch_dumps
from hanglab.harness.launchers.nodes.processes import NodePaths
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.recorder.case.backends import backend_of

#: Of hanglab's own environment only what speaks to torch, to its backends and to the
#: recorder goes into containers: the rest describes another machine.
_HANDED_ON = (
    "GLOO_", "HANGLAB_BRANCHES", "HANGLAB_LOCALS", "HANGLAB_NATIVE", "HANGLAB_SOURCE",
    "KINETO_", "MKL_", "NCCL_", "OMP_", "OPENBLAS_", "PYTHONHASHSEED", "PYTORCH_", "TORCH", "TP_",
)  # fmt: skip


def container_environment(
    plan: JobPlan, number: int, nodes: int, paths: NodePaths
) -> dict[str, str]:
    """Environment of a node's ranks, less what says which rank each is and where all meet."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_HANDED_ON) and name not in RANK_VARIABLES
    }
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("HANGLAB_BRANCHES", "1")
    for name, value in torch_dumps(paths.dumps).items():
        environment.setdefault(name, value)
    environment.update(plan.environment)
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # the container has only those of the node
    if backend_of(plan.backend).needs_gpu:
        environment.update(
            TORCH_NCCL_DUMP_ON_TIMEOUT="1",
            TORCH_NCCL_ENABLE_MONITORING="1",
            TORCH_NCCL_DEBUG_INFO_PIPE_FILE=paths.pipes,
        )
    environment.update(
        TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
        TMPDIR=str(paths.temporary),
        HOME=str(paths.temporary),
        # A user without a name has none otherwise, and torch asks for it.
        USER="hanglab",
        HANGLAB_CASE=str(paths.case),
        HANGLAB_RUNTIME=str(paths.temporary),
        HANGLAB_FAULT="1" if plan.faulty else "0",
        HANGLAB_SEED=str(plan.seed),
        HANGLAB_BACKEND=plan.backend,
        WORLD_SIZE=str(plan.world_size),
        GROUP_RANK=str(number),
        GROUP_WORLD_SIZE=str(nodes),
        TORCHELASTIC_RESTART_COUNT="0",
    )
    return environment
