"""Ranks share a GPU, and rank 1 asks for as much memory as the whole of it has."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=2,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.GPU_OOM, culprits={1}),
    reference="dmlc/xgboost#11217",
    zoo="B6",
)
def more_than_fits(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        size = 1 << 20
        if job.faulty and job.rank == 1 and step == 5:
            size = torch.cuda.get_device_properties(job.device).total_memory
        cache = torch.empty(size, dtype=torch.uint8, device=job.device)  # FAULT
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        del cache
        torch.cuda.synchronize()
