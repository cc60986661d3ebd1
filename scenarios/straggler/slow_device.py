"""Rank 2's GPU takes five times as long for what is launched on it; its peers' wait for it."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, SlowDevice, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    # Of a device that computes for its host no line of the program tells.
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}, location=None),
    faults=[SlowDevice(rank=2, at_step=20, times=5.0)],
    reference="arXiv:2505.05713",
)
def slow_device(job):
    model = torch.nn.Linear(64, 64).to(job.device)
    for _ in job.steps(300):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        model.zero_grad()
        loss.item()
