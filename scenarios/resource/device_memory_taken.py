"""A process of somebody else takes all memory of rank 2's device in the middle of the training."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, FillDeviceMemory, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.GPU_OOM, culprits={2}),
    faults=[FillDeviceMemory(rank=2, at_step=8)],
    reference="dmlc/xgboost#11217",
    zoo="B6",
)
def device_memory_taken(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        batch = job.batch(64)  # SEEN
        with job.section("forward_backward"):
            loss = model(batch).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()
