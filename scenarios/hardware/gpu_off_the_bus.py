"""Rank 2's device is gone from its bus: the driver says so, and whoever waits for it waits on."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, StopDevice, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.GPU_FAULT, culprits={2}),
    faults=[StopDevice(rank=2, at_step=8, xid=79)],
    reference="NVIDIA/open-gpu-kernel-modules#1327",
    zoo="G3",
)
def gpu_off_the_bus(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()  # SEEN
