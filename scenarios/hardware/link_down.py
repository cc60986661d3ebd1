"""The link between the devices of ranks 1 and 2 goes down; all devices wait in one reduction."""

import os

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, FlapLink, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    # Whose end of a link is at fault no rank can tell.
    expect=Expect(Cause.FABRIC_STALLED, culprits=(), location=None),
    faults=[FlapLink(rank=1, peer=2, at_step=8, down_s=60.0)],
    reference="NVIDIA/nccl#905",
)
def link_down(job):
    os.environ["NCCL_DEBUG"] = "WARN"
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()
