"""A pipeline whose third stage is heavier than the others: each does its part of every step."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect.healthy(),
    reference="arXiv:2505.05713",
    packs="training",
)
def uneven_stages(job):
    depth = 6 if job.rank == 2 else 2
    stage = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(depth)])
    first, last = job.rank == 0, job.rank == job.world_size - 1
    for _ in job.steps(60):
        for _ in range(2):
            inputs = torch.randn(64, 128)
            if not first:
                dist.recv(inputs, job.rank - 1)
            inputs.requires_grad_()
            outputs = stage(inputs)
            gradient = torch.ones_like(outputs)
            if not last:
                dist.send(outputs.detach(), job.rank + 1)
                dist.recv(gradient, job.rank + 1)
            (received,) = torch.autograd.grad(outputs, inputs, gradient)
            if not first:
                dist.send(received, job.rank - 1)
