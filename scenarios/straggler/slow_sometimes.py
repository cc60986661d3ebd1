"""Rank 2 augments two batches out of five on its own processor: its median step looks sound."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


def augment(images):
    """Blurs a batch of square images, pass by pass."""
    for _ in range(40):
        images = torch.nn.functional.avg_pool2d(images, 3, stride=1, padding=1)  # SEEN
    return images


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2505.05713",
)
def slow_sometimes(job):
    layers = [torch.nn.Flatten(), torch.nn.Linear(1024, 256), torch.nn.Linear(256, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(50):
        images = job.batch(1024, rows=128).view(-1, 1, 32, 32)
        if job.faulty and job.rank == 2 and step % 5 in (1, 3):  # FAULT
            images = augment(images)
        with job.section("forward_backward"):
            model(images).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
