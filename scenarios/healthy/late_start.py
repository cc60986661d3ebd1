"""Rank 2 comes to the first step later than its peers, who wait there; then all keep pace."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def warm_up(rounds):
    return [torch.linalg.qr(torch.randn(300, 300)).R for _ in range(rounds)]


@scenario(
    world_size=4, expect=Expect.healthy(), reference="pytorch/pytorch#117550", packs="training"
)
def late_start(job):
    model = torch.nn.Linear(128, 128).to(job.device)
    warm_up(40 if job.rank == 2 else 2)
    for _ in job.steps(300):
        with job.section("forward_backward"):
            model(job.batch(128)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
