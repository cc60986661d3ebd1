"""Rank 2's device does its part in a reduction and stops there; its peers wait in the next one."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, HangInPart, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.MISSING_RANK, culprits={2}, group="default_pg"),
    faults=[HangInPart(rank=2, at_step=8)],
    reference="NVIDIA/nccl#968",
    zoo="G1",
)
def device_stopped(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()  # SEEN
