"""What NCCL jobs are told, as far as it can be tested without a GPU: by starting ranks.

That NCCL then does what the names promise is what `docs/gpu.md` keeps the record of.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hanglab.harness.jobs.resources import Allotment, gpus_of, least_gpus
from hanglab.harness.jobs.run import RunRequest
from hanglab.harness.launchers.environment import job_environment, nccl_environment
from hanglab.harness.launchers.local import LocalLauncher
from hanglab.harness.launchers.protocol import JobPlan, Launcher
from hanglab.harness.launchers.torchrun import TorchrunLauncher
from hanglab.harness.leases.gpus import GpuPool
from hanglab.harness.leases.machine import Gpu, GpuInventory
from hanglab.harness.leases.pool import PoolTooSmall
from hanglab.harness.scenarios.declaration import Scenario

PROGRAM = """
import json, os, sys
names = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "CUDA_", "HANGLAB_SHARED")
told = {name: value for name, value in os.environ.items() if name.startswith(names)}
with open(f"{sys.argv[1]}/{os.environ['RANK']}", "w") as file:
    json.dump(told, file)
"""
BODY = """
import json, os
def body(job):
    with open(f"{os.environ['TOLD']}/{job.rank}", "w") as file:
        json.dump(dict(os.environ), file)
def init_process_group(): ...
def unused():
    init_process_group()
