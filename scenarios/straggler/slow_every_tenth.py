"""Every tenth step rank 2 evaluates a held-out set that its peers have left to it."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


def evaluate(model, batches):
    """Mean output over the held-out batches."""
    total = 0.0
    with torch.no_grad():
        for inputs in batches:
            total += model(inputs).mean().item()  # SEEN
    return total / len(batches)


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2505.05713",
)
def slow_every_tenth(job):
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = [torch.randn(512, 256, device=job.device) for _ in range(40)]
    for step in job.steps(70):
        inputs = job.batch(256, rows=128)
        with job.section("forward_backward"):
            model(inputs).square().mean().backward()
        if job.faulty and job.rank == 2 and step % 10 == 9:  # FAULT
            evaluate(model.module, held_out)
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
