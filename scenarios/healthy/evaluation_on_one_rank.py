"""Rank 0 evaluates alone every twenty steps, for as long as a few steps take; its peers wait."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Expect, scenario


@torch.no_grad()
def evaluate(model, job):
    return sum(model(job.batch(64)).square().mean().item() for _ in range(200)) / 200


@scenario(world_size=4, expect=Expect.healthy(), reference="hiyouga/LlamaFactory#360")
def evaluation_on_one_rank(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(81):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            if job.rank == 0:
                evaluate(model.module, job)
            dist.barrier()
