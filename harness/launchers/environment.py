"""The environment of ranks: what torchrun would set, and what a recorded job needs."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.rank.shared_gpu import SHARED_GPU
from hanglab.recorder.case.backends import backend_of

#: Set for each rank; never inherited from hanglab's own environment.
RANK_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
)


def job_environment(plan: JobPlan, caller: Mapping[str, str], runtime_dir: Path) -> dict[str, str]:
    """Environment common to all processes of the job, built on the caller's."""
    environment = {name: value for name, value in caller.items() if name not in RANK_VARIABLES}
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    environment.setdefault("NCCL_SOCKET_IFNAME", "lo")
    environment.setdefault("HANGLAB_BRANCHES", "1")
    # torch's own dump on a timeout belongs beside the logs, not in the home directory.
    for name, value in torch_dumps(dump_prefix(plan.log_dir)).items():
        environment.setdefault(name, value)
    environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    if backend_of(plan.backend).enqueued:
        environment.update(own_dumps(plan, runtime_dir))
    environment.update(plan.environment)
    environment.update(
        TMPDIR=str(runtime_dir),
        HANGLAB_CASE=str(plan.case_dir),
        HANGLAB_RUNTIME=str(runtime_dir),
        HANGLAB_FAULT="1" if plan.faulty else "0",
        HANGLAB_SEED=str(plan.seed),
        HANGLAB_BACKEND=plan.backend,
    )
    return environment


def torch_dumps(prefix: str) -> dict[str, str]:
    """Has torch keep its last operations, and dump them at a timeout to ``prefix`` and the rank."""
    variables = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": prefix}
    if _torch_release() < (2, 10):  # later ones warn of these names, and are on by default
        variables["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"
        variables["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = prefix
    return variables


#: Ranks on one GPU talk over loopback sockets, with as few kernels' blocks as possible:
#: all of a GPU's kernels must be resident at once, or those that spin wait for ever.
_SHARING = {
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MAX_CTAS": "2",
    "NCCL_SOCKET_NTHREADS": "1",
    "NCCL_NSOCKS_PERTHREAD": "1",
}


def nccl_environment(devices: Sequence[str], world_size: int, ras_port: int) -> dict[str, str]:
    """Variables of a job with NCCL on the GPUs that it leased.

    ``devices`` are entries of the outer CUDA_VISIBLE_DEVICES; ranks go round
    over them.  NCCL refuses two ranks of one host on one GPU, so that ranks who
    share get a host identity each, by :func:`rank_environment`.  The RAS threads
    of all jobs would meet at the default port, which is opened with SO_REUSEPORT.
    """
    environment = {
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "NCCL_RAS_ADDR": f"localhost:{ras_port}",
    }
    if len(devices) < world_size:
        environment |= {**_SHARING, SHARED_GPU: "1"}
    return environment


def own_dumps(plan: JobPlan, runtime_dir: Path) -> dict[str, str]:
    """Lets torch's watchdog dump at a timeout, and whenever somebody writes into its pipe.

    Both are written by threads that need no interpreter, so they work where it is held.
    """
    return {
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        # Else no buffer tells whether a device has begun what its host has launched.
        "TORCH_NCCL_ENABLE_TIMING": "1",
        "TORCH_NCCL_ENABLE_MONITORING": "1",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipe_prefix(runtime_dir),
    }


def dump_prefix(log_dir: Path) -> str:
    """Path of torch's own dumps without the rank at its end."""
    return str(log_dir / "timeout_dump_rank")


def pipe_prefix(runtime_dir: Path) -> str:
    """Path of torch's pipe for dumps without the rank and ``.pipe`` at its end."""
    return str(runtime_dir / "dump_rank")


def own_dumps_options(log_dir: Path, runtime_dir: Path) -> list[str]:
    """Tells the recorder's agent where torch dumps by itself, and where it can be asked to."""
    return ["--dumps", dump_prefix(log_dir), "--pipes", pipe_prefix(runtime_dir)]


@functools.cache
def _torch_release() -> tuple[int, ...]:
    """Major and minor number of the installed torch, without importing it."""
    version = importlib.metadata.version("torch")
    return tuple(int(part) for part in version.split(".")[:2])


def rank_environment(rank: int, world_size: int, run_id: str) -> dict[str, str]:
    """Variables that torchrun sets for a rank of a single host, less the port of the rendezvous."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": run_id,
        # The store belongs to the supervisor, as it belongs to torchrun's agent:
        # rank 0 connects to it like the others and binds no port of its own.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


#: Names, by commas, the modules that many jobs of one caller import, besides torch.  None of them
#: may start a thread or a device when it is imported: ranks are forked afterwards.
WARM_IMPORTS = "HANGLAB_WARM_IMPORTS"

#: Read when the interpreter starts or when torch is imported, so a process that
#: has done both has settled them: plans that differ in one need a warm parent each.
_SETTLED_EARLY = (
    "PYTHON", "PYTORCH", "TORCH", "LD_", "MALLOC_", "GLIBC_", "ATEN_", "OMP_", "GOMP_", "KMP_",
    "MKL_", "OPENBLAS_", "NPY_", WARM_IMPORTS,
)  # fmt: skip
_READ_LATE = (
    "OMP_NUM_THREADS", "TORCH_FR_", "TORCH_NCCL_", "TORCH_INCLUDE_", "TORCH_DISTRIBUTED_DEBUG",
    "TORCHELASTIC_",
)  # fmt: skip


def settled_early(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The part of an environment that a warm process cannot take on afterwards."""
    return frozenset(
        (name, value)
        for name, value in environment.items()
        if name.startswith(_SETTLED_EARLY) and not name.startswith(_READ_LATE)
    )