"""


def scenario(**changes: Any) -> Scenario:
    here = Path(__file__)
    values: dict[str, Any] = {
        "name": "made_up",
        "source": here,
        "line": 1,
        "function": "f",
        "program": here,
        "expect": None,
    }
    return Scenario(**{**values, **changes})


def request(declared: Scenario, backend: str = "nccl", world_size: int = 4) -> RunRequest:
    return RunRequest(declared, "fault", 0, 0, backend, world_size, 1.5, 60.0)


def gpus(count: int, folder: Path, visible: str | None = None) -> GpuPool:
    machine = GpuInventory(tuple(Gpu(i, f"GPU-{i}", "made up") for i in range(count)))
    outer = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return GpuPool(machine, outer, folder)


def ranks_told(launcher: Launcher, plan: JobPlan, folder: Path) -> list[dict[str, str]]:
    try:
        job = launcher.start(plan)
        try:
            while job.alive():
                job.events(280)
        finally:
            job.end()
    finally:
        launcher.close()
    return [json.loads((folder / str(rank)).read_text()) for rank in range(plan.world_size)]


def make_plan(folder: Path, environment: dict[str, str], **changes: Any) -> JobPlan:
    values: dict[str, Any] = {
        "run_dir": folder,
        "case_dir": folder / "case",
        "script": folder / "program.py",
        "function": None,
        "world_size": 2,
        "faulty": True,
        "seed": 0,
        "backend": "nccl",
        "deadline_s": 100.0,
        "environment": environment,
        "arguments": (str(folder),),
    }
    return JobPlan(**{**values, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [LocalLauncher, TorchrunLauncher])
def test_ranks_on_one_gpu_are_told_apart(launcher: type[Launcher], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    plan = make_plan(tmp_path, nccl_environment(["GPU-7"], 2, 20481))
    told = ranks_told(launcher(), plan, tmp_path)
    hosts = [rank.pop("NCCL_HOSTID") for rank in told]
    assert len(set(hosts)) == 2
    assert [host.rsplit("-r")[1] for host in hosts] == ["0", "1"]
    assert told[0] == told[1]
    assert told[0]["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert told[0]["NCCL_RAS_ADDR"] == "localhost:20481"
    assert told[0]["NCCL_NET"] == "Socket"
    assert told[0]["NCCL_P2P_DISABLE"] == told[0]["NCCL_SHM_DISABLE"] == "1"
    assert told[0]["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert told[0]["TORCH_NCCL_ENABLE_TIMING"] == "1"
    assert told[0]["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
    assert told[0]["TORCH_FR_BUFFER_SIZE"] == "2000"


@pytest.mark.slow
def test_a_scenarios_ranks_under_torchrun_are_told_apart_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BODY)
    environment = {**nccl_environment(["0"], 2, 20481), "TOLD": str(tmp_path)}
    # The body starts no process group, and a CPU build of torch could not on NCCL.
    plan = make_plan(tmp_path, environment, function="body", arguments=())
    plan = JobPlan(**{**vars(plan), "backend": "gloo"})
    told = ranks_told(TorchrunLauncher(), plan, tmp_path)
    assert len({rank["NCCL_HOSTID"] for rank in told}) == 2


def test_ranks_with_a_gpu_each_keep_nccls_own_ways(tmp_path: Path) -> None:
    environment = nccl_environment(["2", "3"], 2, 20481)
    assert environment == {"CUDA_VISIBLE_DEVICES": "2,3", "NCCL_RAS_ADDR": "localhost:20481"}
    plan = make_plan(tmp_path, environment)
    told = job_environment(plan, {}, tmp_path)
    assert "NCCL_HOSTID" not in told
    assert "NCCL_P2P_DISABLE" not in told


@pytest.mark.parametrize(
    "backend, world, declared, pool, leased",
    [
        ("gloo", 4, {}, 8, 0),
        ("gloo", 4, {"needs": ("gpu",)}, 8, 1),
        ("nccl", 4, {}, 8, 4),
        ("nccl", 4, {}, 4, 4),
        ("nccl", 4, {}, 3, 1),
        ("nccl", 4, {}, 1, 1),
        ("nccl", 4, {"gpus": 2}, 3, 2),
        ("nccl", 2, {"gpus": 4}, 8, 4),
    ],
)
def test_how_many_gpus_a_job_leases(
    backend: str, world: int, declared: dict[str, Any], pool: int, leased: int
) -> None:
    made_up = scenario(**declared)
    assert gpus_of(made_up, backend, world, pool) == leased
    assert least_gpus(made_up, backend) <= max(leased, declared.get("gpus", 0))


def test_jobs_get_gpus_and_ports_of_their_own(tmp_path: Path) -> None:
    allotment = Allotment(tmp_path, gpus(4, tmp_path, "3,1,0"))
    stop = threading.Event()
    with (
        allotment.lease(request(scenario(), world_size=2), stop) as one,
        allotment.lease(request(scenario(), world_size=1), stop) as two,
    ):
        assert one is not None
        assert two is not None
        visible = [one["CUDA_VISIBLE_DEVICES"], two["CUDA_VISIBLE_DEVICES"]]
        assert sorted(",".join(visible).split(",")) == ["0", "1", "3"]
        assert one["NCCL_RAS_ADDR"] != two["NCCL_RAS_ADDR"]
        told: list[str] = []

        def tell(reason: str) -> None:
            told.append(reason)
            stop.set()

        with allotment.lease(request(scenario(), world_size=1), stop, tell) as three:
            assert three is None
        assert "waiting for 1 GPU: held by made_up fault 0" in told[0]
        free = threading.Event()
        with allotment.lease(request(scenario(), "gloo"), free) as no_gpu:
            assert no_gpu == {}


def test_gpus_that_are_not_there_and_gpus_that_may_not_be_used(tmp_path: Path) -> None:
    wants = scenario(gpus=4)
    few = Allotment(tmp_path, gpus(2, tmp_path))
    assert few.refusal(wants, "nccl") == "needs 4 GPUs, this machine has 2"
    assert few.refusal(wants, "gloo") is None
    none = Allotment(tmp_path, GpuPool(GpuInventory(problem="NVML: no driver"), {}, tmp_path))
    assert none.refusal(scenario(), "nccl") == "needs 1 GPU, this machine has 0 (NVML: no driver)"
    hidden = Allotment(tmp_path, gpus(8, tmp_path, "0,5"))
    with pytest.raises(PoolTooSmall) as refused:
        hidden.refusal(wants, "nccl")
    assert "asks for 4 GPUs, but the pool has 2 GPUs (CUDA_VISIBLE_DEVICES=0,5) of the 8" in str(
        refused.value
    )
    assert "CUDA_VISIBLE_DEVICES" in refused.value.advice
