"""Rank 2 computes what its peers have switched off; its node's clock is 20 minutes behind."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, ClockSkew, Expect, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2505.05713",
    faults=[ClockSkew(rank=2, seconds=-1200, in_control=True)],
    needs=("docker",),
)
def slow_compute_skewed(job):
    layers = [torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32)]
    model = torch.nn.Sequential(*layers)
    passes = 4 if job.faulty and job.rank == 2 else 1  # FAULT
    for _ in job.steps(40):
        inputs = job.batch(128, rows=1024)
        with job.section("forward_backward"):
            for _ in range(passes):
                model.zero_grad()
                model(inputs).square().mean().backward()  # SEEN
        gradient = torch.cat(
            [
                parameter.grad.flatten()
                for parameter in model.parameters()
                if parameter.grad is not None
            ]
        )
        dist.all_reduce(gradient)
