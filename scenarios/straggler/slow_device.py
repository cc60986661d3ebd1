"""Rank 2's GPU takes forty times as long for what is launched on it; its peers' wait for it."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, SlowDevice, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    faults=[SlowDevice(rank=2, at_step=1, times=40.0)],
    reference="arXiv:2505.05713",
)
def slow_device(job):
    model = torch.nn.Linear(64, 64, bias=False).to(job.device)
    for _ in job.steps(100):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()  # SEEN
