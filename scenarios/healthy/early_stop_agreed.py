"""Rank 3 sees that the loss does not fall, tells all others, and all leave the loop together."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="Lightning-AI/pytorch-lightning#19045",
    packs="training",
)
def early_stop_agreed(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(40):
        model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        stop = torch.tensor([float(job.rank == 3 and step == 24)], device=job.device)
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if stop.item():
            break
    dist.barrier()
