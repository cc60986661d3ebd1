"""Rank 2 still computes per-sample statistics that everybody else has switched off."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def reduce_gradients(parameters, world_size):
    """Averages all gradients in one operation."""
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(flat)
    flat /= world_size
    for parameter, mean in zip(
        parameters, flat.split([parameter.numel() for parameter in parameters]), strict=True
    ):
        parameter.grad.copy_(mean.view_as(parameter))


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2505.05713",
)
def slow_compute(job):
    layers = [torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32)]
    model = torch.nn.Sequential(*layers).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parameters = list(model.parameters())
    passes = 4 if job.faulty and job.rank == 2 else 1  # FAULT
    for _ in job.steps(40):
        inputs = job.batch(128, rows=1024)
        with job.section("forward_backward"):
            for _ in range(passes):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()  # SEEN
        reduce_gradients(parameters, job.world_size)
        optimizer.step()
        job.synchronize()
